//! What `tollgate-rules` uses, and users do not need. It is not part of the public interface: any release may change it, so that
//! package depends on one exact version.
//!
//! Some methods of public types that only that package needs are `#[doc(hidden)]`.

// A key of a counter has the text of an address as it is matched, whatever its spelling. So have the descriptors of a request.
pub use crate::matching::{AddressText, address_of, push_ipv4};
// A set of rules in force finds the rules of a request, and explains why others do not apply.
pub use crate::matching::{FoundRules, Missed, Tree};
// Names of domains are compared as keys are.
pub use crate::matching::is_same;
// A load compares the texts of files before it reads their rules.
pub use crate::read::bytes_of;
// A load keeps each part of a domain in another place, and remembers the files that it came from.
pub use crate::read::{DomainParts, RuleFiles};
// The engine draws whether a key is in the share of keys for which a rule is enforced.
pub use crate::rule::MILLION;
// A counter has the store that `Rule::store_kind` announces.
pub use crate::store_kind::store_kind_of;
