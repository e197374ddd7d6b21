//! Matches random requests with a random tree of rules. The result must equal that of a walk that follows the
//! specification, and an explanation must list it.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use tollgate_rules::{Config, Descriptor, Domain, Rules};
use tollgate_testing::naive::{Entry, find, valid_entries, yaml};

/// The texts have few letters, so that many of them are equal.
fn text(bytes: &mut Unstructured<'_>, letters: &[char]) -> Result<String> {
    (0..bytes.int_in_range(0..=7)?).map(|_| bytes.choose(letters).copied()).collect()
}

const LETTERS: [char; 5] = ['a', 'b', 'é', '*', '\''];

fn entries(bytes: &mut Unstructured<'_>, depth: u32) -> Result<Vec<Entry>> {
    let count = bytes.int_in_range(0..=if depth == 0 { 40 } else { 5 })?;
    (0..count)
        .map(|_| {
            let value = if bytes.ratio(4, 5)? { Some(text(bytes, &LETTERS)?) } else { None };
            let tiers = (0..bytes.int_in_range(0_u32..=6)?.saturating_sub(4))
                .map(|_| {
                    Ok((text(bytes, &['t', 'u'])?, vec![text(bytes, &LETTERS)?, text(bytes, &LETTERS)?]))
                })
                .collect::<Result<_>>()?;
            Ok(Entry {
                key: text(bytes, &['k', 'k', 'l', '*'])?.chars().take(2).collect(),
                value,
                is_limited: bool::arbitrary(bytes)?,
                tiers,
                children: if depth < 3 && bytes.ratio(1, 4)? {
                    entries(bytes, depth + 1)?
                } else {
                    Vec::new()
                },
            })
        })
        .collect()
}

#[derive(Debug)]
struct Case {
    entries: Vec<Entry>,
    requests: Vec<(Vec<(String, String)>, Option<String>)>,
}

impl Arbitrary<'_> for Case {
    fn arbitrary(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let entries = valid_entries(entries(bytes, 0)?);
        let mut requests = Vec::new();
        while !bytes.is_empty() && requests.len() < 64 {
            let steps = (0..bytes.int_in_range(1..=4)?)
                .map(|_| {
                    Ok((text(bytes, &['k', 'k', 'l'])?.chars().take(2).collect(), text(bytes, &LETTERS)?))
                })
                .collect::<Result<_>>()?;
            let tier = if bool::arbitrary(bytes)? { Some(text(bytes, &['t', 'u'])?) } else { None };
            requests.push((steps, tier));
        }
        Ok(Self { entries, requests })
    }
}

// G66
fuzz_target!(|case: Case| {
    let text = yaml(&case.entries);
    let config = Config::from_yaml("fuzz", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let rules = Rules::builder().load([config.clone()]).expect("the rules need no server");
    let domain = Domain::merge([config], false).expect("one file cannot clash with itself").remove(0);
    for (request, tier) in &case.requests {
        let request: Vec<(&str, &str)> = request.iter().map(|(key, value)| (&**key, &**value)).collect();
        let found = domain.matching(&request, tier.as_deref());
        let name = found.first().map(|rule| rule.name.to_string());
        assert_eq!(name, find(&case.entries, &request, tier.as_deref()), "{request:?} {tier:?}\n{text}");
        assert!(found.len() <= 1);
        let descriptor = Descriptor::new(&request);
        let descriptor = tier.as_deref().map_or(descriptor, |tier| descriptor.tier(tier));
        let explanation = rules.explain("d", &[descriptor], 1);
        let applies = explanation.rules().find(|one| one.reason().applies());
        assert_eq!(applies.map(|one| &*one.rule().name), found.first().map(|rule| &*rule.name), "{text}");
        assert!(explanation.rules().count() + explanation.others() == domain.rules().len(), "{text}");
    }
});
