//! Sentinels: they name the master, and the client connects to it.
//!
//! 1. An attempt to connect asks all Sentinels at once, and takes the address that more than half of them name. If
//!    fewer answer in time, it takes the address that most of them name.
//! 2. The server at that address must say that it is a master (`ROLE`), unless the user may not ask.
//! 3. Once a second, the connection asks again. If more than half of the Sentinels name another address, the next call
//!    connects to that one. So a master that was replaced is left even if it still answers.
//! 4. A refused write (`READONLY`), a lost connection and a PING without an answer also end a connection.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Client, ConnectionAddr, ErrorKind as Theirs, RedisError, RedisResult};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tollgate_protocol::{Error, ErrorKind};

use super::connection::{ServerConnection, address, address_like, timed_out};
use super::options::{ConnectionOptions, Locate};

/// How long a Sentinel may take to answer, with the attempt to connect to it, if the others do not agree before.
const ANSWER: Duration = Duration::from_millis(500);
/// The default port of a Sentinel.
const PORT: &str = "26379";

/// See the module docs.
pub(crate) struct Sentinels {
    name: Box<str>,
    sentinels: Box<[Arc<ServerConnection>]>,
}

/// Splits `[[user]:password@]host[:port][,host[:port]…]/name[/database][?auth=[user:]password]`. Returns the name, an address with
/// the user, the password and the database of the master, whose host is the first Sentinel's, and the addresses of the Sentinels.
fn parts<'a>(scheme: &str, rest: &'a str) -> Option<(&'a str, String, Vec<String>)> {
    let (rest, auth) = match rest.split_once("?auth=") {
        Some((rest, auth)) if auth.contains(':') => (rest, format!("{auth}@")),
        Some((rest, auth)) => (rest, format!(":{auth}@")),
        None => (rest, String::new()),
    };
    let (hosts, path) = rest.split_once('/')?;
    let (user, hosts) = hosts.rsplit_once('@').map_or(("", hosts), |(user, hosts)| (user, hosts));
    let (name, database) = path.split_once('/').unwrap_or((path, "0"));
    if name.is_empty() || name.contains('?') || hosts.split(',').any(str::is_empty) {
        return None;
    }
    let address = |host: &str| {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        if has_port { host.to_owned() } else { format!("{host}:{PORT}") }
    };
    let hosts: Vec<String> = hosts.split(',').map(|host| address(host.trim())).collect();
    let at = if user.is_empty() { "" } else { "@" };
    let master = format!("{scheme}://{user}{at}{}/{database}", hosts[0]);
    Some((name, master, hosts.iter().map(|host| format!("{scheme}://{auth}{host}")).collect()))
}

/// Creates a connection to the server at this address, or to the master that its Sentinels name. `open` creates the
/// client of each address.
pub(super) fn open(
    url: &str,
    open: impl Fn(&str) -> RedisResult<Client>,
) -> Result<Arc<ServerConnection>, Error> {
    let connection =
        |url: &str, options| ServerConnection::of(&open(url).map_err(|error| address(&error))?, options);
    let plain = |url: &str| connection(url, ConnectionOptions::default());
    let Some((scheme @ ("redis" | "rediss"), rest)) = url.split_once("-sentinel://") else {
        return plain(url);
    };
    let expected = "expected redis-sentinel://[[user]:password@]host[:port],host[:port]/name[/database]";
    let invalid = || Error::new(ErrorKind::Address, expected);
    let (name, master, sentinels) = parts(scheme, rest).ok_or_else(invalid)?;
    let sentinels = sentinels.iter().map(|url| plain(url)).collect::<Result<_, _>>()?;
    let locate = Arc::new(Sentinels { name: name.into(), sentinels });
    connection(&master, ConnectionOptions { locate: Some(locate), ..ConnectionOptions::default() })
}

impl Locate for Sentinels {
    fn address(&self) -> String {
        let hosts = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect::<Vec<_>>();
        format!("{}/{}", hosts.join(","), self.name)
    }

    fn locate<'a>(
        &'a self,
        runtime: &'a Handle,
        like: &'a ConnectionAddr,
    ) -> BoxFuture<'a, RedisResult<(ConnectionAddr, bool)>> {
        Box::pin(self.master(runtime, like))
    }
}

impl Sentinels {
    async fn ask(&self, runtime: &Handle, sentinel: &Arc<ServerConnection>) -> RedisResult<(String, u16)> {
        let mut question = ::redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.name);
        let answer = timeout(ANSWER, sentinel.ask(runtime, question, false)).await;
        let answer = answer.unwrap_or_else(|_| Err(timed_out()))?;
        ::redis::from_redis_value::<Option<(String, u16)>>(answer)?.ok_or_else(unknown)
    }

    async fn master(&self, runtime: &Handle, like: &ConnectionAddr) -> RedisResult<(ConnectionAddr, bool)> {
        let is_most = |votes: usize| votes > self.sentinels.len() / 2;
        let mut answers: FuturesUnordered<_> =
            self.sentinels.iter().map(|sentinel| self.ask(runtime, sentinel)).collect();
        let (mut named, mut why) = (Vec::new(), unknown());
        let votes = |named: &[(String, u16)], place: &_| named.iter().filter(|other| *other == place).count();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(place) => {
                    named.push(place);
                    if named.last().is_some_and(|place| is_most(votes(&named, place))) {
                        break;
                    }
                }
                Err(error) => why = error,
            }
        }
        let (host, port) = named.iter().max_by_key(|place| votes(&named, place)).ok_or(why)?;
        Ok((address_like(like, host, *port), is_most(votes(&named, &(host.clone(), *port)))))
    }
}

fn unknown() -> RedisError {
    (Theirs::Client, "no Sentinel knows a master of this name").into()
}
