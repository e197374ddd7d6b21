//! The debug endpoint: what is in force, what was counted, and a page to look at, which shows both as they change. It is
//! read-only.
//!
//! | file | does |
//! |---|---|
//! | `listen` | connections, and how many of them may be open pages |
//! | `read` | from a request to what it asks for |
//! | `answer` | the pages as text and as JSON; `why`: the rules that apply to a descriptor |
//! | `live` | the parts of the open page that have changed |
//! | `write` | responses, with the fields that keep other web pages out |
//! | `page/` | the page in HTML, CSS and JavaScript |

mod answer;
mod listen;
pub mod live;
pub mod read;
mod why;
mod write;

pub use self::answer::{TOP, go_counts};
pub use self::listen::endpoints;
