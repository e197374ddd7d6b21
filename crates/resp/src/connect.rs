//! The commands about the connection itself. Client libraries send them before the first question.

use tollgate::Clock;

use super::commands::{self, Name};
use super::peer::{Problem, RespPeer};
use super::read::Args;
use super::transaction::Transaction;
use super::users::DEFAULT;
use super::write::{Shown, Version};

/// The version of Redis whose commands about connections these are. Some libraries read it.
const LIKE_REDIS: &str = "7.4.0";

/// The wrong passwords after which a connection ends.
pub const MOST_FAILURES: u32 = 8;

/// The longest name of a client or a library, in bytes.
const MOST_NAME: usize = 256;

const SYNTAX: Problem = Problem::Borrowed("ERR syntax error");
const WRONG_PASSWORD: Problem =
    Problem::Borrowed("WRONGPASS invalid username-password pair or user is disabled.");

/// Runs a command. Returns whether the connection goes on.
pub fn run<C: Clock + Clone>(peer: &mut RespPeer<C>, name: Name, args: Args<'_>) -> Result<bool, Problem> {
    match name {
        Name::Auth => match (args.get(1), args.get(2), args.len()) {
            (Some(password), None, _) => {
                if peer.shared.users.is_none() {
                    return Err(
                        "ERR AUTH <password> called without any password configured; see --resp-users".into(),
                    );
                }
                log_in(peer, DEFAULT.as_bytes(), password)?;
                peer.replies.ok();
            }
            (Some(user), Some(password), 3) => {
                log_in(peer, user, password)?;
                peer.replies.ok();
            }
            _ => return Err(SYNTAX),
        },
        Name::Client => client(peer, args)?,
        Name::Command => commands::list(args, &mut peer.replies),
        Name::Config => config(peer, args)?,
        Name::Multi if peer.queue.is_some() => return Err("ERR MULTI calls can not be nested".into()),
        Name::Multi => {
            peer.queue = Some(Transaction::default());
            peer.replies.ok();
        }
        Name::Exec => match peer.queue.take() {
            None => return Err("ERR EXEC without MULTI".into()),
            Some(queue) if queue.is_spoilt => {
                return Err("EXECABORT Transaction discarded because of previous errors.".into());
            }
            Some(queue) => {
                peer.replies.array(queue.len());
                peer.running = Some(queue);
            }
        },
        Name::Discard => match peer.queue.take() {
            None => return Err("ERR DISCARD without MULTI".into()),
            Some(_) => peer.replies.ok(),
        },
        Name::Watch if peer.queue.is_some() => return Err("ERR WATCH inside MULTI is not allowed".into()),
        Name::Watch => {
            return Err("ERR there is nothing to watch: Tollgate keeps no data that a client could read and write back".into());
        }
        Name::Unwatch => peer.replies.ok(),
        Name::Echo => peer.replies.bulk(args.get(1).unwrap_or_default()),
        Name::Hello => hello(peer, args)?,
        Name::Info => {
            let text = info(peer);
            peer.replies.bulk(text.as_bytes());
        }
        Name::Ping => match (args.get(1), args.len()) {
            (None, _) => peer.replies.simple("PONG"),
            (Some(text), 2) => peer.replies.bulk(text),
            _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
        },
        Name::Quit => {
            peer.replies.ok();
            return Ok(false);
        }
        Name::Reset => {
            peer.queue = None;
            peer.forget_user();
            peer.names = Default::default();
            peer.replies.version = Version::Two;
            peer.replies.simple("RESET");
        }
        Name::Select => match args.get(1) {
            Some(b"0") => peer.replies.ok(),
            _ => return Err("ERR DB index is out of range; there is only 0".into()),
        },
        Name::Limit(_) => {}
    }
    Ok(true)
}

fn log_in<C: Clock + Clone>(peer: &mut RespPeer<C>, name: &[u8], password: &[u8]) -> Result<(), Problem> {
    let user = match &peer.shared.users {
        None if name == DEFAULT.as_bytes() => return Ok(()),
        None => None,
        Some(users) => users.log_in(name, password),
    };
    match user {
        Some(user) => peer.user = Some(user),
        None => {
            peer.failures += 1;
            peer.shared.counts.wrong_passwords.add();
            return Err(WRONG_PASSWORD);
        }
    }
    Ok(())
}

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
fn hello<C: Clock + Clone>(peer: &mut RespPeer<C>, args: Args<'_>) -> Result<(), Problem> {
    let version = match args.get(1) {
        None => peer.replies.version,
        Some(b"2") => Version::Two,
        Some(b"3") => Version::Three,
        Some(_) => return Err("NOPROTO unsupported protocol version; there are 2 and 3".into()),
    };
    // All options are read before one has an effect.
    let (mut options, mut login, mut name) = (args.from(2), None, None);
    while let Some(option) = options.get(0) {
        match (&option.to_ascii_lowercase()[..], options.get(1), options.get(2)) {
            (b"auth", Some(user), Some(password)) => {
                login = Some((user, password));
                options = options.from(3);
            }
            (b"setname", Some(given), _) => {
                name = Some(checked_name(given)?);
                options = options.from(2);
            }
            _ => return Err(format!("ERR Syntax error in HELLO option {}", Shown(option)).into()),
        }
    }
    if let Some((user, password)) = login {
        log_in(peer, user, password)?;
    }
    if peer.user.is_none() {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
                    <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
            .into());
    }
    if let Some(name) = name {
        peer.names[0] = name;
    }
    peer.replies.version = version;
    let replies = &mut peer.replies;
    replies.map(7);
    for (name, value) in [("server", "tollgate"), ("version", env!("CARGO_PKG_VERSION"))] {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"proto");
    replies.integer(if version == Version::Two { 2 } else { 3 });
    replies.bulk(b"id");
    replies.count(peer.id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
    Ok(())
}

fn checked_name(name: &[u8]) -> Result<Vec<u8>, Problem> {
    match name.len() <= MOST_NAME && name.iter().all(u8::is_ascii_graphic) {
        true => Ok(name.to_vec()),
        false => Err("ERR Client names cannot contain spaces, newlines or special characters, and have at most 256 bytes".into()),
    }
}

fn client<C: Clock + Clone>(peer: &mut RespPeer<C>, args: Args<'_>) -> Result<(), Problem> {
    let part = args.get(1).unwrap_or_default();
    match (&part.to_ascii_lowercase()[..], args.get(2), args.get(3), args.len()) {
        (b"setname", Some(name), _, 3) => {
            peer.names[0] = checked_name(name)?;
            peer.replies.ok();
        }
        (b"setinfo", Some(what), Some(value), 4) => {
            let place = match &what.to_ascii_lowercase()[..] {
                b"lib-name" => 1,
                b"lib-ver" => 2,
                _ => return Err(format!("ERR Unrecognized option {}", Shown(what)).into()),
            };
            peer.names[place] = checked_name(value)?;
            peer.replies.ok();
        }
        (b"getname", .., 2) => match &peer.names[0][..] {
            b"" => peer.replies.null(),
            name => peer.replies.bulk(name),
        },
        (b"id", .., 2) => peer.replies.count(peer.id),
        // Another client may belong to another user, so a client sees itself only.
        (b"info", .., 2) | (b"list", ..) => {
            let text = described(peer);
            peer.replies.bulk(text.as_bytes());
        }
        // There is no memory that a client could be cut off to save, and no data whose use is counted.
        (b"no-evict" | b"no-touch", Some(_), _, 3) => peer.replies.ok(),
        _ => {
            return Err(format!(
                "ERR unknown subcommand {} of CLIENT, or a wrong number of arguments; there are SETNAME, GETNAME, SETINFO, ID, \
                 INFO, LIST, NO-EVICT and NO-TOUCH",
                Shown(part)
            )
            .into());
        }
    }
    Ok(())
}

/// Returns the line of `CLIENT LIST`.
fn described<C>(peer: &RespPeer<C>) -> String {
    let [name, library, version] = peer.names.each_ref().map(|name| String::from_utf8_lossy(name));
    let (id, address) = (peer.id, peer.address.replace(' ', "_"));
    let user = peer.user.as_ref().map_or("", |user| &*user.name);
    let resp = if peer.replies.version == Version::Two { 2 } else { 3 };
    format!(
        "id={id} addr={address} name={name} db=0 user={user} resp={resp} lib-name={library} lib-ver={version}\n"
    )
}

/// `CONFIG GET name …`: redis-benchmark asks whether data is saved.
fn config<C>(peer: &mut RespPeer<C>, args: Args<'_>) -> Result<(), Problem> {
    if !args.get(1).is_some_and(|part| part.eq_ignore_ascii_case(b"get")) || args.len() < 3 {
        return Err("ERR there is only CONFIG GET; flags of tollgate serve set everything".into());
    }
    let known: [(&[u8], &[u8]); 2] = [(b"save", b""), (b"appendonly", b"no")];
    let asked = || {
        args.from(2).iter().filter_map(|name| known.iter().find(|known| known.0.eq_ignore_ascii_case(name)))
    };
    peer.replies.map(asked().count());
    for (name, value) in asked() {
        peer.replies.bulk(name);
        peer.replies.bulk(value);
    }
    Ok(())
}

fn info<C: Clock + Clone>(peer: &RespPeer<C>) -> String {
    let shared = &peer.shared;
    format!(
        "# Server\r\nredis_version:{LIKE_REDIS}\r\ntollgate_version:{}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n\
         \r\n# Clients\r\nconnected_clients:{}\r\n\r\n# Persistence\r\nloading:0\r\n\
         \r\n# Stats\r\ntotal_connections_received:{}\r\nquotas:{}\r\n\
         \r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        shared.stats.open.get(),
        shared.stats.accepted.get(),
        shared.quotas.len(),
    )
}
