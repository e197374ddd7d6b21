//! From the bytes of a body to what an operator wants.

use serde::Deserialize;
use tollgate::rules::{Descriptor, Verb};

use crate::serve::duration;

/// The names of the verbs, in the order of their counts.
pub const VERBS: [&str; 5] = ["inspect", "reset", "grant", "block", "unblock"];

/// The longest reason.
const LONGEST_WHY: usize = 1_000;

/// The body of a request.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Body {
    domain: String,
    descriptors: Vec<Vec<(String, String)>>,
    tier: Option<String>,
    rule: Option<String>,
    why: Option<String>,
    units: Option<u64>,
    #[serde(rename = "for")]
    length: Option<String>,
}

/// What an operator wants, for which keys, and why.
#[derive(Debug)]
pub struct Act {
    /// What.
    pub verb: Verb,
    /// The domain of the keys.
    pub domain: String,
    descriptors: Vec<Vec<(String, String)>>,
    tier: Option<String>,
    /// The only rule to act on.
    pub rule: Option<String>,
    /// The reason. Only an inspection has none.
    pub why: Option<String>,
}

/// The texts of a descriptor, borrowed.
pub type Entries<'a> = Vec<(&'a str, &'a str)>;

impl Act {
    /// Reads a body.
    ///
    /// # Errors
    /// If it is no request for this verb. The error says what is expected.
    pub fn read(verb: &str, body: &[u8]) -> Result<Self, String> {
        let Body { domain, descriptors, tier, rule, why, units, length } =
            serde_json::from_slice(body).map_err(|error| format!("the body is no request: {error}"))?;
        let wanted = match (verb, units, length) {
            ("inspect", None, None) => Verb::Inspect,
            ("reset", None, None) => Verb::Reset,
            ("unblock", None, None) => Verb::Unblock,
            ("grant", Some(units), None) => Verb::Grant(units),
            ("block", None, Some(length)) => Verb::Block(duration::parse(&length)?),
            ("grant", ..) => return Err("grant needs units, and nothing more".to_owned()),
            ("block", ..) => return Err("block needs for, such as \"2h\", and nothing more".to_owned()),
            _ => return Err(format!("{verb} has neither units nor for")),
        };
        let why = why.map(|why| why.trim().to_owned()).filter(|why| !why.is_empty());
        match &why {
            None if wanted.changes() => return Err("why is missing: say why, for the log".to_owned()),
            Some(why) if why.len() > LONGEST_WHY => {
                return Err(format!("why has more than {LONGEST_WHY} bytes"));
            }
            _ => {}
        }
        if descriptors.iter().all(Vec::is_empty) {
            return Err("descriptors has no entry; expected [[[\"user\", \"alice\"]]]".to_owned());
        }
        Ok(Self { verb: wanted, domain, descriptors, tier, rule, why })
    }

    /// Returns the entries of each descriptor.
    pub fn entries(&self) -> Vec<Entries<'_>> {
        let all = self.descriptors.iter();
        all.map(|one| one.iter().map(|(key, value)| (&**key, &**value)).collect()).collect()
    }

    /// Returns the descriptors of these entries.
    pub fn descriptors<'a>(&'a self, entries: &'a [Entries<'a>]) -> Vec<Descriptor<'a>> {
        let one = |entries: &'a Entries<'a>| {
            let descriptor = Descriptor::new(entries);
            self.tier.as_deref().map_or(descriptor, |tier| descriptor.tier(tier))
        };
        entries.iter().map(one).collect()
    }
}
