//! Descriptors that are built piece by piece.

use std::net::IpAddr;

use tollgate_rules::Descriptors;

#[test]
fn address_equals_display() {
    let v4 = [[0, 0, 0, 0], [9, 10, 99, 100], [203, 0, 113, 7], [255, 255, 255, 255]].map(IpAddr::from);
    let v6 = ["::", "2001:db8::1:0", "::ffff:192.0.2.1"].map(|text| text.parse().expect("an address"));
    for address in v4.into_iter().chain(v6) {
        let mut descriptors = Descriptors::new();
        descriptors.begin().address("a", address);
        descriptors.with(|each| assert_eq!(each[0].entries(), [("a", &*address.to_string())]));
    }
}

#[test]
fn repeated_address_is_reused_for_same_key() {
    let [one, other] = ["192.0.2.1", "192.0.2.2"];
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let entries = [("a", one), ("a", one), ("b", one), ("b", other), ("b", one)];
    let mut descriptors = Descriptors::new();
    for (key, text) in entries {
        descriptors.begin().address(key, address(text));
    }
    descriptors.with(|each| {
        assert!(each.iter().map(|one| one.entries()).eq(entries.each_ref().map(std::slice::from_ref)));
    });
    descriptors.clear();
    descriptors.begin().address("a", address(one));
    descriptors.with(|each| assert_eq!(each[0].entries(), [("a", one)]));
}

#[test]
fn added_descriptors_are_returned() {
    let mut descriptors = Descriptors::new();
    assert!(descriptors.is_empty());
    descriptors.add([("a", "x")]);
    descriptors.add::<&str, &str>([]);
    descriptors.add([("b", 7), ("c", 8)]).hits(3);
    descriptors.tier("gold");
    assert_eq!(descriptors.len(), 3);
    descriptors.with(|each| {
        let entries: Vec<_> = each.iter().map(|one| one.entries().to_vec()).collect();
        assert_eq!(entries, [vec![("a", "x")], vec![], vec![("b", "7"), ("c", "8")]]);
        let hits = each.iter().map(|one| format!("{one:?}").contains("hits: Some(3)"));
        assert!(hits.eq([false, false, true]));
        assert!(each.iter().all(|one| format!("{one:?}").contains("tier: Some(\"gold\")")));
    });
    descriptors.clear();
    descriptors.with(|each| assert!(each.is_empty()));
}
