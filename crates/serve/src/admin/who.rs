//! The operator behind a request: a user of this machine, the names of a certificate, or the name of a token.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use http::{HeaderMap, header};

use crate::peer::Peer;
use crate::secret::is_same;
use tollgate_report::error::plain;

/// The shortest token. Shorter ones could be guessed.
const SHORTEST: usize = 16;

/// The longest file of tokens.
const LONGEST_FILE: u64 = 1 << 20;

/// What the endpoint knows of a client before it reads a request, and then the name of its token.
#[derive(Clone, Debug)]
pub struct Who {
    peer: String,
    client: Option<Peer>,
    token: Option<String>,
}

/// The clients that the endpoint admits.
#[derive(Debug)]
pub struct Operators {
    /// Whether clients are users of this machine: this process's user and root are admitted.
    pub users: bool,
    /// Whether clients need a certificate with a name. TLS has checked its authority.
    pub certificates: bool,
    /// The tokens, if clients need one.
    pub token_file: Option<PathBuf>,
}

/// A token with its name.
struct OperatorToken {
    name: String,
    text: String,
}

impl Who {
    pub fn of(peer: &str, client: Option<Peer>) -> Self {
        Self { peer: peer.to_owned(), client, token: None }
    }
}

/// `alice`, `uid 1000`, `ops.example.com`, or several of them.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(token) = &self.token {
            write!(f, "{token}, ")?;
        }
        match &self.client {
            Some(Peer::User(uid)) => write!(f, "uid {uid}"),
            Some(Peer::Names(names)) if !names.is_empty() => {
                write!(f, "{} at {}", names.join(" "), self.peer)
            }
            _ => f.write_str(&self.peer),
        }
    }
}

impl Operators {
    /// Returns who asks, if they may act. Otherwise returns why not.
    ///
    /// # Errors
    /// If they may not, or if the tokens cannot be read.
    pub fn admit(&self, mut who: Who, headers: &HeaderMap) -> Result<Who, String> {
        let is_known = match &who.client {
            Some(Peer::User(uid)) => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
            Some(Peer::Names(names)) => !names.is_empty(),
            None => false,
        };
        if self.users && !is_known {
            return Err("only the user of the service and root may use this socket".to_owned());
        }
        if self.certificates && !is_known {
            return Err("the certificate has no DNS or URI name, which the log could state".to_owned());
        }
        if let Some(file) = &self.token_file {
            let given = headers.get(header::AUTHORIZATION).and_then(|value| {
                let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
            });
            let given = given.ok_or("expected authorization: Bearer TOKEN")?;
            let tokens = Self::read_tokens(file)?;
            // All tokens are compared, so that the time does not depend on which of them is right.
            let mut name = None;
            for token in tokens {
                if is_same(token.text.as_bytes(), given.as_bytes()) {
                    name = Some(token.name);
                }
            }
            who.token = Some(name.ok_or("the token is not in the file of tokens")?);
        }
        if self.users || self.certificates || self.token_file.is_some() {
            return Ok(who);
        }
        Err("this endpoint admits no client".to_owned())
    }

    /// Checks a file of tokens.
    ///
    /// # Errors
    /// If it cannot be used. The error names the line.
    pub fn read(file: &Path) -> Result<(), String> {
        Self::read_tokens(file).map(drop)
    }

    fn read_tokens(file: &Path) -> Result<Vec<OperatorToken>, String> {
        let mut text = String::new();
        File::open(file)
            .and_then(|opened| opened.take(LONGEST_FILE + 1).read_to_string(&mut text))
            .map_err(|error| format!("cannot read the tokens in {}: {}", file.display(), plain(&error)))?;
        // The rest would be missing, and the last token cut.
        if text.len() as u64 > LONGEST_FILE {
            return Err(format!("{} has more than 1 MiB; remove tokens that are not used", file.display()));
        }
        // The beginning of a token that is being written would be a token, and easier to guess.
        if !text.is_empty() && !text.ends_with('\n') {
            return Err(format!(
                "{}:{}: the line has no end, so the file may be written in part; write the rest, and a line feed at the end",
                file.display(),
                text.lines().count(),
            ));
        }
        let mut tokens: Vec<OperatorToken> = Vec::new();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("{}:{number}: {why}", file.display());
            let (name, token) =
                line.split_once(':').ok_or_else(|| wrong("expected NAME:TOKEN, such as alice:… "))?;
            if name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte))
            {
                return Err(wrong("the name before the colon has other characters than a-z, 0-9 and -_.@"));
            }
            if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(wrong(
                    "the token is shorter than 16 bytes, or has spaces; make one with: openssl rand -hex 32",
                ));
            }
            tokens.push(OperatorToken { name: name.to_owned(), text: token.to_owned() });
        }
        if tokens.is_empty() {
            return Err(format!("{} has no tokens; write lines of NAME:TOKEN", file.display()));
        }
        Ok(tokens)
    }
}
