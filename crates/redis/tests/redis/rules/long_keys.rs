//! The keys of shared rules on the server: joined values, and values that are longer than a server or a table of this
//! process should hold.

use super::*;
use crate::{client, until};

// G107
#[test]
fn long_values_are_shared_as_hashes() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let long = "x".repeat(50_000);
    let longer = [&*long, "y"].concat();
    for mode in ["atomic", "lease", "write-back"] {
        let settings = format!("store: redis, mode: {mode}, charging: count-denials, timeout: 5s");
        let text = file(&settings, &[rule("a", &format!("requests_per_unit: 4, name: {mode}"))]);
        run(async {
            let [one, other] = [(); 2].map(|()| process(client(&server), &clock(), &text));
            assert_eq!(admitted(&one, &[("a", &long)], 3).await, 3, "{mode}");
            one.close().await;
            assert_eq!(admitted(&other, &[("a", &long)], 1).await, 1, "{mode}");
            // In the mode `write-back`, a process learns of other processes' units after its first post.
            until("no unit is left", async || {
                mode != "write-back" || ask_n(&other, &[("a", &long)], 0).await.remaining(0) == 0
            })
            .await;
            assert_eq!(admitted(&other, &[("a", &long)], 3).await, 0, "{mode}: the processes share a key");
            assert_eq!(admitted(&other, &[("a", &longer)], 4).await, 4, "{mode}: another key");
            other.close().await;
        });
        let keys: Vec<Vec<u8>> = server.command(&["KEYS", "*"]);
        let longest = keys.iter().map(Vec::len).max().unwrap_or_default();
        assert!((1..400).contains(&longest), "{mode}: {longest} bytes");
        server.command::<()>(&["FLUSHALL"]);
    }
}

/// Processes of different builds share a limit only if they use the same keys.
// G107
#[test]
fn keys_on_the_server_are_unambiguous() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let text = "
domain: d
tollgate: { store: redis, mode: atomic, timeout: 5s }
descriptors:
  - key: all
    value: x
    descriptors:
      - { key: b, rate_limit: { unit: hour, requests_per_unit: 9 } }
      - { key: b, value: fixed, rate_limit: { unit: hour, requests_per_unit: 9 } }
  - key: one
    descriptors: [ { key: b, descriptors: [ { key: c, rate_limit: { unit: hour, requests_per_unit: 9 } } ] } ]
  - { key: 'any*', rate_limit: { unit: hour, requests_per_unit: 9 } }
  - key: 'key*'
    share_threshold: true
    descriptors: [ { key: b, rate_limit: { unit: hour, requests_per_unit: 9 } } ]
";
    let rules = process(client(&server), &clock(), text);
    let (many, long) = ("x".repeat(257), "€".repeat(100));
    let nines = [9, 10, 42, 84].map(|length| "x".repeat(length));
    // The server has a hash of a stored key that is longer than 96 bytes.
    let hashed = |stored: &str| format!("#{}", &sha256(stored)[..32]);
    let shortened = |kept: &str, key: &str| hashed(&format!("{kept}\u{2026}{}", &sha256(key)[..32]));
    let mut cases: Vec<(Vec<(&str, &str)>, String)> = vec![
        (vec![("all", "x"), ("b", "fixed")], String::new()),
        (vec![("all", "x"), ("b", "y")], "y".to_owned()),
        (vec![("one", "x"), ("b", "y"), ("c", "")], "1:x1:y0:".to_owned()),
        (vec![("one", "x"), ("b", "1:y"), ("c", "z")], "1:x3:1:y1:z".to_owned()),
        (vec![("anyone", "x")], "6:anyone1:x".to_owned()),
        (vec![("keys", "x"), ("b", "y")], "4:keys1:b1:y".to_owned()),
        (vec![("all", "x"), ("b", &many[..256])], hashed(&many[..256])),
        (vec![("all", "x"), ("b", &many)], shortened(&many[..64], &many)),
        // The cut keeps whole characters.
        (vec![("all", "x"), ("b", &long)], shortened(&long[..63], &long)),
        (vec![("one", &many[..100]), ("b", ""), ("c", "z")], hashed(&format!("100:{}0:1:z", &many[..100]))),
    ];
    let stored = |text: &str| format!("{}:{text}0:1:z", text.len());
    cases.extend(nines.iter().map(|text| (vec![("one", &**text), ("b", ""), ("c", "z")], stored(text))));
    run(async {
        for (entries, stored) in &cases {
            assert!(rules.check_async("d", &[Descriptor::new(entries)]).await.is_allowed());
            let keys: Vec<String> = server.command(&["KEYS", "*"]);
            let [key] = &keys[..] else { panic!("{entries:?}: {keys:?}") };
            assert!(key.contains(&format!("|{stored}}}")), "{entries:?}: {stored} is not in {key}");
            server.command::<()>(&["FLUSHALL"]);
        }
    });
}
