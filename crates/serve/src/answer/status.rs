//! The status of one descriptor.

use std::time::Duration;

use tollgate_redis::DecidedBy;
use tollgate_rules::{Amount, Answer, Applied, TimeUnit as Period};

use super::super::proto::{Code, DescriptorStatus, RateLimit, Unit};

/// Returns the status of the descriptor with this index.
pub(super) fn of(answer: &Answer, index: usize) -> DescriptorStatus {
    let mut limit = answer.strictest(index);
    let is_over = limit.is_some_and(|limit| limit.is_over_limit());
    // A gateway writes the figures into header fields.
    if limit.is_some_and(|limit| !limit.rule().headers) {
        limit = answer.strictest_shown(index);
    }
    let mut message = DescriptorStatus {
        code: if is_over { Code::OverLimit } else { Code::Ok } as i32,
        limit_remaining: limit.map_or(0, |limit| limit.limit_remaining()),
        ..DescriptorStatus::default()
    };
    let is_decided =
        |limit: &Applied<'_>| !matches!(limit.decided_by(), Some(DecidedBy::Open | DecidedBy::Closed));
    // Without the server, the figures have no meaning. The window of a closed rule may end long after the server is back.
    if let Some(limit) = limit.filter(is_decided)
        && let Some(left) = limit.reset_after()
    {
        message.current_limit = Some(current_limit(&limit));
        message.duration_until_reset = Some(prost_types::Duration { seconds: seconds(left), nanos: 0 });
    }
    message
}

/// Returns the limit of a rule, as the protocol describes limits: a number of requests for each unit of time.
fn current_limit(limit: &Applied<'_>) -> RateLimit {
    let rule = limit.rule();
    let (requests, period) = match &rule.limit {
        // A class may have less in use than the limit.
        Amount::Limited { limit: own, .. } if rule.class.is_some() => {
            (limit.quota().min(own.quota().limit()), own.quota().period())
        }
        // With a burst, a fresh key may use more at once than the limit of the period.
        Amount::Limited { limit: own, .. } if !limit.is_of_request() => {
            (own.quota().limit(), own.quota().period())
        }
        _ => (limit.quota(), limit.window()),
    };
    RateLimit {
        requests_per_unit: u32::try_from(requests).unwrap_or(u32::MAX),
        unit: unit_of(period) as i32,
        // A name that the file does not set is a path, with values of other clients.
        name: if rule.is_named { rule.name.clone().into() } else { String::new() },
    }
}

/// Returns the unit with this period, or `UNKNOWN` for all other periods.
pub fn unit_of(period: Duration) -> Unit {
    match Period::of(period) {
        Some(Period::Second) => Unit::Second,
        Some(Period::Minute) => Unit::Minute,
        Some(Period::Hour) => Unit::Hour,
        Some(Period::Day) => Unit::Day,
        Some(Period::Week) => Unit::Week,
        Some(Period::Month) => Unit::Month,
        Some(Period::Year) => Unit::Year,
        None => Unit::Unknown,
    }
}

/// Returns whole seconds, rounded up, and at least 1: gateways cut fractions off.
fn seconds(left: Duration) -> i64 {
    let seconds = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0)).max(1);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
