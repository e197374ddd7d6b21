//! Plain commands to one server, for data other than limits, and messages of a channel.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Client, Value};
use futures_util::StreamExt as _;
use futures_util::future::{pending, select};
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout};
use tollgate_protocol::{Error, ErrorKind, script};

use super::connection::ServerConnection;
use super::runtime::RuntimeThread;
use super::{options, sentinel};
use crate::telemetry::subscription_refused;

/// The longest time that a command takes, with the attempt to connect.
const COMMAND: Duration = Duration::from_secs(3);
/// The pause before the next attempt to subscribe, after a lost connection.
const RECONNECT: Duration = Duration::from_secs(1);
/// The same, after the server refused the subscription.
const REFUSED: Duration = Duration::from_secs(60);

/// A client for plain commands. Its thread starts with the first call, and ends when the client is dropped.
pub(crate) struct PlainClient {
    server: Arc<ServerConnection>,
    thread: RuntimeThread,
}

impl PlainClient {
    /// Creates a client of the server at this address. Sends nothing.
    pub(crate) fn open(url: &str) -> Result<Self, Error> {
        sentinel::open(url, |url| Client::open(url)).map(Self::of)
    }

    /// Creates a client of the one server of another client, with connections of its own.
    pub(crate) fn of_client(client: &super::Client) -> Result<Self, Error> {
        let several = || {
            Error::new(ErrorKind::Address, "rules are on one server, not on a Cluster or a set of servers")
        };
        client.one_server().map(|server| Self::of(server.with(server.options().clone()))).ok_or_else(several)
    }

    fn of(server: Arc<ServerConnection>) -> Self {
        Self { server, thread: RuntimeThread::default() }
    }

    /// Returns the host and port, or the path of the socket, without the user and the password.
    pub(crate) fn address(&self) -> String {
        self.server.address().to_string()
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
            match timeout(COMMAND, self.server.ask(&runtime, command, false)).await {
                Ok(answer) => fields(answer.map_err(|error| script::failure(&error))?),
                Err(_) => Err(Error::new(ErrorKind::Timeout, "no answer within three seconds")),
            }
        })
    }

    /// Calls `hear` after each message on this channel and after each new subscription, as long as the client exists.
    /// A server that refuses the subscription is asked again each minute.
    pub(crate) fn on_message(&self, channel: String, hear: impl Fn() + Send + Sync + 'static) {
        let server = Arc::clone(&self.server);
        self.thread.block_on(async {
            let Ok(runtime) = Handle::try_current() else { return };
            let handle = runtime.clone();
            runtime.spawn(async move {
                loop {
                    sleep(listen(&server, &handle, &channel, &hear).await).await;
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

/// Listens until the connection is lost, or until it needs other credentials or another connection. Returns the pause
/// before the next attempt. Subscriptions need a connection of their own.
async fn listen(
    server: &ServerConnection,
    runtime: &Handle,
    channel: &str,
    hear: &(impl Fn() + Sync),
) -> Duration {
    let Ok(Ok((client, renewal))) = timeout(COMMAND, server.prepare(runtime)).await else { return RECONNECT };
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
    let listen = async {
        while messages.next().await.is_some() {
            hear();
        }
    };
    let Some(mut renewal) = renewal else {
        listen.await;
        return RECONNECT;
    };
    let ends = renewal.ends;
    let aged = async { if let Some(ends) = ends { sleep_until(ends).await } else { pending().await } };
    // An error of the provider changes nothing.
    let changed = async { while options::next(&mut renewal.credentials).await.is_err() {} };
    let (aged, changed) = (pin!(aged), pin!(changed));
    select(pin!(listen), select(aged, changed)).await;
    RECONNECT
}

impl std::fmt::Debug for PlainClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainClient").finish_non_exhaustive()
    }
}
