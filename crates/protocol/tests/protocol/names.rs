//! The names of states in Redis, and the bytes of keys.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tollgate::{MinimumSpacing, Quota, SlidingLog, SubWindow, TokenBucket};
use tollgate_protocol::{Key, head, tagged};

use super::*;

/// The name of the state of each limit. Keys are of the limiter `name`, under a prefix.
fn names(prefix: &str, name: &str, limits: &[Limit], key: &[u8]) -> Vec<String> {
    let tag = String::from_utf8(tagged(&head(prefix, name), key)).unwrap();
    plan(limits).parts().iter().map(|part| format!("{tag}:{}", part.name())).collect()
}

fn text(key: impl AsRef<[u8]>) -> String {
    let [name] = &names("tollgate", "api", &[Limit::gcra(Quota::per_day(5))], key.as_ref())[..] else {
        panic!("one limit has one name");
    };
    name.strip_suffix(":g0").unwrap().to_owned()
}

#[test]
fn keys_are_readable_and_distinct() {
    for (key, expected) in [
        ("192.0.2.1", "tollgate:v1:{api|192.0.2.1}"),
        ("", "tollgate:v1:{api|}"),
        ("a}b{c|d%e", "tollgate:v1:{api|a%7db%7bc%7cd%25e}"),
        ("é", "tollgate:v1:{api|%c3%a9}"),
    ] {
        assert_eq!(text(key), expected);
    }
    assert_ne!(text("%7d"), text("}"));
    assert_eq!(names("my app", "a|b", &[Limit::gcra(Quota::per_day(5))], b"c"), ["my%20app:v1:{a%7cb|c}:g0"]);
}

#[test]
fn long_keys_are_hashed() {
    let (long, other) = (vec![b'x'; 97], vec![b'x'; 98]);
    assert_eq!(text(&long).len(), "tollgate:v1:{api|#}".len() + 32);
    assert_ne!(text(&long), text(&other));
    assert_eq!(text(&long), text(&long));
    assert!(text([b'x'; 96]).ends_with("xx}"));
    assert!(text([0xff; 40]).contains("|#"), "40 bytes become 120 when they are escaped");
}

#[test]
fn tag_has_one_pair_of_braces() {
    for key in [&b"{"[..], b"}", b"{}", b"", &[0, 255, b'{'], b"#1"] {
        let text = text(key);
        assert_eq!((text.matches('{').count(), text.matches('}').count()), (1, 1), "{text}");
    }
    assert!(text(b"#1").contains("%23"), "a key cannot look like a hash");
}

#[test]
fn state_name_contains_kind_index_and_period() {
    let name = |limits: &[Limit]| {
        let name = names("tollgate", "api", limits, b"k").pop().unwrap();
        name.strip_prefix("tollgate:v1:{api|k}:").unwrap().to_owned()
    };
    for (us, text) in [
        (1, "1us"),
        (1_500, "1500us"),
        (1_000, "1ms"),
        (1_000_000, "1s"),
        (61_000_000, "61s"),
        (60_000_000, "1m"),
        (5_400_000_000, "90m"),
        (7_200_000_000, "2h"),
        (7 * 86_400_000_000, "7d"),
    ] {
        for limit in [1, 100] {
            let quota = Quota::new(limit, Duration::from_micros(us));
            assert_eq!(name(&[Limit::fixed_window(quota)]), format!("f0:{text}"));
            assert_eq!(name(&[Limit::sliding_window(quota)]), format!("s0:{text}"));
            assert_eq!(name(&[Limit::sliding_window(quota).strict()]), format!("s0:{text}"));
        }
    }
    let hour = Quota::per_hour(60);
    let limits: [(Limit, &str); 5] = [
        (Limit::gcra(hour), "g1"),
        (SlidingLog::new(hour).into(), "l1:1h"),
        (SubWindow::new(hour, 60).into(), "p1:1h/60"),
        (MinimumSpacing::new(Duration::from_secs(1)).into(), "m1"),
        (TokenBucket::aligned(hour, Timestamp::from_secs(60)).into(), "a1:1h+1m"),
    ];
    for (limit, expected) in limits {
        assert_eq!(name(&[Limit::gcra(hour), limit]), expected);
    }
}

#[test]
fn single_plan_keeps_its_index() {
    let plan = plan(&[Limit::gcra(Quota::per_second(5)), Limit::fixed_window(Quota::per_day(3))]);
    assert_eq!((plan.most(), plan.refill_us()), (3, 86_400_000_000));
    let single = plan.single(1).unwrap();
    assert_eq!(single.parts()[0].name(), "f1:1d");
    assert!(plan.single(2).is_none());
}

/// The bytes of a key are the same on the stack and in an allocation, and by reference. So is its number, if it has one.
fn assert_alike<K: Key>(key: K) {
    key.with_bytes(|bytes| assert_eq!(bytes, &*key.bytes()));
    <&K as Key>::with_bytes(&&key, |bytes| assert_eq!(bytes, &*key.bytes()));
    assert_eq!(<&K as Key>::number(&&key), key.number());
}

#[test]
fn key_has_one_text() {
    fn number<K: Key>(key: K) {
        assert_eq!(key.number().unwrap().to_string().as_bytes(), &*key.bytes());
        assert_alike(key);
    }
    number(0_u16);
    number(u16::MAX);
    number(0_u32);
    number(u64::MAX);
    number(u128::MAX);
    number(-1_i32);
    number(i32::MIN);
    number(i64::MIN);
    number(i64::MAX);
    number(Ipv4Addr::new(192, 0, 2, 1));
    number(Ipv6Addr::from(u128::MAX));
    number(Ipv6Addr::from(0xffff_ffff));
    number(IpAddr::from(Ipv4Addr::BROADCAST));
    number(IpAddr::from(Ipv4Addr::BROADCAST.to_ipv6_mapped()));
    assert_alike("text");
    assert_alike(());
    assert_eq!(7_u16.number(), 7_i64.number(), "equal texts give equal numbers");
    assert_ne!(Ipv4Addr::from(7).number(), 7_u32.number());
    assert_ne!(Ipv6Addr::from(7).number(), 7_u32.number());
    assert_ne!((-1_i64).number(), u64::MAX.number());
    assert_eq!("7".number(), None);
}

#[test]
fn pairs_have_distinct_bytes() {
    let pair = |one: &'static str, other: &'static str| (one, other).bytes().into_owned();
    assert_eq!(pair("GET", "/a"), b"3:GET/a");
    assert_ne!(pair("ab", "c"), pair("a", "bc"));
    assert_ne!(pair("1:a", ""), pair("", "1:a"));
    assert_eq!((("a", "b"), 7_u32).bytes(), Cow::Borrowed(b"4:1:ab7"));
}
