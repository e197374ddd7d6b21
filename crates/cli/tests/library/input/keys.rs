//! Numbers of keys.

use tollgate_cli::input::keys::Keys;

#[test]
fn equal_keys_share_a_number() {
    let mut keys = Keys::default();
    let ids: Vec<_> = [&b"a"[..], b"b", b"a", b"\xff"].iter().map(|key| keys.intern(key)).collect();
    assert_eq!(ids, [Some(0), Some(1), Some(0), Some(2)]);
    assert_eq!((keys.len(), keys.name(2)), (3, "\\xff".to_owned()));
}
