//! Log lines, as text or as JSON, on standard error. Only lines about the changes of operators contain values of requests. All control
//! characters are escaped.
//!
//! A thread of its own writes them. If the reader of standard error stops, lines are lost, but nothing waits.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use serde_json::json;

use tollgate_report::output::say_unchanged;
use tollgate_report::text::printable_lines;

/// The severity of a line.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Level {
    /// Only the lines about the start, the changes of operators and the end. Every level writes them.
    Off,
    /// Failures.
    Error,
    /// What an operator should know.
    Warn,
    /// Loads, certificates, and the end.
    Info,
    /// Single connections.
    Debug,
}

/// The form of lines.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// Time, level, message.
    Text,
    /// One object for each line, with `time`, `level` and `message`.
    Json,
}

/// The most lines that wait for the writer.
const MOST_LINES: usize = 1_024;

/// How long the end waits for the writer.
const FLUSH: Duration = Duration::from_secs(1);

/// What the writer gets.
enum Work {
    Line(String),
    /// It is dropped when all lines before it are written.
    Flush(SyncSender<()>),
}

static WRITER: LazyLock<Option<SyncSender<Work>>> = LazyLock::new(|| {
    let (sender, work) = sync_channel(MOST_LINES);
    let write = move || {
        for work in work {
            match work {
                Work::Line(line) => say_unchanged(&line),
                Work::Flush(done) => drop(done),
            }
        }
    };
    thread::Builder::new().name("tollgate-log".to_owned()).spawn(write).ok().map(|_| sender)
});

/// Lines that were lost since the last one that was not. Ordering: Relaxed. It publishes no other data.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The first level, and the form.
static SETTINGS: OnceLock<(Level, LogFormat)> = OnceLock::new();

/// The level in force, as its place in [`LEVELS`]. Ordering: Relaxed. It publishes no other data.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);

const LEVELS: [Level; 5] = [Level::Off, Level::Error, Level::Warn, Level::Info, Level::Debug];

impl Level {
    /// Returns the level with the next more lines.
    pub fn more(self) -> Self {
        LEVELS[(self as usize + 1).min(LEVELS.len() - 1)]
    }
}

/// Sets the first level and the form. Only the first call has an effect.
pub fn set(level: Level, format: LogFormat) {
    if SETTINGS.set((level, format)).is_ok() {
        LEVEL.store(level as u8, Relaxed);
    }
}

/// Changes the level in force, and writes a line about it.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Relaxed);
    always(format_args!("the log has the level {} now", format!("{level:?}").to_lowercase()));
}

/// Returns the level in force.
pub fn level() -> Level {
    LEVELS[usize::from(LEVEL.load(Relaxed))]
}

/// Returns the level at the start.
pub fn first_level() -> Level {
    settings().0
}

fn settings() -> (Level, LogFormat) {
    *SETTINGS.get().unwrap_or(&(Level::Warn, LogFormat::Text))
}

/// Writes a line at the level WARN.
pub fn warn(message: impl fmt::Display) {
    write(Level::Warn, &message);
}

/// Writes a line at the level INFO.
pub fn info(message: impl fmt::Display) {
    write(Level::Info, &message);
}

/// Writes a line at the level INFO, whatever the least level is: about the start, the changes of operators, and the end.
pub fn always(message: impl fmt::Display) {
    send(Level::Info, &message);
}

/// Writes a line at the level WARN, whatever the least level is.
pub fn always_warn(message: impl fmt::Display) {
    send(Level::Warn, &message);
}

/// Whether lines of the level INFO are written.
pub fn has_info() -> bool {
    level() >= Level::Info
}

/// Waits until all lines are written, for at most a second.
pub fn flush() {
    let (done, written) = sync_channel(0);
    if let Some(writer) = &*WRITER
        && writer.try_send(Work::Flush(done)).is_ok()
    {
        let _ = written.recv_timeout(FLUSH);
    }
}

fn write(level: Level, message: &dyn fmt::Display) {
    if level <= self::level() {
        send(level, message);
    }
}

fn send(level: Level, message: &dyn fmt::Display) {
    let line = |level, message: &str| Work::Line(line(settings().1, level, SystemTime::now(), message));
    let Some(writer) = &*WRITER else { return };
    let lost = LOST.swap(0, Relaxed);
    let has_room = lost == 0
        || writer.try_send(line(Level::Warn, &format!("{lost} lines lost: nothing read them"))).is_ok();
    if !has_room || writer.try_send(line(level, &message.to_string())).is_err() {
        LOST.fetch_add(if has_room { 1 } else { lost + 1 }, Relaxed);
    }
}

fn line(format: LogFormat, level: Level, time: SystemTime, message: &str) -> String {
    let time = jiff::Timestamp::try_from(time).map_or_else(|_| "-".to_owned(), |time| format!("{time:.3}"));
    let message = printable_lines(message);
    let level = match level {
        Level::Off | Level::Error => "ERROR",
        Level::Warn => "WARN",
        Level::Info => "INFO",
        Level::Debug => "DEBUG",
    };
    match format {
        LogFormat::Json => format!("{}\n", json!({ "time": time, "level": level, "message": message })),
        // A line break in a message continues it, so that a line that begins with a time is a line of this program.
        LogFormat::Text => format!("{time} {level} {}\n", message.replace('\n', "\n    ")),
    }
}

/// A message that repeats: at most one line in ten seconds, with the number of those left out.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<SystemTime>, u64)>);

impl Seldom {
    /// Writes a line at this level, or counts it.
    pub fn write(&self, level: Level, message: impl fmt::Display) {
        if level > self::level() {
            return;
        }
        let now = SystemTime::now();
        let left_out = {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let recent = last.0.is_some_and(|last| {
                now.duration_since(last).is_ok_and(|since| since < Duration::from_secs(10))
            });
            if recent {
                last.1 += 1;
                return;
            }
            last.0 = Some(now);
            std::mem::take(&mut last.1)
        };
        match left_out {
            0 => write(level, &message),
            n => write(level, &format_args!("{message} ({n} more such lines left out)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_text_or_json() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(
            line(LogFormat::Text, Level::Warn, time, "a\nb\r1970\u{1b}[31m"),
            "1970-01-01T00:00:01.500Z WARN a\n    b\\x0d1970\\x1b[31m\n"
        );
        assert_eq!(
            line(LogFormat::Text, Level::Warn, time, "\u{1b}[2J\r\u{9b}1m"),
            "1970-01-01T00:00:01.500Z WARN \\x1b[2J\\x0d\\xc2\\x9b1m\n"
        );
        assert_eq!(
            line(LogFormat::Json, Level::Info, time, "a \"b\""),
            "{\"time\":\"1970-01-01T00:00:01.500Z\",\"level\":\"INFO\",\"message\":\"a \\\"b\\\"\"}\n"
        );
    }
}
