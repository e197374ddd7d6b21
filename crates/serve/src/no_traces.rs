//! In place of `traces`, in a program without the feature `otlp`.

use std::sync::Arc;

use super::stats::Stats;
use crate::flags::process::ServeProcess;
use tollgate_report::error::Error;

/// Checks nothing.
///
/// # Errors
/// Never.
#[expect(clippy::unnecessary_wraps, reason = "with spans, this can fail")]
pub fn check(_args: &ServeProcess) -> Result<(), Error> {
    Ok(())
}

/// No spans.
#[derive(Clone, Debug)]
pub struct Traces;

impl Traces {
    /// Starts nothing.
    #[expect(clippy::unnecessary_wraps, reason = "with spans, this can fail")]
    pub fn start(_args: &ServeProcess, _stats: &Arc<Stats>) -> Result<Self, Error> {
        Ok(Self)
    }

    /// Returns the service itself.
    #[expect(clippy::unused_self, reason = "with spans, this needs the tracer")]
    pub const fn around<S>(&self, service: S) -> S {
        service
    }

    /// Ends nothing.
    pub async fn end(self) {}
}
