//! The list of most-denied keys: it has bounded memory, shortens long keys, and hashes keys on request.

use tollgate::telemetry::TopDenied;

#[test]
fn keys_are_ranked_by_rule() {
    let denied = TopDenied::try_new(50, 1).expect("there is enough memory");
    for request in 0..600 {
        denied.record("per-ip", "203.0.113.7");
        if request % 2 == 0 {
            denied.record("per-user", "203.0.113.7");
        }
        if request % 3 == 0 {
            denied.record("per-ip", "198.51.100.1");
        }
    }
    let top = denied.top(10);
    let ranked: Vec<_> =
        top.iter().map(|entry| (entry.rule.as_str(), entry.key.as_str(), entry.count)).collect();
    assert_eq!(
        ranked,
        [("per-ip", "203.0.113.7", 600), ("per-user", "203.0.113.7", 300), ("per-ip", "198.51.100.1", 200)]
    );
    denied.clear();
    assert!(denied.top(10).is_empty());
}

/// A flood of keys that occur once does not displace a heavy key, and the error bound of the heavy key's count is
/// correct.
// G73
#[test]
fn heavy_keys_survive_key_flood() {
    let denied = TopDenied::try_new(20, 1).expect("there is enough memory");
    for flood in 0..5_000 {
        denied.record("r", &format!("once-{flood}"));
        if flood % 4 == 0 {
            denied.record("r", "heavy");
        }
    }
    let top = denied.top(1_000);
    assert!(top.len() <= 20);
    assert_eq!(top[0].key, "heavy");
    assert!(top[0].count >= 1_250 && top[0].count - top[0].error <= 1_250, "{top:?}");
}

#[test]
fn keys_are_truncated_to_256_bytes() {
    let denied = TopDenied::try_new(20, 1).expect("there is enough memory");
    let long = format!("{}é", "x".repeat(255));
    denied.record(&"r".repeat(100), &long);
    let top = denied.top(1);
    assert_eq!((top[0].key.as_str(), top[0].rule.len()), (&long[..255], 64));
    denied.record("r", &"y".repeat(256));
    assert!(denied.top(2).iter().any(|entry| entry.key == "y".repeat(256)));
}

#[test]
fn hashed_keys_are_not_kept() {
    let denied = TopDenied::try_new(20, 1)
        .expect("there is enough memory")
        .hashed(b"a secret of sixteen bytes or more");
    denied.record("r", "203.0.113.7");
    denied.record("r", "203.0.113.7");
    denied.record("r", "198.51.100.1");
    let top = denied.top(3);
    assert_eq!((top.len(), top[0].count), (2, 2));
    for (entry, key) in top.iter().zip(["203.0.113.7", "198.51.100.1"]) {
        assert_eq!(entry.key, denied.shown(key));
        assert!(entry.key.len() == 16 && entry.key.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    let other = TopDenied::try_new(20, 1).expect("there is enough memory").hashed(b"another");
    assert_ne!(other.shown("203.0.113.7"), denied.shown("203.0.113.7"));
    assert!(!format!("{denied:?}").contains("secret of"));
}

#[test]
fn sampled_counts_are_scaled() {
    let denied = TopDenied::try_new(20, 16).expect("there is enough memory");
    for _ in 0..100_000 {
        denied.record("r", "k");
    }
    let count = denied.top(1)[0].count;
    // The range is five standard deviations of √(100,000 × 15) to each side.
    assert!((93_800..=106_200).contains(&count), "{count}");
}
