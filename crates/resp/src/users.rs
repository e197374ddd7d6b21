//! `--resp-users`: users, and the commands that they may send. The file has the form of Redis's own files of users, without the parts that have no
//! meaning here:
//!
//! ```text
//! # a comment
//! user shop on >secret +@all ~*
//! user api on #5e884898da28047151d0e56f8dc6292773603d0d6aabbd62a11ef721d1542d8 +cl.throttle +tollgate.check ~shop
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::{fmt, fs};

use ring::digest::{SHA256, digest};

use super::commands::{self, KNOWN};
use tollgate_report::error::{Error, plain};
use tollgate_serve::endpoint::{ReadTwice, is_same};
use tollgate_serve::log;

type Secret = [u8; 32];

/// The name of the user that a connection has at its start, if that user needs no password.
pub const DEFAULT: &str = "default";

/// What a user may do.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name.
    pub name: Box<str>,
    is_on: bool,
    needs_no_password: bool,
    /// SHA-256 of each password.
    secrets: Vec<Secret>,
    /// The limited commands that the user may send.
    commands: Vec<&'static str>,
    /// The domains that the user may ask about. `None`: all.
    domains: Option<Vec<Box<str>>>,
    /// The number of users that may send quotas, this one among them.
    sharers: usize,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

impl User {
    /// The user of all connections without a file of users. It may do everything.
    pub fn anyone() -> Self {
        let commands = limited().collect();
        Self { name: DEFAULT.into(), is_on: true, needs_no_password: true, commands, ..Self::default() }
    }

    /// Whether the user may send this command, of those that users can be denied.
    pub fn may_send(&self, command: &str) -> bool {
        self.commands.contains(&command)
    }

    /// Returns how many users share the most quotas. At least 1.
    pub fn sharers(&self) -> usize {
        self.sharers.max(1)
    }

    /// Whether the user may ask about this domain.
    pub fn may_ask(&self, domain: &[u8]) -> bool {
        self.domains.as_ref().is_none_or(|domains| domains.iter().any(|own| own.as_bytes() == domain))
    }

    /// Whether the password is one of the user's. The time that this takes depends only on the length of the password and on the number
    /// of the user's passwords.
    fn has(&self, password: &[u8]) -> bool {
        let given = digest(&SHA256, password);
        let found = self.secrets.iter().fold(false, |found, secret| found | is_same(secret, given.as_ref()));
        self.is_on && (found | self.needs_no_password)
    }

    fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        if words.next() != Some("user") {
            return Err("expected a line such as: user NAME on >PASSWORD +@all ~*".to_owned());
        }
        let name = words.next().ok_or("the user has no name")?;
        // The text is not shown: it may be a password.
        if name.starts_with(['>', '#', '+', '~']) {
            return Err(
                "the user has no name: it comes first, and does not begin with >, #, + or ~".to_owned()
            );
        }
        let mut user = Self { name: name.into(), domains: Some(Vec::new()), ..Self::default() };
        for word in words {
            user.add(word)?;
        }
        Ok(user)
    }

    fn add(&mut self, word: &str) -> Result<(), String> {
        let mut marks = word.chars();
        match (word, marks.next(), marks.as_str()) {
            ("on", ..) => self.is_on = true,
            ("off", ..) => self.is_on = false,
            ("nopass", ..) => self.needs_no_password = true,
            ("+@all" | "allcommands", ..) => self.commands = limited().collect(),
            ("~*" | "allkeys", ..) => self.domains = None,
            (_, Some('>'), "") => return Err("after > comes a password".to_owned()),
            // As in Redis, a password ends an earlier `nopass`.
            (_, Some('>'), password) => {
                self.needs_no_password = false;
                self.secrets.push(as_secret(digest(&SHA256, password.as_bytes()).as_ref()).ok_or(NO_HASH)?);
            }
            (_, Some('#'), hex) => {
                self.needs_no_password = false;
                self.secrets.push(from_hex(hex).ok_or(NO_HASH)?);
            }
            (_, Some('~'), domain) if !domain.is_empty() && !domain.contains(['*', '?', '[']) => {
                self.domains.get_or_insert_default().push(domain.into());
            }
            (_, Some('+'), name) => match limited().find(|known| known.eq_ignore_ascii_case(name)) {
                Some(known) => self.commands.push(known),
                None => {
                    let known = limited().collect::<Vec<_>>().join(", ");
                    return Err(format!(
                        "{name:?} is no command that a user can be permitted; there are: {known}"
                    ));
                }
            },
            _ => {
                // The word may be a password without its mark.
                return Err(
                    "a word is none of on, off, nopass, >PASSWORD, #SHA256, +COMMAND, +@all, ~DOMAIN and ~*"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }
}

/// The names of the commands that users can be denied.
fn limited() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().filter(|known| known.is_limit()).map(|known: &commands::Known| known.name)
}

const NO_HASH: &str = "after # comes the SHA-256 of the password: 64 hexadecimal digits, and nothing else";

fn as_secret(bytes: &[u8]) -> Option<Secret> {
    bytes.try_into().ok()
}

/// Returns the bytes that a text of 64 hexadecimal digits stands for. `None` if anything else is there.
fn from_hex(text: &str) -> Option<Secret> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    as_secret(&text.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?)
}

/// Returns the users of a file's text.
///
/// # Errors
/// If a line cannot be used. The error has its number.
fn parse(text: &str) -> Result<HashMap<Box<str>, Arc<User>>, String> {
    let mut users = HashMap::new();
    for (line, number) in text.lines().zip(1..) {
        let mut words = line.split_ascii_whitespace().peekable();
        if words.peek().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let at = |why: String| format!("line {number}: {why}");
        let user = User::parse(words).map_err(at)?;
        let name = user.name.clone();
        if users.insert(name.clone(), user).is_some() {
            return Err(at(format!("the user {name:?} is there twice")));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        let last = text.lines().count();
        return Err(format!(
            "line {last} has no end, so the file may be written in part; write the rest, and a line feed at the end"
        ));
    }
    match users.is_empty() {
        true => Err("there is no user, so no client could send a command".to_owned()),
        false => {
            let may_send =
                |user: &&User| user.is_on && (user.may_send("cl.throttle") || user.may_send("gcra"));
            let sharers = users.values().filter(may_send).count();
            let shared = |(name, user)| (name, Arc::new(User { sharers, ..user }));
            Ok(users.into_iter().map(shared).collect())
        }
    }
}

/// The users in force.
pub struct Users {
    path: PathBuf,
    /// The text of the file, or why it could not be read.
    seen: Mutex<ReadTwice<Result<String, String>>>,
    in_force: RwLock<HashMap<Box<str>, Arc<User>>>,
    /// The number of changes. Ordering: Release after a change, and Acquire before a user is looked up again.
    changes: AtomicU64,
}

impl fmt::Debug for Users {
    /// Omits the text, which may have passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Users {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read or used.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = read(path).map_err(Error::run)?;
        let users = parse(&text).map_err(|why| Error::run(format!("{}: {why}", path.display())))?;
        let (seen, in_force) = (Mutex::new(ReadTwice::new(Ok(text))), RwLock::new(users));
        Ok(Self { path: path.to_owned(), seen, in_force, changes: AtomicU64::new(0) })
    }

    /// Reads the file again, and puts its users in force if the change was read twice and can be used.
    pub fn reload_if_changed(&self) {
        // Locked before the file is read: an earlier reading must not replace a later one.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(text) = seen.take(read(&self.path)) else { return };
        let path = self.path.display();
        let users = text.as_ref().map_err(Clone::clone);
        let users = users.and_then(|text| parse(text).map_err(|why| format!("{path}: {why}")));
        match users {
            Ok(users) => {
                let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
                let removed = in_force.keys().filter(|name| !users.contains_key(*name)).cloned();
                let removed = Vec::from_iter(removed);
                *in_force = users;
                drop(in_force);
                self.changes.fetch_add(1, Release);
                match &removed[..] {
                    [] => log::info(format_args!("the changed users of {path} are in force")),
                    names => {
                        log::warn(format_args!(
                            "the changed users of {path} are in force, without {names:?}"
                        ));
                    }
                }
            }
            Err(why) => log::warn(format_args!("{why}; the earlier users stay in force")),
        }
    }

    /// Returns the number of changes, for [`Users::again`].
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Returns the user of a connection that has given no password.
    pub fn before_password(&self) -> Option<Arc<User>> {
        self.find(DEFAULT).filter(|user| user.is_on && user.needs_no_password)
    }

    /// Returns the user with this name and password.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let unknown =
            || Arc::new(User { secrets: vec![[0; 32]], needs_no_password: false, ..User::anyone() });
        // An unknown name takes as long as a wrong password.
        let user = str::from_utf8(name).ok().and_then(|name| self.find(name)).unwrap_or_else(unknown);
        user.has(password).then_some(user)
    }

    /// Returns a user as it is now, unless it may not connect any more or a password of it is gone: it may be the one that was given.
    pub fn again(&self, user: &User) -> Option<Arc<User>> {
        let now = self.find(&user.name)?;
        let is_kept = |secret| now.secrets.contains(secret);
        let may_stay = now.needs_no_password || !user.needs_no_password && user.secrets.iter().all(is_kept);
        (now.is_on && may_stay).then_some(now)
    }

    fn find(&self, name: &str) -> Option<Arc<User>> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {}", path.display(), plain(&error)))
}
