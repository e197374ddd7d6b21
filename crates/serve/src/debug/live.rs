//! What an open page shows, and the parts of it that have changed.
//!
//! The page asks for events. An event is a JSON object of sections. It has only what changed since the event before: a
//! section, or a member of a section that is an object. A member that no longer exists is null.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tollgate::telemetry::{DeniedKey, MeterCounts};
use tollgate_redis::{BreakerState, ErrorKind, health_by_server};
use tollgate_rules::{Amount, Rule};

use super::super::answer::NearView;
use super::answer::{KEY, outage};
use crate::endpoint::Backend;
use tollgate_report::rule::limit_texts;
use tollgate_report::text::{printable, printable_lines};

/// The most rules that are shown. Those that denied most come first.
const ROWS: usize = 100;

/// The most keys that are shown.
const KEYS: usize = 20;

/// The longest text about the last load, in characters.
const ERROR: usize = 2_000;

/// The shortest time between two events.
const SECOND: Duration = Duration::from_secs(1);

/// After an event, a page waits for this many times the processor time that the thread of all pages has used since the page's
/// previous event. So all pages together use a hundredth of a core, however many rules and bytes they show.
const REST: u32 = 99;

/// How long a page stays open if its script does not confirm that it reads. The system takes bytes for minutes for a client that
/// reads nothing, so only the client itself knows.
const SILENT: Duration = Duration::from_secs(10);

type Sections = Map<String, Value>;

/// The time at which a page last confirmed that it reads.
type LastRead = Mutex<Instant>;

/// The pages that are open.
#[derive(Clone, Default)]
pub(super) struct Readers(Arc<Mutex<OpenPages>>);

#[derive(Default)]
struct OpenPages {
    last_number: u64,
    pages: Vec<(u64, Weak<LastRead>)>,
}

impl Readers {
    /// Adds a page. Returns its number.
    fn add(&self, read: &Arc<LastRead>) -> u64 {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.pages.retain(|(_, page)| page.strong_count() > 0);
        open.last_number += 1;
        let number = open.last_number;
        open.pages.push((number, Arc::downgrade(read)));
        number
    }

    /// Notes that a page reads.
    pub(super) fn note(&self, number: u64) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = open.pages.iter().find(|(page, _)| *page == number);
        if let Some(page) = found.and_then(|(_, page)| page.upgrade()) {
            *page.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }
}

/// An open page.
pub struct Live {
    backend: Backend,
    filter: String,
    near: NearView,
    shown: Sections,
    /// The number with which the page's script confirms that it reads.
    number: u64,
    read: Arc<LastRead>,
    next: Instant,
    /// The processor time of the thread when the last event began.
    began: Option<Duration>,
    _place: OwnedSemaphorePermit,
}

impl Live {
    /// Opens a page with the rules whose name or identity contains a text.
    pub(super) fn new(
        backend: Backend,
        filter: String,
        readers: &Readers,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let (near, now) = (backend.answerer.near(), Instant::now());
        let read = Arc::new(Mutex::new(now));
        let number = readers.add(&read);
        Self {
            backend,
            filter,
            near,
            shown: Sections::new(),
            number,
            read,
            next: now,
            began: None,
            _place: place,
        }
    }

    /// Returns the next event, when it is time. The first has all. Returns `None` if the page does not read.
    pub(super) async fn next(&mut self) -> Option<String> {
        if !reads_until(self.next, &self.read).await {
            return None;
        }
        let began = processor_time();
        let now = view(&self.backend, &self.near, &self.filter);
        let mut event = changes(&self.shown, &now);
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        event.insert("at".to_owned(), json!(u64::try_from(ms).unwrap_or(u64::MAX)));
        if self.shown.is_empty() {
            event.insert("page".to_owned(), json!(self.number));
        }
        self.shown = now;
        let event = Value::Object(event).to_string();
        let ended = processor_time();
        // The pages that were just opened have taken nothing yet.
        let open = u32::try_from(self.near.views()).unwrap_or(u32::MAX);
        let own = ended.saturating_sub(began).saturating_mul(open);
        let all = self.began.map_or(Duration::ZERO, |before| ended.saturating_sub(before));
        self.began = Some(began);
        self.next = Instant::now() + SECOND.max(own.max(all).saturating_mul(REST));
        Some(event)
    }
}

/// Waits for the time of the next event. Returns early, and false, if the page has not told for too long that it reads.
async fn reads_until(next: Instant, read: &LastRead) -> bool {
    loop {
        let silent = *read.lock().unwrap_or_else(PoisonError::into_inner) + SILENT;
        if next <= silent {
            sleep_until(next).await;
            return true;
        }
        sleep_until(silent).await;
        if *read.lock().unwrap_or_else(PoisonError::into_inner) + SILENT <= silent {
            return false;
        }
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Returns the sections and members that differ.
pub fn changes(before: &Sections, now: &Sections) -> Sections {
    let mut changed = Sections::new();
    for (name, value) in now {
        match (before.get(name), value) {
            (Some(before), _) if before == value => {}
            (Some(Value::Object(before)), Value::Object(now)) => {
                let mut members: Sections =
                    now.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(owned).collect();
                let gone = before.keys().filter(|name| !now.contains_key(*name));
                members.extend(gone.map(|name| (name.clone(), Value::Null)));
                changed.insert(name.clone(), members.into());
            }
            _ => drop(changed.insert(name.clone(), value.clone())),
        }
    }
    changed
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// Returns all sections.
fn view(backend: &Backend, near: &NearView, filter: &str) -> Sections {
    let mut rows = Busiest::default();
    let mut at = 0;
    let mut has_holds = false;
    backend.rules.for_each(|domain, rule, counts| {
        has_holds |= rule.hold.is_some() || matches!(rule.limit, Amount::InProgress { .. });
        if contains(&rule.name, filter) || contains(&rule.identity, filter) {
            rows.add(at, counts, || row(backend, domain, rule));
        }
        at += 1;
    });
    let [rules, figures, order] = rows.sections();
    let denied = backend.rules.top_denied(KEYS).iter().map(key).collect::<Vec<_>>();
    let near_keys = near.top(KEYS).iter().map(key).collect::<Vec<_>>();
    let sections = json!({
        "state": whole(backend, has_holds),
        "rules": rules,
        "figures": figures,
        "order": order,
        "denied": denied,
        "near": near_keys,
        "servers": servers(backend),
    });
    match sections {
        Value::Object(sections) => sections,
        _ => Sections::new(),
    }
}

/// What is true of the process.
fn whole(backend: &Backend, has_holds: bool) -> Value {
    let (loads, answers) = (backend.rules.reloads(), backend.answerer.meters().read());
    let error = backend.rules.last_error().map(|error| error.to_string());
    let last = loads.last_success.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "serving": backend.health.is_serving(),
        "rules": loads.rules,
        "loads": loads.successes,
        "failed_loads": loads.errors,
        "last_load": last.map(|time| time.as_secs()),
        "last_error": error.map(|error| cut_lines(&error)),
        "redis_problem": outage(backend),
        "requests": answers.entries.iter().sum::<u64>(),
        "over_limit": answers.over_limit,
        "shadow_denied": answers.shadow_denied,
        // The first code is OK.
        "errors": answers.codes.iter().skip(1).sum::<u64>(),
        "late": answers.late,
        "in_flight": answers.in_flight,
        "unknown_domains": loads.unknown_domains,
        "holds": has_holds.then(|| backend.rules.holds()),
    })
}

/// Cuts an error, and keeps its lines.
fn cut_lines(error: &str) -> String {
    printable_lines(&error.chars().take(ERROR).collect::<String>())
}

/// Whether a text contains a part, in letters of either case. Every text contains an empty part.
fn contains(text: &str, part: &str) -> bool {
    part.is_empty()
        || text.as_bytes().windows(part.len()).any(|one| one.eq_ignore_ascii_case(part.as_bytes()))
}

/// The order of rules: by denials, then by requests, then by the position among all rules.
type Rank = (u64, u64, Reverse<usize>);

/// The rules to show.
#[derive(Default)]
struct Busiest {
    /// The figures, and what the rules say.
    shown: BTreeMap<Rank, ([u64; 6], Value)>,
    /// How many rules the filter found.
    found: usize,
}

impl Busiest {
    /// Adds a rule if it is one of the first.
    fn add(&mut self, at: usize, counts: MeterCounts, rule: impl FnOnce() -> Value) {
        self.found += 1;
        let denied = counts.denied.saturating_add(counts.error_closed);
        let requests = counts.requests();
        let rank = (denied, requests, Reverse(at));
        if self.shown.len() == ROWS {
            if self.shown.first_key_value().is_some_and(|(least, _)| *least > rank) {
                return;
            }
            self.shown.pop_first();
        }
        let MeterCounts { shadow_denied, near_limit, over_limit, hits, .. } = counts;
        let figures = [requests, denied, shadow_denied, near_limit, over_limit, hits];
        self.shown.insert(rank, (figures, rule()));
    }

    /// Returns the rules, their figures, and the order and number.
    fn sections(self) -> [Value; 3] {
        let (mut rules, mut all, mut order) = (Sections::new(), Sections::new(), Vec::new());
        for ((_, _, Reverse(at)), (figures, rule)) in self.shown.into_iter().rev() {
            rules.insert(at.to_string(), rule);
            all.insert(at.to_string(), json!(figures));
            order.push(at);
        }
        [rules.into(), all.into(), json!({ "shown": order, "found": self.found })]
    }
}

/// What a rule says.
fn row(backend: &Backend, domain: &str, rule: &Rule) -> Value {
    let [limit, algorithm, store] = limit_texts(rule);
    let cut = |text: &str| printable(text.as_bytes(), KEY);
    let file = backend.rules.file_of(domain, &rule.identity).unwrap_or_default();
    let how =
        [&*algorithm, &*store].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    let mode = match rule {
        Rule { shadow: true, .. } => "shadow_mode",
        Rule { quota_mode: true, .. } => "quota_mode",
        Rule { enforced_per_million: ..1_000_000, .. } => "enforced for some keys",
        _ => "",
    };
    json!([
        cut(&rule.name),
        cut(&rule.identity),
        cut(&limit),
        cut(&how),
        mode,
        cut(&format!("{file}:{}", rule.line)),
        cut(domain),
    ])
}

fn key(entry: &DeniedKey) -> Value {
    let [rule, key] = [&entry.rule, &entry.key].map(|text| printable(text.as_bytes(), KEY));
    json!([rule, key, entry.count])
}

/// The health of each server of shared rules.
fn servers(backend: &Backend) -> Value {
    let servers = health_by_server(&backend.rules).into_iter().map(|(name, health)| {
        // Errors that no pause mends leave the breaker closed, and so do the first ones.
        let breaker = match health.breaker {
            BreakerState::Closed if health.asked == 0 => "closed: no call yet",
            BreakerState::Closed if health.answered == 0 && health.failed() > 0 => {
                "closed: every call failed"
            }
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half-open",
            _ => "open",
        };
        let errors: Vec<(&str, u64)> = ErrorKind::ALL
            .into_iter()
            .map(|kind| (kind.as_str(), health.errors(kind)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let without = health.open.saturating_add(health.closed).saturating_add(health.local);
        let figures = json!([
            breaker,
            health.asked,
            health.answered,
            health.failed(),
            errors,
            health.opened,
            without,
            health.evicts
        ]);
        (printable(name.as_bytes(), KEY), figures)
    });
    Value::Object(servers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that reads nothing kept its place for minutes, because the system took the bytes for it.
    // G147
    #[tokio::test(start_paused = true)]
    async fn page_that_does_not_tell_that_it_reads_is_closed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (readers, read) = (Readers::default(), Arc::new(Mutex::new(start)));
        let page = readers.add(&read);
        assert!(reads_until(at(9), &read).await, "it has ten seconds");
        readers.note(page);
        assert!(reads_until(at(18), &read).await);
        readers.note(page + 1);
        assert!(!reads_until(at(60), &read).await, "another page does not tell for it");
        assert_eq!(Instant::now(), at(19), "ten seconds after it told");
        drop(read);
        readers.note(page);
    }
}
