//! Rules that follow a source of the program's own.

#![allow(clippy::disallowed_methods, reason = "the watcher's thread takes real time")]

use std::error::Error;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use tollgate_rules::{Fetched, Follow, Followed, Format, Hint, RuleText, Rules, Source, Version, Watcher};

use crate::one_rule::{quota, text};

type Answer = Box<dyn FnMut(Option<&Version>) -> Result<Fetched, String> + Send>;

/// A source whose answers the test sets.
#[derive(Clone)]
struct Scripted {
    answer: Arc<Mutex<Answer>>,
    hint: Arc<Mutex<Option<Hint>>>,
    polls: Arc<Mutex<u64>>,
}

impl Scripted {
    fn new(answer: impl FnMut(Option<&Version>) -> Result<Fetched, String> + Send + 'static) -> Self {
        Self { answer: Arc::new(Mutex::new(Box::new(answer))), hint: Arc::default(), polls: Arc::default() }
    }

    fn set(&self, answer: impl FnMut(Option<&Version>) -> Result<Fetched, String> + Send + 'static) {
        *self.answer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Box::new(answer);
    }

    fn polls(&self) -> u64 {
        *self.polls.lock().unwrap()
    }
}

impl Source for Scripted {
    fn name(&self) -> String {
        "test source".to_owned()
    }

    fn fetch(&mut self, known: Option<&Version>) -> Result<Fetched, Box<dyn Error + Send + Sync>> {
        *self.polls.lock().unwrap() += 1;
        let mut answer = self.answer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Ok(answer(known)?)
    }

    fn start_hints(&mut self, hint: Hint) {
        *self.hint.lock().unwrap() = Some(hint);
    }
}

fn constant(
    version: Version,
    text: String,
) -> impl FnMut(Option<&Version>) -> Result<Fetched, String> + Send + 'static {
    move |known| {
        if known == Some(&version) {
            return Ok(Fetched::Unchanged);
        }
        Ok(Fetched::Text(RuleText::new(version.clone(), Format::Yaml, text.clone())))
    }
}

type Told = Receiver<Result<Followed, String>>;

fn follow(source: &Scripted, every: Duration) -> Result<(Arc<Rules>, Watcher, Told), String> {
    let (tell, told) = channel();
    let (rules, watcher) = Rules::builder()
        .follow(Follow::new(source.clone()).every(every), move |loaded| {
            let _ = tell.send(loaded.map_err(|error| error.to_string()));
        })
        .map_err(|error| error.to_string())?;
    Ok((rules, watcher, told))
}

#[track_caller]
fn next(told: &Told) -> Result<Followed, String> {
    told.recv_timeout(Duration::from_secs(60)).expect("the callback is called")
}

const OFTEN: Duration = Duration::from_millis(100);

// G91
#[test]
fn own_source_is_followed() {
    let source = Scripted::new(constant(Version::tag("one"), text(1)));
    let (rules, watcher, told) = follow(&source, OFTEN).unwrap();
    assert_eq!((next(&told).unwrap().version().store(), quota(&rules)), ("one", 1));
    // Tags have no order.
    source.set(constant(Version::tag("another"), text(2)));
    assert!(next(&told).unwrap().to_string().starts_with("version another: 0 added, 1 changed"));
    source.set(constant(Version::tag("one"), text(1)));
    assert!(next(&told).is_ok());
    assert_eq!((quota(&rules), rules.reloads().version), (1, 0));

    // Each error is reported once, and the rules stay.
    source.set(|_| Err("the table is locked".to_owned()));
    assert_eq!(next(&told).unwrap_err(), "the table is locked");
    let polls = source.polls();
    while source.polls() < polls + 3 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(told.try_recv().is_err());
    assert!(rules.reloads().source_fails && rules.last_error().is_some());
    // The source refuses a text itself, for example because of its signature.
    source.set(|known| {
        let version = Version::tag("forged");
        if known == Some(&version) {
            return Ok(Fetched::Unchanged);
        }
        Ok(Fetched::Refused { version, why: "the signature is wrong".to_owned() })
    });
    assert_eq!(next(&told).unwrap_err(), "the signature is wrong");
    source.set(constant(Version::tag("long"), " ".repeat((1 << 20) + 1)));
    assert!(next(&told).unwrap_err().contains("test source: version long has 1048577 bytes"));
    assert_eq!(quota(&rules), 1);

    drop(watcher);
    let polls = source.polls();
    std::thread::sleep(3 * OFTEN);
    assert_eq!(source.polls(), polls, "nothing polls after the drop");
}

// G91
#[test]
fn versions_compare_within_a_store() {
    let source = Scripted::new(constant(Version::number("a", 7), text(7)));
    let (rules, _watcher, told) = follow(&source, OFTEN).unwrap();
    assert!(next(&told).is_ok());
    for (store, number, expected) in [
        ("a", 6_u32, Err("is older than version 7, which is in force")),
        ("a", 7, Err("has another text than the version 7, which is in force")),
        ("a", 8, Ok(0)),
        // Numbers of different stores have no order.
        ("b", 1, Ok(1)),
        ("a", 9, Ok(1)),
    ] {
        source.set(constant(Version::number(store, number.into()), text(number + 10)));
        match (next(&told), expected) {
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (Ok(followed), Ok(warnings)) => {
                assert_eq!((followed.warnings().len(), quota(&rules)), (warnings, u64::from(number) + 10));
            }
            (told, _) => panic!("{store} {number}: {told:?}"),
        }
    }
}

// G91
#[test]
fn first_text_must_be_usable() {
    let fails = |answer: fn() -> Result<Fetched, String>| {
        follow(&Scripted::new(move |_| answer()), OFTEN).err().unwrap()
    };
    assert!(fails(|| Err("no table".to_owned())).starts_with("no table; to start without the source"));
    assert!(fails(|| Ok(Fetched::Unchanged)).contains("the source gave no text"));
    let not_text = || Ok(Fetched::Text(RuleText::new(Version::tag("x"), Format::Yaml, [0xff])));
    assert!(fails(not_text).contains("test source:1:1: this is not UTF-8"));
}

// G92
#[test]
fn hint_polls_soon_and_merges() {
    let source = Scripted::new(constant(Version::number("s", 1), text(1)));
    let (rules, _watcher, told) = follow(&source, Duration::from_secs(3_600)).unwrap();
    assert!(next(&told).is_ok());
    let hint = source.hint.lock().unwrap().clone().expect("the watcher gives a hint");
    source.set(constant(Version::number("s", 2), text(2)));
    let began = Instant::now();
    for _ in 0..1_000 {
        hint.poll_soon();
    }
    let hinted = began.elapsed();
    assert_eq!((next(&told).unwrap().version().as_number(), quota(&rules)), (2, 2));
    assert!(began.elapsed() < Duration::from_secs(3_600), "the poll does not wait for the next one");
    // A busy machine may stop this thread between two hints, and the poll after the first one comes meanwhile.
    let most = 2 + hinted.as_millis() / 200;
    assert!((2..=most).contains(&source.polls().into()), "{} polls, {most} at most", source.polls());
}

/// The watcher continues after a panic of the source, and ends with the rules.
// G91
#[test]
fn panicking_source_is_polled_again() {
    let source = Scripted::new(constant(Version::number("s", 1), text(1)));
    let (rules, _watcher, told) = follow(&source, OFTEN).unwrap();
    assert!(next(&told).is_ok());
    source.set(|_| panic!("a test of panics"));
    assert_eq!(next(&told).unwrap_err(), "test source: the source panicked");
    source.set(constant(Version::number("s", 2), text(2)));
    assert_eq!((next(&told).unwrap().version().as_number(), quota(&rules)), (2, 2));
    drop(rules);
    let began = Instant::now();
    // The callback is dropped when the thread ends.
    while !matches!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)) {
        assert!(began.elapsed() < Duration::from_secs(60), "the thread stays without rules");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a copy that was written at another time.
fn with_time(copy: &str, time: u64) -> String {
    let (head, rest) = copy.split_once("time: ").unwrap();
    let (_, text) = rest.split_once("\n\n").unwrap();
    hashed(&format!("{head}time: {time}\n"), text)
}

/// Returns a copy with these lines above the hash.
fn hashed(head: &str, text: &str) -> String {
    let sum = Sha256::digest(format!("{head}{text}"));
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{head}sha256: {sum}\n\n{text}")
}

/// Cause: the hash was that of the text only, so a damaged time or version was believed, and the next load wrote over the file.
/// A damaged name was taken for that of another source, and the file stayed, so the next load wrote over it too.
// G93
#[test]
fn damaged_copy_is_named_and_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("copy"), folder.path().join("copy.unusable"));
    let new = || Rules::builder().pushed("plane", Some(path.clone()));
    assert!(new().push(pushed_text("1", &json_of(&[("shop", 1)]))).unwrap().is_ok());
    let good = std::fs::read(&path).unwrap();
    let first_of = |line: &[u8]| good.windows(line.len()).position(|part| part == line).unwrap() + line.len();
    let name = first_of(b"\nname: ");
    for at in [
        name,
        name - 2,
        first_of(b"\ntime: "),
        first_of(b"\ntag: "),
        first_of(b"\nsha256: "),
        first_of(b"\n\n"),
        0,
    ] {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let error = new().load_copy("away").unwrap_err().to_string();
        assert!(error.contains("copy cannot be used") && error.contains("copy.unusable"), "{at}: {error}");
        assert_eq!(std::fs::read(&aside).unwrap(), damaged);
        assert!(new().load_copy("away").unwrap().is_none(), "{at}");
    }
    // The whole copy of another source stays, because that source may need it.
    let (head, rest) = str::from_utf8(&good).unwrap().split_once("sha256: ").unwrap();
    let other = hashed(&head.replacen("name: ", "name: x", 1), rest.split_once("\n\n").unwrap().1);
    std::fs::write(&path, &other).unwrap();
    let error = new().load_copy("away").unwrap_err().to_string();
    assert!(error.contains("it is a copy of \"xplane\", not of \"plane\"; give each source"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
    std::fs::write(&path, &good).unwrap();
    assert!(new().load_copy("away").unwrap().is_some());
}

/// The last good copy also holds tags, and every format.
// G93
#[test]
fn copy_keeps_tag_and_format() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let toml = "domain = \"d\"\n\n[[descriptors]]\nkey = \"a\"\nrate_limit = { unit = \"day\", requests_per_unit = 4 }\n";
    let source = Scripted::new(move |_| {
        Ok(Fetched::Text(RuleText::new(Version::tag("W/\"67\""), Format::Toml, toml)))
    });
    let start = |source: &Scripted| Rules::builder().follow(Follow::new(source.clone()).copy(&copy), |_| {});
    drop(start(&source).unwrap());
    source.set(|_| Err("away".to_owned()));
    let (rules, _watcher) = start(&source).unwrap();
    assert_eq!(quota(&rules), 4);
    assert!(rules.last_error().unwrap().to_string().contains("away"));
    drop((rules, _watcher));

    // The warning shows the age of the copy in its largest unit.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (seconds, age) in [(3_000, "50 min"), (7_210, "2 h"), (172_700, "47 h"), (172_810, "2 days")] {
        let written = std::fs::read_to_string(&copy).unwrap();
        std::fs::write(&copy, with_time(&written, now - seconds)).unwrap();
        let (tell, told) = channel();
        let follow = Follow::new(source.clone()).copy(&copy);
        let _kept = Rules::builder().follow(follow, move |loaded| drop(tell.send(loaded))).unwrap();
        let warnings = told.recv().unwrap().unwrap().warnings().to_vec();
        assert!(warnings[0].contains(&format!("which is {age} old")), "{warnings:?}");
    }

    // A version that cannot be written in one line leaves no copy.
    std::fs::remove_file(&copy).unwrap();
    source.set(constant(Version::tag("a\nb"), text(1)));
    let (tell, told) = channel();
    let follow = Follow::new(source).copy(&copy);
    let _kept = Rules::builder().follow(follow, move |loaded| tell.send(loaded.unwrap()).unwrap()).unwrap();
    assert!(told.recv().unwrap().warnings()[0].contains("cannot be written"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn json_of(domains: &[(&str, u32)]) -> String {
    let one = |(domain, units): &(&str, u32)| {
        let limit = format!(r#"{{ "unit": "day", "requests_per_unit": {units} }}"#);
        format!(r#"{{ "domain": "{domain}", "descriptors": [{{ "key": "a", "rate_limit": {limit} }}] }}"#)
    };
    format!("[{}]", domains.iter().map(one).collect::<Vec<_>>().join(",\n"))
}

fn pushed_text(tag: &str, text: &str) -> Result<Fetched, Box<dyn Error + Send + Sync>> {
    Ok(Fetched::Text(RuleText::new(Version::tag(tag), Format::Json, text)))
}

// G138
#[test]
fn pushed_texts_have_several_domains() {
    let mut pushed = Rules::builder().allow_removals(true).pushed("plane", None);
    assert_eq!(pushed.rules().reloads().successes, 0);
    let two = json_of(&[("shop", 1), ("edge", 2)]);
    let loaded = pushed.push(pushed_text("1", &two)).unwrap().unwrap();
    assert_eq!((loaded.version().store(), pushed.rules().reloads().rules), ("1", 2));
    // The text in force again loads nothing.
    assert!(pushed.push(pushed_text("1", &two)).is_none());
    // An error is reported once, and the rules stay.
    let away = || Err("plane: away".into());
    assert_eq!(pushed.push(away()).unwrap().unwrap_err().to_string(), "plane: away");
    assert!(pushed.push(away()).is_none());
    assert_eq!(pushed.rules().last_error().unwrap().to_string(), "plane: away");
    assert!(pushed.push(pushed_text("1", &two)).is_none() && pushed.rules().last_error().is_none());
    // All problems of all domains are in one message, with their places.
    let wrong = r#"[{ "domain": "a", "descriptors": 1 }, { "domain": "b" }, { "descriptors": [] }]"#;
    let error = pushed.push(pushed_text("2", wrong)).unwrap().unwrap_err().to_string();
    assert!(error.contains("plane[0]:1:") && error.contains("plane[2]:1:"), "{error}");
    let same = json_of(&[("shop", 1), ("shop", 2)]);
    let error = pushed.push(pushed_text("3", &same)).unwrap().unwrap_err().to_string();
    assert!(error.contains("plane[0]:1 already has the domain \"shop\""), "{error}");
    let error = pushed.push(pushed_text("4", "[{]")).unwrap().unwrap_err().to_string();
    assert!(error.contains("plane:1:3: this is not valid JSON"), "{error}");
    assert_eq!((pushed.rules().reloads().rules, pushed.rules().reloads().errors), (2, 3));
    assert!(pushed.push(pushed_text("5", "[]")).unwrap().is_ok());
    assert_eq!(pushed.rules().reloads().rules, 0);
}

// G139
#[test]
fn pushed_texts_have_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let new = |name: &str| Rules::builder().pushed(name, Some(path.clone()));
    let mut first = new("plane");
    assert!(first.load_copy("no rules yet").unwrap().is_none());
    assert!(first.push(pushed_text("1", &json_of(&[("shop", 1), ("edge", 2)]))).unwrap().is_ok());
    let mut second = new("plane");
    let copied = second.load_copy("no rules yet").unwrap().unwrap();
    assert!(copied.warnings()[0].contains("no rules yet"), "{copied}");
    assert_eq!((second.rules().reloads().rules, copied.version().store()), (2, "1"));
    assert!(second.rules().last_error().is_some());
    // Then the same text arrives.
    assert!(second.push(pushed_text("1", &json_of(&[("shop", 1), ("edge", 2)]))).is_none());
    assert!(second.rules().last_error().is_none());
    let mut other = new("another plane");
    assert!(other.load_copy("away").unwrap_err().to_string().contains("it is a copy of \"plane\""));
    assert_eq!(other.rules().reloads().successes, 0);
    // Longer than a polled text may be.
    let many = " ".repeat(1 << 20) + &json_of(&[("shop", 1)]);
    assert!(first.push(pushed_text("2", &many)).unwrap().unwrap().warnings().is_empty());
    assert!(new("plane").load_copy("away").unwrap().is_some());
}
