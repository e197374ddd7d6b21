//! The two sample files, and the rules that Envoy's service finds in them.

use tollgate_config::{Amount, Domain, Rule};

use super::support::domain;
use super::texts::{EDGE, FILES};

type Entries<'a> = &'a [(&'a str, &'a str)];
/// The request's entries, the expected limit with its period in seconds, and the metric's name.
type Row<'a> = (Entries<'a>, Option<(u64, u64)>, &'a str);

/// The limit of a rule, and its period in seconds.
fn limit(rule: &Rule) -> (u64, u64) {
    match &rule.limit {
        Amount::Unlimited => (u64::MAX, 0),
        Amount::Blocked { period } => (0, period.as_secs()),
        Amount::Limited { limit, .. } => {
            let quota = limit.quota();
            assert_eq!(quota.period().subsec_nanos(), 0);
            (quota.limit(), quota.period().as_secs())
        }
        other => panic!("{other:?}"),
    }
}

fn found(domain: &Domain, entries: &[(&str, &str)]) -> Option<(u64, u64)> {
    match domain.matching(entries, None) {
        [] => None,
        [rule] => Some(limit(rule)),
        rules => panic!("{rules:?}"),
    }
}

// G66
#[test]
fn first_envoy_sample_matches() {
    let edge = domain(EDGE);
    assert_eq!(edge.name(), "edge");
    let ra = "remote_address";
    let rows: [(Entries<'_>, Option<(u64, u64)>); 10] = [
        (&[(ra, "192.0.2.1")], Some((10, 1))),
        (&[(ra, "203.0.113.7")], Some((0, 1))),
        (&[(ra, "198.51.100.20")], None),
        (&[("path", "/login"), (ra, "192.0.2.1")], Some((5, 60))),
        (&[("path", "/login"), (ra, "198.51.100.20")], Some((u64::MAX, 0))),
        (&[("path", "/login")], None),
        (&[("path", "/home")], Some((1000, 3600))),
        (&[("path", "/home"), (ra, "192.0.2.1")], None),
        (&[(ra, "192.0.2.1"), ("path", "/login")], None),
        (&[("remote_Address", "192.0.2.1")], None),
    ];
    for (entries, limit) in rows {
        assert_eq!(found(&edge, entries), limit, "{entries:?}");
    }
    assert_eq!(found(&edge, &[]), None);
}

#[test]
fn values_count_separately_unless_shared() {
    let edge = domain(EDGE);
    let counted = |domain: &Domain, entries: &[(&str, &str)]| domain.matching(entries, None)[0].counted_by;
    assert_eq!(counted(&edge, &[("remote_address", "192.0.2.1")]), 0b1);
    assert_eq!(counted(&edge, &[("remote_address", "203.0.113.7")]), 0b0);
    assert_eq!(counted(&edge, &[("path", "/login"), ("remote_address", "192.0.2.1")]), 0b10);
    let files = domain(FILES);
    assert_eq!(counted(&files, &[("path", "/v1/a")]), 0b0);
    assert_eq!(counted(&files, &[("path", "/v2/export/a")]), 0b1);
    assert_eq!(counted(&files, &[("tenant", "acme"), ("method", "GET")]), 0b11);
    assert_eq!(counted(&files, &[("tenant", "acme"), ("method", "DELETE")]), 0b01);
}

#[test]
fn second_envoy_sample_matches() {
    let files = domain(FILES);
    let rows: [Row<'_>; 11] = [
        (&[("path", "/v1/public")], Some((100, 60)), "files.path_/v1/public"),
        (&[("path", "/v1/a")], Some((20, 60)), "files.path_/v1/*"),
        (&[("path", "/v1/admin/x")], Some((20, 60)), "files.path_/v1/*"),
        (&[("path", "/v1/")], Some((20, 60)), "files.path_/v1/*"),
        (&[("path", "/v1")], None, ""),
        (&[("path", "/v2/export/a")], Some((3, 3600)), "files.path_/v2/export/a"),
        (&[("path", "/v2/export/b")], Some((3, 3600)), "files.path_/v2/export/b"),
        (&[("path", "/export/a")], None, ""),
        (&[("tenant", "acme"), ("method", "GET")], Some((50, 1)), "files.tenant_acme.method"),
        (&[("tenant", "acme"), ("method", "DELETE")], Some((2, 60)), "files.tenant_acme.method_DELETE"),
        (&[("tenant", "acme")], None, ""),
    ];
    for (entries, limit, metric) in rows {
        assert_eq!(found(&files, entries), limit, "{entries:?}");
        if let [rule] = files.matching(entries, None) {
            assert_eq!(rule.metric_name(files.name(), entries), metric, "{entries:?}");
        }
    }
    let deletes = &files.matching(&[("tenant", "acme"), ("method", "DELETE")], None)[0];
    assert!(deletes.shadow && !deletes.quota_mode && !deletes.is_named);
    assert_eq!(&*deletes.name, "files.tenant.method_DELETE");
    assert_eq!(&*deletes.identity, "files|tenant|method=DELETE");
}

#[test]
fn unit_lengths_match_envoy() {
    for (unit, seconds) in [("second", 1), ("Minute", 60), ("HOUR", 3_600)] {
        let domain = domain(&EDGE.replace("HOUR", unit));
        assert_eq!(limit(&domain.rules()[4]), (1_000, seconds));
    }
    for (unit, days) in [("day", 1), ("week", 7), ("month", 30), ("year", 365)] {
        let domain = domain(&EDGE.replace("HOUR", unit));
        assert_eq!(limit(&domain.rules()[4]), (1_000, days * 86_400));
    }
}
