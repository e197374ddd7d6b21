//! From the bytes of a body to what an operator wants.

use serde::Deserialize;
use tollgate_rules::OperatorAction;

use crate::duration;
use tollgate_report::descriptor::Entries;

/// The longest reason.
pub const LONGEST_WHY: usize = 1_000;

/// The most descriptors, and the most entries of each.
const MOST_DESCRIPTORS: usize = 64;
const MOST_ENTRIES: usize = 32;

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
pub struct ActionRequest {
    /// What.
    pub action: OperatorAction,
    /// The domain of the keys.
    pub domain: String,
    descriptors: Vec<Vec<(String, String)>>,
    /// The client's tier.
    pub tier: Option<String>,
    /// The only rule to change.
    pub rule: Option<String>,
    /// The reason. Only an inspection has none.
    pub why: Option<String>,
}

impl ActionRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// If it is no request for the operation of this name. The error says what is expected.
    pub fn read(name: &str, body: &[u8]) -> Result<Self, String> {
        let Body { domain, descriptors, tier, rule, why, units, length } =
            serde_json::from_slice(body).map_err(|error| format!("the body is no request: {error}"))?;
        let action = match (name, units, length) {
            ("inspect", None, None) => OperatorAction::Inspect,
            ("reset", None, None) => OperatorAction::Reset,
            ("unblock", None, None) => OperatorAction::Unblock,
            ("grant", Some(units), None) => OperatorAction::Grant(units),
            ("block", None, Some(length)) => OperatorAction::Block(duration::parse(&length)?),
            ("grant", ..) => return Err("grant needs units, and nothing more".to_owned()),
            ("block", ..) => return Err("block needs for, such as \"2h\", and nothing more".to_owned()),
            _ => return Err(format!("{name} has neither units nor for")),
        };
        let why = why.map(|why| why.trim().to_owned()).filter(|why| !why.is_empty());
        match &why {
            None if action != OperatorAction::Inspect => {
                return Err("why is missing: say why, for the log".to_owned());
            }
            Some(why) if why.len() > LONGEST_WHY => {
                return Err(format!("why has more than {LONGEST_WHY} bytes"));
            }
            _ => {}
        }
        if descriptors.iter().all(Vec::is_empty) {
            return Err("descriptors has no entry; expected [[[\"user\", \"alice\"]]]".to_owned());
        }
        if descriptors.len() > MOST_DESCRIPTORS || descriptors.iter().any(|one| one.len() > MOST_ENTRIES) {
            return Err(format!(
                "more than {MOST_DESCRIPTORS} descriptors, or {MOST_ENTRIES} entries in one"
            ));
        }
        Ok(Self { action, domain, descriptors, tier, rule, why })
    }

    /// Returns the entries of each descriptor.
    pub fn entries(&self) -> Vec<Entries<'_>> {
        let all = self.descriptors.iter();
        all.map(|one| one.iter().map(|(key, value)| (&**key, &**value)).collect()).collect()
    }
}
