//! The last good copy: a file from which a process starts while its source is away.
//!
//! ```text
//! tollgate rules copy 2
//! name: tollgate:rules:{limits}
//! store: 5f1c…          (or `tag: …`)
//! version: 7
//! format: yaml
//! time: 1700000000
//! sha256: …
//!
//! the text
//! ```
//! The hash is that of all other lines and of the text, because a damaged version or time would be believed otherwise.
//!
//! The file is written in one step: a temporary file in the same folder, synchronised, gets the name. So a reader finds
//! the old copy or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::source::{RuleText, Version};

const FIRST_LINE: &str = "tollgate rules copy 2";

/// The maximum length of the lines above the text.
const MAX_HEAD: usize = 4096;

/// Writes a copy.
pub(super) fn write(path: &Path, name: &str, text: &RuleText) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file_name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(file_name);
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = folder.join(temporary);
    let written = write_new(&temporary, name, text).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| _ = fs::remove_file(&temporary))?;
    // Makes the new name durable. Some systems cannot synchronise folders.
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn write_new(path: &Path, name: &str, text: &RuleText) -> io::Result<()> {
    // A process with the same number may have ended while it wrote.
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let kind = if text.version.is_tag() { "tag" } else { "store" };
    let version = format!("{kind}: {}\nversion: {}", text.version.store(), text.version.as_number());
    let head = format!("{FIRST_LINE}\nname: {name}\n{version}\nformat: {}\ntime: {now}\n", text.format);
    let sha256 = hex_sha256(&[head.as_bytes(), &text.bytes].concat());
    let head = format!("{head}sha256: {sha256}\n\n");
    if head.len() > MAX_HEAD || head.lines().count() != 8 {
        return Err(io::Error::other(
            "the name or the version of the source has a line break or is too long",
        ));
    }
    file.write_all(head.as_bytes())?;
    file.write_all(&text.bytes)?;
    file.sync_all()
}

/// Reads a copy with a text of at most `most` bytes. Returns the text, and when the copy was written. `None` if there is
/// no file.
pub(super) fn read(path: &Path, name: &str, most: usize) -> Result<Option<(RuleText, SystemTime)>, String> {
    let message = |error: io::Error| error.to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(message(error)),
    };
    // The open file is checked, so nothing can replace it in between.
    check_owner(&file)?;
    let mut bytes = Vec::new();
    let all = (most + MAX_HEAD) as u64;
    file.take(all + 1).read_to_end(&mut bytes).map_err(message)?;
    if bytes.len() as u64 > all {
        return Err(set_aside(path, format!("it has more than {most} bytes of rules")));
    }
    let CopyFile { name: of, text, time } = parse(&bytes).map_err(|why| set_aside(path, why))?;
    // Only a whole copy can say whose it is. It stays, because another process may need it.
    if of != name {
        return Err(format!("it is a copy of {of:?}, not of {name:?}; give each source its own path"));
    }
    Ok(Some((text, time)))
}

/// The contents of a copy.
struct CopyFile {
    name: String,
    text: RuleText,
    time: SystemTime,
}

/// Keeps a damaged copy under another name, because the next load writes over it. Returns the reason, and where it is now.
fn set_aside(path: &Path, why: String) -> String {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".unusable");
    match fs::rename(path, &aside) {
        Ok(()) => format!("{why}; the file is now {}", aside.display()),
        Err(error) => format!("{why}; and it cannot be renamed to {}: {error}", aside.display()),
    }
}

fn parse(bytes: &[u8]) -> Result<CopyFile, String> {
    let mut lines = bytes.splitn(9, |&byte| byte == b'\n');
    let mut next = |field: &str| -> Result<String, String> {
        let line = lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
        let value = line.strip_prefix(field).ok_or_else(|| format!("its line {field:?} is missing"))?;
        Ok(value.to_owned())
    };
    next(FIRST_LINE)?;
    let name = next("name: ")?;
    let store = next("")?;
    let number = next("version: ")?.parse().map_err(|_| "its version is invalid")?;
    let version = match (store.strip_prefix("tag: "), store.strip_prefix("store: ")) {
        (Some(tag), _) => Version::tag(tag),
        (_, Some(store)) => Version::number(store, number),
        _ => return Err("its line \"store: \" is missing".to_owned()),
    };
    let format = next("format: ")?.parse().map_err(|_| "its format is invalid")?;
    let seconds = next("time: ")?.parse().map_err(|_| "its time is invalid")?;
    let sha256 = next("sha256: ")?;
    next("")?;
    let text = lines.next().ok_or("its text is missing")?;
    let head = bytes.windows(8).position(|part| part == b"\nsha256:").map_or(&bytes[..0], |at| &bytes[..=at]);
    if hex_sha256(&[head, text].concat()) != sha256 {
        return Err("it is damaged: the SHA-256 does not match".to_owned());
    }
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).ok_or("its time is invalid")?;
    Ok(CopyFile { name, text: RuleText::new(version, format, text), time })
}

/// Refuses a file that another user can write, or that belongs to another user except root.
#[cfg(unix)]
fn check_owner(file: &File) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    if found.mode() & 0o022 != 0 {
        return Err("other users can write it: use `chmod 600`".to_owned());
    }
    // The folder of the process on Linux belongs to its effective user. Elsewhere the owner is not checked.
    match fs::metadata("/proc/self") {
        Ok(own) if found.uid() != 0 && found.uid() != own.uid() => {
            Err("it belongs to another user".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check_owner(_file: &File) -> Result<(), String> {
    Ok(())
}

/// Returns the SHA-256 in hexadecimal digits.
pub(super) fn hex_sha256(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
