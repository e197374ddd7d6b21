//! Laws of every limiter, for the tests of all stores and for the soak.

use super::compact::Layout;
use super::kinds::Kind;
use super::oracle::{Oracle, Spec, Verdict};
use super::steps::Op;
use super::subjects::{Subject, verdict};
use std::fmt::Debug;
use std::time::Duration;
use tollgate::Decision;

/// One request: its time, the same time as the oracle reads it, and the layout of the states if that is another one.
#[derive(Copy, Clone, Debug)]
pub struct Request<'l> {
    pub kind: Kind,
    pub key: u32,
    pub cost: u64,
    pub now: u64,
    pub at: u64,
    pub layout: Option<&'l Layout>,
}

impl Request<'_> {
    /// Converts a wait of the oracle to nanoseconds.
    fn wait(&self, wait: u128) -> Duration {
        let wait = self.layout.map_or(wait, |layout| layout.wait(self.now, wait));
        Duration::from_nanos(u64::try_from(wait).expect("a wait of less than 584 years"))
    }
}

/// Runs a check. The outcome, which `told` reads, and all figures equal the oracle's, and the peek before predicts them.
pub fn agrees(
    limiter: &dyn Subject,
    oracle: &mut dyn Oracle,
    request: &Request<'_>,
    told: impl FnOnce(&Decision) -> Verdict,
) {
    let &Request { kind, key, cost, now, at, .. } = request;
    let before = format!("{kind:?}, {cost} at {now} of key {key}, {oracle:?}");
    let delay = request.wait(oracle.delay(at.into()));
    let wait = oracle.retry_after(at, cost).map(|wait| request.wait(wait));
    let peeked = limiter.at(now).peek_n(key, cost);
    let decided = limiter.at(now).check_n(key, cost);
    let expected = oracle.offer(at, cost);

    assert_eq!(told(&decided), expected, "outcome of {before}: {decided:?}");
    assert_eq!(verdict(&peeked), expected, "outcome of the peek for {before}");
    assert_eq!(decided.cost(), cost, "{before}");
    assert_eq!([decided, peeked].map(|decision| decision.retry_after()), [wait; 2], "wait of {before}");
    if expected == Verdict::Allowed && cost > 0 {
        assert_eq!(decided.delay(), delay, "delay of {before}");
    }
    if kind != Kind::Spacing {
        assert_eq!(decided.limit(), oracle.capacity(), "limit of {before}");
        let left = [decided, limiter.at(now).peek_n(key, 0)].map(|decision| decision.remaining());
        assert_eq!(left, [oracle.remaining(at); 2], "remaining of {before}, and of a peek after it");
    }
    // The weighted count of the previous window may round down to zero before that window ends. Either time is right.
    let reset = request.wait(oracle.reset_after(at));
    assert!(
        decided.reset_after() == reset || kind == Kind::Sliding && decided.reset_after() > reset,
        "{before}: {decided:?} should reset after {reset:?}"
    );
}

/// The figures in a decision hold for later decisions of the same limiter: a cost is admitted after its wait, and not a
/// nanosecond earlier. The oracle only helps to choose times, which `within` keeps exact.
pub fn figures_are_tight(
    kind: Kind,
    spec: Spec,
    start: u64,
    ops: &[Op],
    limiter: &dyn Subject,
    within: impl Fn(u64) -> u64,
) {
    let full_after = u128::from(spec.burst) * u128::from(spec.period_ns) / u128::from(spec.limit);
    let keys = ops.iter().map(|op| op.key).max().unwrap_or_default();
    let mut oracles: Vec<_> = (0..=keys).map(|_| kind.oracle(spec)).collect();
    let mut now = start;
    for op in ops {
        let oracle = &mut *oracles[op.key as usize];
        now = within(op.step.apply(now, spec, oracle));
        let cost = op.cost.apply(now, oracle);
        oracle.offer(now, cost);
        let decision = limiter.at(now).check_n(op.key, cost);
        let peek = |cost, at| limiter.at(at).peek_n(op.key, cost);
        let after =
            |wait: Duration| now + u64::try_from(wait.as_nanos()).expect("a wait of centuries at most");
        match decision.retry_after() {
            None => assert!(decision.is_never()),
            // Timestamps end in 2554. A wait that ends near or after this time cannot be checked.
            Some(wait) if u128::from(now) + wait.as_nanos() + 2 * full_after > u128::from(u64::MAX) => {}
            Some(wait) if decision.is_denied() => {
                assert!(peek(cost, after(wait)).is_allowed(), "{op:?} at {now}: still denied after {wait:?}");
                assert!(peek(cost, after(wait) - 1).is_denied(), "{op:?} at {now}: admitted before {wait:?}");
            }
            Some(wait) => assert_eq!(wait, Duration::ZERO),
        }
        if kind != Kind::Spacing {
            let remaining = decision.remaining();
            assert!(peek(remaining, now).is_allowed(), "{op:?} at {now}: fewer than {remaining} remain");
            assert!(peek(remaining + 1, now).is_denied(), "{op:?} at {now}: more than {remaining} remain");
            let full = peek(0, after(decision.reset_after()));
            assert_eq!(full.remaining(), full.limit(), "{op:?} at {now}: {full:?} still owes");
            assert_eq!(full.reset_after(), Duration::ZERO, "{op:?} at {now}: {full:?} still owes");
        }
    }
}

/// Asserts that no interval that ends at the last of these admissions, each with its time and cost, holds more than the bound
/// of its length.
pub fn newest_is_within(admitted: &[(u64, u64)], most_in: impl Fn(u128) -> u128, what: impl Debug) {
    let (mut sum, newest) = (0, admitted.last().map_or(0, |&(newest, _)| newest));
    for &(from, cost) in admitted.iter().rev() {
        sum += u128::from(cost);
        let most = most_in(u128::from(newest - from));
        assert!(sum <= most, "{what:?}: {sum} units, above the bound of {most}, from {from} to {newest}");
    }
}

/// [`newest_is_within`] for every interval.
pub fn all_are_within(admitted: &[(u64, u64)], most_in: impl Fn(u128) -> u128, what: impl Debug) {
    (1..=admitted.len()).for_each(|end| newest_is_within(&admitted[..end], &most_in, &what));
}

/// An oracle that is charged with what a limiter admits. Its time is never before the newest admission.
#[derive(Debug)]
pub struct Exact {
    pub oracle: Box<dyn Oracle>,
    kind: Kind,
    admitted: Vec<(u64, u64)>,
}

impl Exact {
    pub fn new(kind: Kind, spec: Spec) -> Self {
        Self { oracle: kind.oracle(spec), kind, admitted: Vec::new() }
    }

    /// The newest admission.
    pub fn newest(&self) -> Option<u64> {
        self.admitted.last().map(|&(newest, _)| newest)
    }

    /// Notes an admission. No interval admits more than the bound of an interval that is longer by `more_ns`. Without
    /// `more_ns`, exact arithmetic admits the cost.
    pub fn admit(&mut self, now: u64, cost: u64, more_ns: u128) {
        let Self { oracle, kind, admitted } = self;
        let held = admitted.last().map_or(now, |&(newest, _)| now.max(newest));
        if more_ns == 0 {
            let expected = oracle.offer(held, cost);
            assert_eq!(expected, Verdict::Allowed, "{kind:?}: {cost} at {now} was admitted, {oracle:?}");
        } else {
            oracle.charge(now.into(), cost);
        }
        admitted.push((held, if *kind == Kind::Spacing { 1 } else { cost }));
        newest_is_within(admitted, |t| oracle.most_in(t + more_ns), kind);
    }
}
