//! Plain commands to one server, for data other than limits, and messages of a channel.

use std::time::Duration;

use ::redis::{Client, Value};
use futures_util::StreamExt as _;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::connection::{Evicting, ServerConnection};
use super::runtime::RuntimeThread;
use crate::edge::redis::protocol::{Error, ErrorKind, script};
use crate::edge::telemetry::subscription_refused;

/// The longest time that a command takes, with the attempt to connect.
const COMMAND: Duration = Duration::from_secs(3);
/// The pause before the next attempt to subscribe, after a lost connection.
const RECONNECT: Duration = Duration::from_secs(1);
/// The same, after the server refused the subscription.
const REFUSED: Duration = Duration::from_secs(60);

/// A client for plain commands. Its thread starts with the first call, and ends when the client is dropped.
pub(crate) struct PlainClient {
    line: std::sync::Arc<ServerConnection>,
    /// For subscriptions, which need connections of their own.
    client: Client,
    thread: RuntimeThread,
}

impl PlainClient {
    /// Creates a client of the server at this address. Sends nothing.
    pub(crate) fn open(url: &str) -> Result<Self, Error> {
        let line = ServerConnection::open(url, &Evicting::default())?;
        let bad = |_| Error::new(ErrorKind::Address, "the address cannot be used");
        Ok(Self { line, client: Client::open(url).map_err(bad)?, thread: RuntimeThread::default() })
    }

    /// Returns the host and port, or the path of the socket, without the user and the password.
    pub(crate) fn address(&self) -> String {
        self.line.address().to_string()
    }

    /// Runs a command. Blocks the thread until the server answers, for at most three seconds. A reply that is not a
    /// list is a list of one field.
    pub(crate) fn run(&self, words: &[&[u8]]) -> Result<Vec<Field>, Error> {
        let mut command = ::redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        self.thread.block_on(async {
            let Ok(runtime) = Handle::try_current() else {
                return Err(Error::new(ErrorKind::Unreachable, "the thread for calls could not start"));
            };
            match timeout(COMMAND, self.line.ask(&runtime, command, false)).await {
                Ok(answer) => fields(answer.map_err(|error| script::failure(&error))?),
                Err(_) => Err(Error::new(ErrorKind::Timeout, "no answer within three seconds")),
            }
        })
    }

    /// Calls `hear` after each message on this channel and after each new subscription, as long as the client exists.
    /// A server that refuses the subscription is asked again each minute.
    pub(crate) fn on_message(&self, channel: String, hear: impl Fn() + Send + Sync + 'static) {
        let client = self.client.clone();
        self.thread.block_on(async {
            let Ok(runtime) = Handle::try_current() else { return };
            runtime.spawn(async move {
                loop {
                    sleep(listen(&client, &channel, &hear).await).await;
                }
            });
        });
    }
}

/// A field of a reply; `None` if the server has no value.
pub(crate) type Field = Option<Vec<u8>>;

fn fields(reply: Value) -> Result<Vec<Field>, Error> {
    let field = |value| match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(Some(text.into_bytes())),
        Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
        _ => Err(Error::new(ErrorKind::Reply, "the reply has another form")),
    };
    match reply {
        Value::Array(each) => each.into_iter().map(field).collect(),
        one => Ok(vec![field(one)?]),
    }
}

/// Listens until the connection is lost. Returns the pause before the next attempt.
async fn listen(client: &Client, channel: &str, hear: &(impl Fn() + Sync)) -> Duration {
    let Ok(Ok(mut messages)) = timeout(COMMAND, client.get_async_pubsub()).await else { return RECONNECT };
    match timeout(COMMAND, messages.subscribe(channel)).await {
        Ok(Ok(())) => {}
        // From Redis 7.0, a user has no channels unless they are granted.
        Ok(Err(error)) if !script::is_lost(&error) => {
            subscription_refused(channel);
            return REFUSED;
        }
        _ => return RECONNECT,
    }
    // A message may have been lost before.
    hear();
    let mut messages = messages.on_message();
    while messages.next().await.is_some() {
        hear();
    }
    RECONNECT
}

impl std::fmt::Debug for PlainClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainClient").finish_non_exhaustive()
    }
}
