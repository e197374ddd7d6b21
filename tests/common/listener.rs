//! The `tracing` events that a subscriber receives.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// An event: level, target and fields.
pub(crate) type Seen = (tracing::Level, String, BTreeMap<String, String>);

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Seen>>>);

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        let seen = (*metadata.level(), metadata.target().to_owned(), fields.0);
        self.0.lock().expect("no thread panics while it holds the lock").push(seen);
    }
}

/// Returns the events of this thread. `tracing` remembers which events have no subscriber, also while another thread adds one.
/// So a subscriber that listens to all threads stays, and what was remembered before is computed again.
pub(crate) fn events(run: impl FnOnce()) -> Vec<Seen> {
    static ALL: Once = Once::new();
    ALL.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry())
            .expect("there is no other one");
    });
    let listener = Listener::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(listener.clone()), || {
        tracing::callsite::rebuild_interest_cache();
        run();
    });
    let mut seen = listener.0.lock().expect("no thread panics while it holds the lock");
    std::mem::take(&mut *seen)
}

pub(crate) fn fields<const N: usize>(fields: [(&str, &str); N]) -> BTreeMap<String, String> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
