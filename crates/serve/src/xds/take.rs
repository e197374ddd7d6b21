//! From a message of the control plane to rules in force, and to the answer of the message.
//!
//! | the message has | answer |
//! |---|---|
//! | rules that can be used, and they are in force now | ACK: its version and its nonce |
//! | rules with a problem, another type, resources that the control plane could not make | NACK: the last good version, its nonce, and the reason |
//!
//! The messages become a text in the language of files, so a control plane has the checks, names and identities of
//! files. The text does not depend on the order of the resources, which go-control-plane sends in any order.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use prost::Message as _;
use serde::Serialize;
use tollgate_rules::{Fetched, Followed, Format, Pushed, RuleText, RulesError, Version};

use crate::proto::{DiscoveryRequest, DiscoveryResponse, RateLimitConfig, Status};

/// The type of the resources, which is the end of its URL.
const TYPE: &str = "ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The URL of the type.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// `google.rpc.Code.INVALID_ARGUMENT`.
const INVALID_ARGUMENT: i32 = 3;

/// The longest reason in an answer, and the longest version in a message, in characters.
const MOST_TOLD: (usize, usize) = (4_000, 100);

/// Puts the rules of messages in force.
pub struct Taker {
    /// The rules in force.
    pub pushed: Pushed,
    /// Whether the rules are counted on the Redis server.
    is_shared: bool,
    /// The last version that was put in force, on this stream or an earlier one.
    good: String,
    /// The last set, if it was refused, with the reason.
    refused: Option<(Version, String)>,
}

/// What became of a message.
#[derive(Debug)]
pub struct Taken {
    /// The answer to the control plane.
    pub answer: DiscoveryRequest,
    /// What the log must know: a load, or a new reason why there was none.
    pub loaded: Option<Result<Followed, RulesError>>,
    /// Whether the set before was refused, too. The answer must then wait: servers send a refused set again at once, and
    /// some give it another version.
    pub is_again: bool,
}

impl Taker {
    /// Creates what puts rules in force. `is_shared`: whether they are counted on the Redis server.
    pub const fn new(pushed: Pushed, is_shared: bool) -> Self {
        Self { pushed, is_shared, good: String::new(), refused: None }
    }

    /// Begins a stream. A set that was refused on an earlier one is loaded again, so that its reason is seen again.
    pub fn begin(&mut self) {
        self.refused = None;
    }

    /// Takes a message.
    pub fn take(&mut self, message: DiscoveryResponse) -> Taken {
        let (text, problem) = match text_of(&message, self.is_shared) {
            Ok(text) => (text, None),
            // Distinguishes the sets that are refused. A nonce would not: each message has another one.
            Err(why) => (why.clone().into_bytes(), Some(why)),
        };
        let version = version_of(&message.version_info, &text);
        let mut answer = DiscoveryRequest {
            type_url: TYPE_URL.to_owned(),
            response_nonce: message.nonce,
            ..DiscoveryRequest::default()
        };
        if let Some((_, why)) = self.refused.as_ref().filter(|(refused, _)| *refused == version) {
            answer.version_info.clone_from(&self.good);
            answer.error_detail = Some(refusal(why));
            return Taken { answer, loaded: None, is_again: true };
        }
        let fetched = match problem {
            None => Fetched::Text(RuleText::new(version.clone(), Format::Json, text)),
            Some(why) => Fetched::Refused { version: version.clone(), why },
        };
        let was_refused = self.refused.is_some();
        let loaded = self.pushed.push(Ok(fetched));
        if let Some(Err(error)) = &loaded {
            let why = error.to_string();
            answer.error_detail = Some(refusal(&why));
            self.refused = Some((version, why));
        } else {
            self.good = message.version_info;
            self.refused = None;
        }
        answer.version_info.clone_from(&self.good);
        let is_again = was_refused && answer.error_detail.is_some();
        Taken { answer, loaded, is_again }
    }
}

fn refusal(why: &str) -> Status {
    let message = why.chars().take(MOST_TOLD.0).collect();
    Status { code: INVALID_ARGUMENT, message, details: Vec::new() }
}

/// Returns the version of a text. A control plane that starts again may use a number again, so the text decides.
fn version_of(told: &str, text: &[u8]) -> Version {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let told: String = told.chars().filter(|c| c.is_ascii_graphic()).take(MOST_TOLD.1).collect();
    Version::tag(&format!("{told}-{:016x}", hasher.finish()))
}

/// The rules of one domain, as in a file.
#[derive(Serialize)]
struct RuleFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tollgate: Option<Extension>,
    #[serde(flatten)]
    rules: &'a RateLimitConfig,
}

#[derive(Serialize)]
struct Extension {
    store: &'static str,
}

/// Returns all rules as a text. The error is the reason why the set is refused.
fn text_of(message: &DiscoveryResponse, is_shared: bool) -> Result<Vec<u8>, String> {
    if !message.type_url.is_empty() && !is_rules(&message.type_url) {
        return Err(format!(
            "the message is for the type {:?}, but {TYPE_URL} was asked for",
            message.type_url
        ));
    }
    // Without these resources, the set is not the state of the world: their limits would be lost.
    if let Some(error) = message.resource_errors.first() {
        let name = error.resource_name.as_ref().map_or("", |name| &name.name);
        let why = error.error_detail.as_ref().map_or("", |status| &status.message);
        return Err(format!("the control plane could not make the resource {name:?}: {why}"));
    }
    let mut configs = Vec::with_capacity(message.resources.len());
    for (at, resource) in message.resources.iter().enumerate() {
        if !is_rules(&resource.type_url) {
            let found = &resource.type_url;
            return Err(format!("resources[{at}] has the type {found:?}, not {TYPE_URL}"));
        }
        let config = RateLimitConfig::decode(&*resource.value)
            .map_err(|error| format!("resources[{at}] is no {TYPE}: {error}"))?;
        configs.push(config);
    }
    configs.sort_by(|one, other| (&one.domain, &one.name).cmp(&(&other.domain, &other.name)));
    let tollgate = || is_shared.then_some(Extension { store: "redis" });
    let files: Vec<_> = configs.iter().map(|rules| RuleFile { tollgate: tollgate(), rules }).collect();
    serde_json::to_vec(&files).map_err(|error| error.to_string())
}

/// Whether a URL is that of the type. Its part before the last slash has no meaning.
fn is_rules(url: &str) -> bool {
    url.rsplit('/').next() == Some(TYPE)
}
