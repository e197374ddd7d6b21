//! The recognition of a file's format: what collectors wrote before its lines or around them, and the format itself.

use std::borrow::Cow;
use std::io::{self, Cursor, Read};
use std::str::FromStr;

use super::decompress::{BYTE_ORDER_MARK, Compression, InputSource, LONGEST_LINE};
use super::elements::{Elements, RecordPlace};
use super::fields::{Format, head_lines, is_time_name};
use super::layout::{Layout, known};
use super::prefix::{Cut, Prefix};
use super::sample::RECORDS;
use super::{Selection, clf, jsonl, w3c};

/// The number of lines that decide about the format.
const LINES: usize = 20;

/// How deep a line may be wrapped: compose, then a runtime, then JSON.
const DEPTH: usize = 4;

/// The usual names of a field with a line of another format, as docker, journald and collectors write them.
const INNER: [&str; 10] =
    ["log", "MESSAGE", "message", "msg", "line", "textPayload", "body", "_raw", "@message", "short_message"];

/// A format of lines that the user names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// The common and the combined log format, with or without a virtual host.
    Common,
    /// The format of a table entry, or of a server's own string.
    Layout(Layout),
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A directive of Apache's may name the format after the file.
        let name = match text.trim().rsplit_once(' ') {
            Some((directive, name)) if directive.starts_with("CustomLog ") => name,
            _ => text.trim(),
        };
        if known::COMMON.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(Self::Common);
        }
        match known::all().find(|layout| layout.name.eq_ignore_ascii_case(name)) {
            Some(layout) => Ok(Self::Layout(layout)),
            None => Layout::compile("of --log-format", text).map(Self::Layout),
        }
    }
}

/// A step from a line of the file to a line of the format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeelStep {
    /// Cut this prefix off.
    Cut(Prefix),
    /// Take the text of a field.
    Open {
        /// The name of the field.
        field: String,
        /// Whether each line ends with a line feed, and a text without one continues in the next object of its stream. docker
        /// divides lines of more than 16 KiB so.
        divided: bool,
    },
}

/// How a file is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadPlan {
    /// Where the records of a JSON file are, if they are not lines.
    pub place: Option<RecordPlace>,
    /// What is done to each line, in order.
    pub steps: Vec<PeelStep>,
    /// The format of the result.
    pub format: Format,
    /// The fields of a text format.
    pub layout: Option<Layout>,
}

impl ReadPlan {
    /// Reads the lines of the file in this format, as they are.
    pub fn of(format: Format) -> Self {
        Self { place: None, steps: Vec::new(), format, layout: None }
    }

    fn with(layout: Layout) -> Self {
        Self { layout: Some(layout), ..Self::of(Format::Layout) }
    }

    /// Returns the plan for a file; `None` if the format is not recognised.
    pub fn guess(head: &[u8], chosen: &Selection) -> Option<Self> {
        let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
        let of_json = matches!(chosen.format, Format::Auto | Format::Jsonl);
        let is_field = |name: &str| match &chosen.time {
            Some(time) => time.0.iter().any(|field| field == name),
            None => is_time_name(name),
        };
        let place = RecordPlace::guess(head, is_field).filter(|_| of_json);
        let mut lines = Vec::new();
        match &place {
            Some(place) => in_place(head, place, |line| lines.push(line.to_vec())),
            None => lines.extend(head_lines(head).take(LINES).map(<[u8]>::to_vec)),
        }
        lines.truncate(LINES);
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        let plan = recognise(&lines, chosen, 0);
        match (plan, place) {
            (Some(plan), place) => Some(Self { place, ..plan }),
            (None, Some(place)) => Some(Self { place: Some(place), ..Self::of(Format::Jsonl) }),
            (None, None) => None,
        }
    }

    /// Returns the first lines of the format.
    pub fn first_lines(&self, head: &[u8]) -> Vec<Vec<u8>> {
        let mut peel = Peel::new(self);
        let mut lines = Vec::new();
        let mut take = |line: &[u8]| {
            if let Ok(Some(line)) = peel.open(line)
                && lines.len() < RECORDS
            {
                lines.push(line.into_owned());
            }
        };
        match &self.place {
            Some(place) => in_place(head, place, take),
            None => head_lines(head).take(2 * RECORDS).for_each(&mut take),
        }
        lines
    }

    /// The name of the format, and what was removed, for people.
    pub fn name(&self) -> String {
        let format = match &self.layout {
            Some(layout) => layout.name.clone(),
            None => tollgate_report::human::name(self.format).to_string(),
        };
        let of = match &self.place {
            Some(RecordPlace::Array) => "array of ",
            Some(RecordPlace::Named(name)) => &format!("array {name:?} of "),
            Some(RecordPlace::Objects) | None => "",
        };
        let steps = self.steps.iter().map(|step| match step {
            PeelStep::Cut(prefix) => format!(" after the prefix of {}", prefix.name()),
            PeelStep::Open { field, .. } => format!(" in the field {field:?}"),
        });
        format!("{of}{format}{}", steps.rev().collect::<String>())
    }
}

/// Calls `take` with each record in the first part of a JSON file.
fn in_place(head: &[u8], place: &RecordPlace, mut take: impl FnMut(&[u8])) {
    let source = InputSource {
        name: String::new(),
        head: Vec::new(),
        compression: Compression::Plain,
        reader: Cursor::new(head.to_vec()).chain(Box::new(io::empty())),
    };
    let mut elements = Elements::new(source, place.clone());
    // Reading from memory does not fail.
    for _ in 0..RECORDS {
        let Ok(Some(record)) = elements.next_record() else { break };
        take(record.bytes);
    }
}

/// Returns the plan for these lines.
fn recognise(lines: &[&[u8]], chosen: &Selection, depth: usize) -> Option<ReadPlan> {
    if lines.is_empty() || depth > DEPTH {
        return None;
    }
    let after = |step: PeelStep, lines: &[&[u8]]| {
        let mut plan = recognise(lines, chosen, depth + 1)?;
        plan.steps.insert(0, step);
        Some(plan)
    };
    let cut = |prefix: Prefix| {
        let cuts: Vec<Cut<'_>> = lines.iter().filter_map(|line| prefix.cut(line)).collect();
        let mut parts = Parts::default();
        let whole: Vec<Cow<'_, [u8]>> = cuts
            .iter()
            .filter_map(|cut| parts.join(cut.stream, cut.continues, Cow::Borrowed(cut.rest)))
            .collect();
        let rest: Vec<&[u8]> = whole.iter().map(AsRef::as_ref).collect();
        if 2 * cuts.len() > lines.len() { after(PeelStep::Cut(prefix), &rest) } else { None }
    };
    let (strong, weak): (Vec<Prefix>, Vec<Prefix>) = Prefix::ALL.into_iter().partition(|one| !one.is_weak());
    let open = |name: &str| {
        let has_end = |line: &&[u8]| jsonl::text(line, name).is_ok_and(|text| text.ends_with(b"\n"));
        let divided = lines.iter().any(|line| stream(line).is_some() && has_end(line));
        let mut parts = Parts::default();
        let opened = lines.iter().map(|line| opened(line, (name, divided), &mut parts));
        let opened: Vec<_> = opened.filter_map(Result::ok).collect();
        let texts: Vec<&[u8]> = opened.iter().flatten().map(AsRef::as_ref).collect();
        let step = PeelStep::Open { field: name.to_owned(), divided };
        let plan = after(step, &texts).filter(|_| 2 * opened.len() > lines.len())?;
        // The body of a request, for example, is an object too, but no record.
        let is_record = |text: &&[u8]| {
            jsonl::fields(text).is_ok_and(|fields| fields.iter().any(|(name, _)| is_time_name(name)))
        };
        let plain = plan.format != Format::Jsonl || plan.steps.len() > 1 || texts.iter().any(is_record);
        (plain || chosen.inner.is_some()).then_some(plan)
    };
    let inner = || match &chosen.inner {
        Some(name) => open(name),
        None => INNER.into_iter().find_map(open),
    };
    let json =
        || 2 * lines.iter().filter(|line| line.trim_ascii_start().starts_with(b"{")).count() > lines.len();
    strong
        .into_iter()
        .find_map(cut)
        .or_else(|| if json() { inner() } else { None })
        .or_else(|| direct(lines, chosen))
        .or_else(|| weak.into_iter().find_map(cut))
        .or_else(|| common(lines, chosen))
        .or_else(|| {
            let wanted = matches!(chosen.format, Format::Auto | Format::Jsonl) && chosen.log_format.is_none();
            (wanted && json() && chosen.inner.as_deref().is_none_or(|_| depth > 0))
                .then(|| ReadPlan::of(Format::Jsonl))
        })
}

/// Returns the plan for lines of a text format without anything around it. A virtual host before the common log format may
/// look like a time, so that format comes later.
fn direct(lines: &[&[u8]], chosen: &Selection) -> Option<ReadPlan> {
    match (&chosen.log_format, chosen.format) {
        (Some(LogFormat::Layout(layout)), _) => {
            let fits = |line: &&&[u8]| layout.split(line, &mut Vec::new()).is_ok();
            (2 * lines.iter().filter(fits).count() > lines.len()).then(|| ReadPlan::with(layout.clone()))
        }
        (None, Format::Auto) if lines.iter().any(|line| w3c::declared(line).is_some()) => {
            Some(ReadPlan::of(Format::W3c))
        }
        (None, Format::Auto) => known::all().find(|layout| layout.fits_most(lines)).map(ReadPlan::with),
        _ => None,
    }
}

/// Returns the plan for lines of the common log format.
fn common(lines: &[&[u8]], chosen: &Selection) -> Option<ReadPlan> {
    let is_wanted = match &chosen.log_format {
        Some(format) => *format == LogFormat::Common,
        None => matches!(chosen.format, Format::Auto | Format::Clf),
    };
    let fits = |line: &&&[u8]| clf::parse(line).is_ok();
    (is_wanted && 2 * lines.iter().filter(fits).count() > lines.len()).then(|| ReadPlan::of(Format::Clf))
}

impl LogFormat {
    /// Returns the plan for lines that this format does not fit, so that each of them gets its reason.
    pub fn plan(&self) -> ReadPlan {
        match self {
            Self::Common => ReadPlan::of(Format::Clf),
            Self::Layout(layout) => ReadPlan::with(layout.clone()),
        }
    }
}

/// Returns the stream of an object of docker's `json-file`.
fn stream(line: &[u8]) -> Option<usize> {
    match &*jsonl::text(line, "stream").ok()? {
        b"stdout" => Some(0),
        b"stderr" => Some(1),
        _ => None,
    }
}

/// Returns the text of a field without white space at its end; `None` if the line continues in the next object.
fn opened<'l>(
    line: &'l [u8],
    (field, divided): (&str, bool),
    parts: &mut Parts,
) -> Result<Option<Cow<'l, [u8]>>, String> {
    let text = jsonl::text(line, field)?;
    let continues = !text.ends_with(b"\n");
    // Most lines are whole, so their stream does not matter.
    let is_part = divided && (continues || parts.0.iter().any(|before| !before.is_empty()));
    let whole = match if is_part { stream(line) } else { None } {
        Some(stream) => parts.join(stream, continues, text),
        None => Some(text),
    };
    Ok(whole.map(|text| match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii_end()),
        Cow::Owned(text) => Cow::Owned(text.trim_ascii_end().to_vec()),
    }))
}

/// The first parts of lines that a container runtime divided, by stream.
#[derive(Debug, Default)]
struct Parts([Vec<u8>; 2]);

impl Parts {
    /// Returns the whole line of which this is the last part; `None` if it is not the last.
    fn join<'l>(&mut self, stream: usize, continues: bool, part: Cow<'l, [u8]>) -> Option<Cow<'l, [u8]>> {
        let before = &mut self.0[stream.min(1)];
        if continues && before.len() < LONGEST_LINE {
            before.extend_from_slice(&part);
            None
        } else if before.is_empty() {
            Some(part)
        } else {
            before.extend_from_slice(&part);
            Some(Cow::Owned(std::mem::take(before)))
        }
    }
}

/// Removes what is around lines.
#[derive(Debug)]
pub struct Peel {
    steps: Vec<PeelStep>,
    /// The parts of lines behind prefixes, and those in fields.
    parts: Parts,
    opened: Parts,
    /// The number of lines whose prefix was cut off.
    pub cut: u64,
}

impl Peel {
    /// Removes what this plan names.
    pub fn new(plan: &ReadPlan) -> Self {
        Self { steps: plan.steps.clone(), parts: Parts::default(), opened: Parts::default(), cut: 0 }
    }

    /// Returns the line without what is around it; `None` if it continues in the next one.
    ///
    /// # Errors
    /// Returns an error if the line is no JSON object with the field, although it should be.
    pub fn open<'l>(&mut self, line: &'l [u8]) -> Result<Option<Cow<'l, [u8]>>, String> {
        let mut line = Cow::Borrowed(line);
        for step in &self.steps {
            match step {
                PeelStep::Cut(prefix) => {
                    let Some(cut) = prefix.cut(&line) else { continue };
                    self.cut += 1;
                    let Cut { rest, continues, stream } = cut;
                    let length = rest.len();
                    let part = match line {
                        Cow::Borrowed(whole) => Cow::Borrowed(&whole[whole.len() - length..]),
                        Cow::Owned(mut whole) => {
                            whole.drain(..whole.len() - length);
                            Cow::Owned(whole)
                        }
                    };
                    let Some(whole) = self.parts.join(stream, continues, part) else { return Ok(None) };
                    line = whole;
                }
                PeelStep::Open { field, divided } => {
                    let text = opened(&line, (field, *divided), &mut self.opened)?;
                    let Some(whole) = text.map(Cow::into_owned) else { return Ok(None) };
                    line = Cow::Owned(whole);
                }
            }
        }
        Ok(Some(line))
    }

    /// Returns the lines whose last part is missing.
    pub fn unfinished(&mut self) -> impl Iterator<Item = Vec<u8>> {
        let [parts, opened] = [&mut self.parts, &mut self.opened].map(std::mem::take);
        parts.0.into_iter().chain(opened.0).filter(|part| !part.is_empty())
    }
}
