//! From files to records: decompress, detect the format, choose the fields, parse, number the keys, sort by time.
//!
//! A line that does not parse is counted and skipped; the first few are kept for the report. Input that ends early ends
//! the run, because half a log would give wrong answers without a warning.

pub mod choice;
pub mod clf;
pub mod client;
pub mod decompress;
pub mod delimited;
pub mod elements;
pub mod fields;
pub mod jsonl;
pub mod keys;
pub mod layout;
pub mod prefix;
pub mod recognise;
pub mod row;
pub mod sample;
pub mod skipped;
pub mod time;
pub mod w3c;
pub mod wanted;

use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use indicatif::ProgressBar;

use self::client::{AddressCounts, Clients};
use self::decompress::{InputSource, Line, Lines, Position, read_error};
use self::delimited::{Bounded, Delimiter};
use self::elements::{Elements, RecordPlace};
use self::fields::{FieldList, Format, head_lines, is_text};
use self::keys::Keys;
use self::layout::Spans;
use self::recognise::{LogFormat, Peel, PeelStep, ReadPlan};
use self::row::{ChosenFields, Columns, Row};
use self::sample::{RECORDS, Role, Sample};
use self::skipped::Skipped;
use self::time::{TimeFormat, TimeParser};
use self::wanted::{Fields, no_field};
use tollgate_report::error::{Error, plain};
use tollgate_report::text::printable;
use tollgate_report::{decimal, human};

/// The reason why a line that is too long gives no record.
const TOO_LONG: &str = "longer than 1 MiB: not a log line";

/// One request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The time, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// The cost, in units.
    pub cost: u64,
    /// The client, as a number in [`Trace::keys`]; or the record's fields, as a number in [`Trace::fields`], if there
    /// are any.
    pub key: u32,
}

/// All data that was read.
#[derive(Debug, Default)]
pub struct Trace {
    /// The requests, in the order of replay.
    pub records: Vec<Record>,
    /// The keys' texts.
    pub keys: Keys,
    /// Fields that replace a key.
    pub fields: Option<Fields>,
    /// Lines that did not parse.
    pub skipped: Skipped,
    /// Lines from which the prefix of a collector was cut off.
    pub prefixes: u64,
    /// Records that were older than the one before them in the input.
    pub out_of_order: u64,
    /// The inputs and their formats, one line each.
    pub notes: Vec<String>,
    /// Which field is the client of each input, and why, if the command line does not name it.
    pub client_notes: Vec<String>,
    /// The likely problem with the keys.
    pub warnings: Vec<String>,
    /// The settings for which addresses are one client; `None` for generated requests.
    pub clients: Option<Clients>,
    /// The changes to addresses.
    pub seen: AddressCounts,
}

/// The inputs and how to read them.
#[derive(Args, Clone, Debug)]
pub struct Selection {
    /// Logs to read, in any mix of formats and compression; - is standard input [default: a generated day]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Format of the files
    #[arg(long, value_enum, default_value_t = Format::Auto, help_heading = "Input", hide_possible_values = false)]
    pub format: Format,

    /// Character between the columns of CSV: ';', '|' or another one; \t for a tab [default: comma, semicolon or bar, as in
    /// the header]
    #[arg(long, value_name = "CHARACTER", help_heading = "Input")]
    pub delimiter: Option<Delimiter>,

    /// Format of the lines, as the server's configuration has it: an nginx log_format string, an Apache LogFormat string,
    /// a HAProxy log-format string, an Envoy format string, or a known name such as combined or haproxy
    ///
    /// Give the string, or the whole directive, in one argument. Its fields have the server's own names
    /// ($http_x_forwarded_for, %{X-Forwarded-For}i, %REQ(X-FORWARDED-FOR)%), which --key, --time and --cost take, and
    /// common names (ip, user, time, request, method, path, bare_path, status, bytes, referer, agent, vhost).
    ///
    /// Without this flag, these formats are recognised: nginx, Apache, Envoy, Istio, HAProxy, Squid, Traefik, Caddy,
    /// ingress-nginx, load balancers and S3 of AWS, IIS and CloudFront. Prefixes of syslog, of container runtimes and of
    /// compose are cut off.
    #[arg(long, value_name = "STRING", conflicts_with_all = ["format", "delimiter"], help_heading = "Input")]
    pub log_format: Option<LogFormat>,

    /// JSON field that holds the lines, such as log or MESSAGE [default: a usual name, if its text has a known format]
    #[arg(long, value_name = "FIELD", help_heading = "Input")]
    pub inner: Option<String>,

    /// Field of the request's time; several are joined by a space [default: a usual name, such as ts, time or date+time]
    ///
    /// For nested JSON, use a path: request.time, or ips[0] for an element of an array ([-1] for the last). A name that
    /// contains dots (id.orig_h) works too.
    #[allow(rustdoc::broken_intra_doc_links, reason = "the text of --help, without links")]
    #[arg(long, value_name = "FIELD[+FIELD…]", help_heading = "Input")]
    pub time: Option<FieldList>,

    /// Format of the time: auto, rfc3339, clf, s, ms, us, ns or a strftime pattern
    ///
    /// s, ms, us and ns count from 1970 and may have a fraction, which is kept to the nanosecond. A time without an
    /// offset is UTC.
    #[arg(long, value_name = "FORMAT", default_value = "auto", help_heading = "Input")]
    pub time_format: TimeFormat,

    /// Field that identifies the client to limit; several fields make one key [default: the field that has addresses, or
    /// else a usual name such as user]
    ///
    /// The first records decide. A field that is mostly empty or has one value only is not chosen by its name, and the requested
    /// host is not chosen beside another field with addresses. If two fields would do, the program names both and stops.
    #[arg(long, value_name = "FIELD[+FIELD…]", help_heading = "Input")]
    pub key: Option<FieldList>,

    /// The settings for which addresses are one client.
    #[command(flatten)]
    pub clients: Clients,

    /// Field of the request's cost, in whole units [default: every request costs 1]
    ///
    /// To limit bytes in log format: --cost bytes --limit 1000000/min.
    #[arg(long, value_name = "FIELD", help_heading = "Input")]
    pub cost: Option<String>,

    /// Replay in the order of the input instead of by time
    #[arg(long, help_heading = "Input")]
    pub no_sort: bool,

    /// Stop at the first line that does not parse instead of counting and skipping it
    #[arg(long, help_heading = "Input")]
    pub strict: bool,

    /// Accept an input of which more than a tenth of the lines are skipped
    ///
    /// Such an input is probably read in a wrong way, and its results are those of a part. Without this flag, replay ends with
    /// exit code 3, after its results, and suggest recommends nothing.
    #[arg(long, conflicts_with = "strict", help_heading = "Input")]
    pub allow_skipped: bool,
}

/// Reads all files: these fields of each request, or its key.
///
/// # Errors
/// Returns an error if a file cannot be read to its end, its format or fields cannot be detected, it holds no record,
/// or no record has a named field.
pub fn load(selection: &Selection, fields: Option<Fields>, progress: &ProgressBar) -> Result<Trace, Error> {
    let mut trace = Trace { fields, ..Trace::default() };
    trace.clients = Some(selection.clients);
    for path in &selection.files {
        load_source(InputSource::open(path, progress)?, selection, &mut trace)?;
    }
    if trace.records.is_empty() {
        let (files, skipped) = (names(&selection.files), trace.skipped.lines());
        return Err(Error::run(match skipped {
            0 => format!("no records in {files}: only empty lines, or only a header"),
            _ => {
                let lines = trace.skipped.shown();
                format!("no usable record in {files}; lines skipped: {skipped}\n{}", lines.trim_end())
            }
        }));
    }
    trace.out_of_order = trace.records.windows(2).filter(|pair| pair[1].at < pair[0].at).count() as u64;
    if !selection.no_sort && trace.out_of_order > 0 {
        trace.records.sort_by_key(|record| record.at);
    }
    trace.warnings.extend(trace.partly());
    if let Some(fields) = &trace.fields {
        fields.all_found(&names(&selection.files))?;
    } else {
        let mut counts = vec![0; trace.keys.len()];
        trace.records.iter().for_each(|record| counts[record.key as usize] += 1);
        trace.warnings.extend(warning(&counts, |key| trace.keys.name(key), "--key"));
    }
    Ok(trace)
}

/// With fewer requests there is no warning: one client for all of them, or one client for each, is normal.
const FEW: u64 = 20;

/// Returns the likely problem with a key, from the number of requests per value: one value has nearly all requests, or
/// nearly every request has its own value. `flag` selects another key.
pub fn warning(counts: &[u64], name: impl Fn(u32) -> String, flag: &str) -> Option<String> {
    let requests: u64 = counts.iter().sum();
    let values = counts.iter().filter(|&&count| count > 0).count() as u64;
    let nearly_all = |part: u64| part.saturating_mul(10) >= requests.saturating_mul(9);
    let (busiest, &most) = (0..).zip(counts).max_by_key(|&(_, count)| count)?;
    if requests < FEW {
        None
    } else if nearly_all(most) {
        Some(format!(
            "key {:?} has {} of {}: is it a client? Choose another field with {flag}",
            printable(name(busiest).as_bytes(), 60),
            human::count(most),
            human::counted(requests, "request"),
        ))
    } else if nearly_all(values) {
        Some(format!(
            "nearly every request has its own key ({} of {}), so limits have no effect: choose another field with {flag}",
            human::counted(values, "key"),
            human::counted(requests, "request"),
        ))
    } else {
        None
    }
}

/// Files as one text.
pub fn names(files: &[PathBuf]) -> String {
    files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Reads one opened input into the trace, as [`load`] does each file.
///
/// # Errors
/// The same as for [`load`], but an input without records is not an error.
pub fn load_source(source: InputSource, selection: &Selection, trace: &mut Trace) -> Result<(), Error> {
    let name = source.name.clone();
    let plan = plan_of(&source, selection)?;
    let format = plan.format;
    let delimiter = selection.delimiter.or_else(|| Delimiter::guess(header_of(&source.head)));
    let delimiter = match format {
        Format::Tsv => Delimiter::TAB,
        _ => delimiter.unwrap_or(Delimiter::COMMA),
    };
    let sample = first_records(&source, &plan, delimiter)?;
    let time = match &selection.time {
        Some(FieldList(fields)) => fields.clone(),
        None => fields::choose_time(&sample, &selection.time_format, &name)?,
    };
    let mut client = None;
    let key = match (&trace.fields, &selection.key) {
        (Some(fields), _) => {
            if let Some(key) = fields.guessed_client() {
                let chosen = choice::address(&sample, selection.clients, &name, key)?.unwrap_or_default();
                trace.client_notes.extend(chosen.why);
                client = chosen.fields.into_iter().next();
            }
            Vec::new()
        }
        (None, Some(FieldList(fields))) => fields.clone(),
        (None, None) => {
            let chosen = choice::client(&sample, selection.clients, &name)?;
            trace.client_notes.extend(chosen.why);
            chosen.fields
        }
    };
    let chosen = ChosenFields { time, key, cost: selection.cost.clone() };
    let others = match &mut trace.fields {
        Some(fields) => fields.resolve(&sample, client.as_deref(), &name)?,
        None => Vec::new(),
    };
    let read = chosen.key.iter().chain(others.iter().flatten());
    let mut columns = read.filter_map(|name| Some(&sample.fields[sample.column(name)?]));
    if let Some(mixed) = columns.find(|field| field.is_mixed) {
        return Err(choice::several_columns(&name, &mixed.name));
    }
    let missing = |field: String| no_field(&name, &field, &sample.names());
    let ChosenFields { time, key, .. } = &chosen;
    let no_client = |name: &String| {
        let role = sample.column(name).map(|at| sample.fields[at].role);
        match format {
            Format::Clf => !matches!(role, Some(Role::Client(_))),
            _ => client::is_target(name) || role == Some(Role::Target),
        }
    };
    // The format string may say the form of the time.
    let of_layout =
        plan.layout.as_ref().zip(time.first()).and_then(|(layout, name)| layout.time_format(name));
    let time_format = match (&selection.time_format, of_layout, &time[..]) {
        (TimeFormat::Auto, Some(format), [_]) => format,
        (format, ..) => format,
    };
    let plain_key = key.iter().map(no_client).collect();
    let kinds = trace.fields.as_ref().map_or_else(Vec::new, Fields::kinds);
    let of_time = |name: &String| sample.column(name).map(|at| &sample.fields[at]);
    let time_field = of_time(&time[0]).filter(|_| time.len() == 1);
    let mut times = TimeParser::new(time_format.clone(), time);
    if time_field.is_some_and(|field| fields::has_own_origin(field, time_format)) {
        trace.warnings.push(format!(
            "{name}: the times in {:?} are numbers before 1990; if they do not count from another origin, name the field with \
             --time, or the unit with --time-format",
            time[0]
        ));
    } else {
        times = times.plausible();
    }
    if time_field.is_some_and(|field| fields::has_days(field) && *time_format == TimeFormat::Auto) {
        trace.warnings.push(format!(
            "{name}: the times in {:?} are dates without a time of day, so all requests of a day are at midnight; name the \
             field of the time of day too, as in --time date+time",
            time[0]
        ));
    }
    let mut reader = FileReader {
        time: times,
        row: Row::new(Some(selection.clients)).with_kinds(plain_key, kinds),
        name: &name,
        strict: selection.strict,
        trace,
    };
    let before = reader.trace.records.len();
    let columns = || Columns::new(&chosen, &others, |name| sample.column(name)).map_err(missing);
    let mut peel = Peel::new(&plan);
    let place = plan.place.clone();
    match (format, &plan.layout) {
        (Format::Clf, _) => {
            let columns = columns()?;
            let extract = |line: &[u8], row: &mut Row| clf::extract(&columns, line, row).map(|()| true);
            reader.read_records(source, place, &mut peel, extract)?;
        }
        (Format::Jsonl, _) => {
            let columns = Columns::new(&chosen, &others, |name| Some(name.to_owned())).map_err(missing)?;
            let extract = |line: &[u8], row: &mut Row| columns.extract(line, row).map(|()| true);
            reader.read_records(source, place, &mut peel, extract)?;
        }
        (Format::W3c, _) => {
            // The first header is checked; later ones may have other columns.
            let _ = columns()?;
            let mut w3c = w3c::W3cReader::new(&chosen, &others);
            reader.read_records(source, None, &mut peel, |line, row| w3c.extract(line, row))?;
        }
        (Format::Layout, Some(layout)) => {
            let columns = columns()?;
            let (layout, mut spans) = (layout.up_to(&columns), Spans::new());
            let extract =
                |line: &[u8], row: &mut Row| layout.extract(&columns, &mut spans, line, row).map(|()| true);
            reader.read_records(source, place, &mut peel, extract)?;
        }
        _ => reader.read_table(source, delimiter, format != Format::Tsv, &columns()?, &sample.names())?,
    }
    let time_format = reader.time.format().clone();
    let read = trace.records.len() - before;
    trace.prefixes += peel.cut;
    // Any object can have a field that the first ones lack, so only now a name is known to be wrong.
    let mut named = chosen.time.iter().chain(&chosen.key).chain(&chosen.cost);
    if let Some(unknown) =
        named.find(|name| format == Format::Jsonl && read == 0 && sample.field(name).is_none())
    {
        return Err(missing(unknown.clone()));
    }
    trace.notes.push(format!(
        "{name}: {} ({}{}), time from {:?} ({time_format}){}{}",
        human::counted(read as u64, "record"),
        plan.name(),
        if format == Format::Csv && delimiter != Delimiter::COMMA {
            format!(" with '{delimiter}'")
        } else {
            String::new()
        },
        chosen.time.join("+"),
        if chosen.key.is_empty() { String::new() } else { format!(", key from {:?}", chosen.key.join("+")) },
        chosen.cost.map_or(String::new(), |cost| format!(", cost from {cost:?}")),
    ));
    Ok(())
}

/// Returns how an input is read: by the chosen format, or by the one that it seems to have.
fn plan_of(source: &InputSource, chosen: &Selection) -> Result<ReadPlan, Error> {
    let (name, start) = (&source.name, || printable(&source.head[..source.head.len().min(60)], 60));
    if chosen.delimiter.is_some() {
        return match chosen.format {
            Format::Auto | Format::Csv => Ok(ReadPlan::of(Format::Csv)),
            format => {
                let format = human::name(format);
                Err(Error::usage(format!(
                    "--delimiter is for CSV, but --format is {format}; leave one of them out"
                )))
            }
        };
    }
    if let Some(kind) = source.missing_compression()
        && Format::guess(&source.head).is_none()
        && !is_text(header_of(&source.head))
    {
        return Err(Error::run(format!(
            "{name} is not {kind} data, and no text either (it begins \"{}\")",
            start()
        )));
    }
    if matches!(chosen.format, Format::Csv | Format::Tsv | Format::W3c) {
        return Ok(ReadPlan::of(chosen.format));
    }
    let plan = ReadPlan::guess(&source.head, chosen);
    let is_open = |plan: &ReadPlan| plan.steps.iter().any(|step| matches!(step, PeelStep::Open { .. }));
    if let Some(inner) = &chosen.inner
        && !plan.as_ref().is_some_and(is_open)
    {
        return Err(Error::run(format!(
            "{name}: no JSON field {inner:?} with lines of a known format (--inner); name their format with --log-format"
        )));
    }
    let guessed = match (plan, &chosen.log_format, chosen.format) {
        (Some(plan), ..) => Some(plan),
        (None, Some(format), _) => Some(format.plan()),
        (None, None, Format::Auto) => Format::guess(&source.head).map(ReadPlan::of),
        (None, None, format) => Some(ReadPlan::of(format)),
    };
    guessed.ok_or_else(|| {
        if clf::parse(header_of(&source.head)) == Err(clf::PREFIX) {
            return Error::run(format!("{name}: {} (it begins \"{}\")", clf::PREFIX, start()));
        }
        Error::run(format!(
            "{name}: cannot detect the format: neither log lines of a known server, JSON, nor a header with commas, \
             semicolons, bars or tabs (it begins \"{}\"); name the format with --format, give the server's own format \
             string with --log-format, or name the delimiter of CSV with --delimiter",
            start()
        ))
    })
}

/// Returns the first line that is not empty.
fn header_of(head: &[u8]) -> &[u8] {
    head_lines(head).next().unwrap_or_default()
}

/// Returns the first records of a file.
fn first_records(source: &InputSource, plan: &ReadPlan, delimiter: Delimiter) -> Result<Sample, Error> {
    let lines = || plan.first_lines(&source.head);
    let mut sample;
    match (plan.format, &plan.layout) {
        (Format::Clf, _) => {
            sample = clf::first_records(&lines());
        }
        (Format::Jsonl, _) => sample = fields::json_sample(&lines(), &source.name)?,
        (Format::W3c, _) => sample = w3c::first_records(&source.head),
        (Format::Layout, Some(layout)) => {
            let mut spans = Spans::new();
            sample = layout.sample();
            for line in lines() {
                if let Some(fields) = layout.fields(&line, &mut spans) {
                    sample.add(fields);
                }
            }
        }
        (format, _) => {
            let head = source.head.strip_prefix(decompress::BYTE_ORDER_MARK).unwrap_or(&source.head);
            let mut reader = delimited::reader(head, delimiter, format != Format::Tsv);
            let header =
                reader.byte_headers().map_err(|error| Error::run(format!("{}: {error}", source.name)))?;
            let names = delimited::header(header.iter());
            delimited::check_header(&names, &source.name)?;
            sample = Sample::of_header(&names);
            for record in reader.byte_records().flatten().take(RECORDS) {
                sample.add(names.iter().zip(&record).map(|(name, value)| (&**name, value)));
            }
        }
    }
    Ok(sample)
}

/// Reads one file's records into the trace.
struct FileReader<'a> {
    time: TimeParser,
    row: Row,
    name: &'a str,
    strict: bool,
    trace: &'a mut Trace,
}

impl FileReader<'_> {
    /// Reads the records, each from a line or from a place of a JSON file. Empty lines are skipped; `extract` returns
    /// whether a line is a record.
    fn read_records(
        &mut self,
        source: InputSource,
        place: Option<RecordPlace>,
        peel: &mut Peel,
        mut extract: impl FnMut(&[u8], &mut Row) -> Result<bool, String>,
    ) -> Result<(), Error> {
        if let Some(place) = place {
            let mut elements = Elements::new(source, place);
            while let Some(record) = elements.next_record()? {
                self.read_record(record, peel, &mut extract)?;
            }
            let unread = elements.other().map(|other| {
                let (name, other) = (self.name, printable(other, 60));
                format!("{name}: only one array is read, and not \"{other}\"; if it has records, write them on lines with jq -c '.{other}[]'")
            });
            self.trace.warnings.extend(unread);
            return Ok(());
        }
        let mut lines = Lines::new(source);
        let mut last = 0;
        while let Some(line) = lines.next_line()? {
            last = line.number;
            if !line.bytes.is_empty() {
                self.read_record(line, peel, &mut extract)?;
            }
        }
        for part in peel.unfinished() {
            self.take(
                Err("the line was divided, and its last part is missing".to_owned()),
                last..last + 1,
                || part,
            )?;
        }
        Ok(())
    }

    fn read_record(
        &mut self,
        line: Line<'_>,
        peel: &mut Peel,
        extract: &mut impl FnMut(&[u8], &mut Row) -> Result<bool, String>,
    ) -> Result<(), Error> {
        self.row.clear();
        let extracted = match line.cut {
            true => Err(TOO_LONG.to_owned()),
            false => match peel.open(line.bytes) {
                Ok(Some(text)) => extract(&text, &mut self.row),
                Ok(None) => Ok(false),
                Err(why) => Err(why),
            },
        };
        let lines = line.number..line.number + 1;
        match extracted {
            Ok(false) => Ok(()),
            Ok(true) => self.take(Ok(()), lines, || line.bytes.to_vec()),
            Err(why) => self.take(Err(why), lines, || line.bytes.to_vec()),
        }
    }

    fn read_table(
        &mut self,
        source: InputSource,
        delimiter: Delimiter,
        quotes: bool,
        columns: &Columns<usize>,
        names: &[String],
    ) -> Result<(), Error> {
        let compression = source.compression;
        let length = Rc::new(Cell::new(0));
        let text = Bounded::new(source.reader, Rc::clone(&length));
        let mut reader = delimited::reader(text, delimiter, quotes);
        let mut record = csv::ByteRecord::new();
        loop {
            length.set(0);
            let began = reader.position().line();
            match reader.read_byte_record(&mut record) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) if length.get() > delimited::LONGEST_RECORD => {
                    return Err(Error::run(format!(
                        "{}: line {began}: a record that is longer than 2 MiB; does one of its quotes have no end?",
                        self.name
                    )));
                }
                Err(error) => {
                    let at = Position { line: reader.position().line(), byte: reader.position().byte() };
                    return Err(match error.kind() {
                        csv::ErrorKind::Io(io) => read_error(self.name, compression, at, io),
                        _ => Error::run(format!("{}: line {}: {error}", self.name, at.line)),
                    });
                }
            }
            // A line of blanks is not a record.
            if record.len() == 1 && record[0].trim_ascii().is_empty() {
                continue;
            }
            self.row.clear();
            let length = record.as_slice().len() + record.len();
            let line = record.position().map_or(0, csv::Position::line);
            let lines = line..reader.position().line();
            let extracted = if length >= decompress::LONGEST_LINE {
                Err(TOO_LONG.to_owned())
            } else if lines.end - line > delimited::MOST_LINES {
                Err(format!("a record of {} lines: one of its quotes has no end", lines.end - line))
            } else {
                let field = |column| record.get(column);
                delimited::extract(columns, names, field, record.len(), &mut self.row)
            };
            self.take(extracted, lines, || delimited::shown(&record, delimiter))?;
        }
    }

    /// Makes a record of the row if its fields were extracted. Otherwise it skips the line, and only then asks for the
    /// line's text.
    fn take(
        &mut self,
        extracted: Result<(), String>,
        lines: Range<u64>,
        text: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Error> {
        let Err(reason) = extracted.and_then(|()| self.record()) else { return Ok(()) };
        if self.strict {
            let text = printable(&text(), 120);
            return Err(Error::run(format!(
                "{}:{}: {reason}: {text}\n(--strict stops at the first line that does not parse)",
                self.name, lines.start
            )));
        }
        self.trace.skipped.add(self.name, lines, reason, text);
        Ok(())
    }

    /// Makes a record of the row.
    fn record(&mut self) -> Result<(), String> {
        let text = self.row.time();
        let at = self.time.parse(text);
        let at = at.map_err(|error| error.of(&printable(text, 60), self.time.format()))?;
        let cost = match self.row.cost() {
            None => 1,
            Some(text) => match decimal::scaled(text.trim_ascii(), 0) {
                Ok(scaled) if scaled.exact => scaled.value,
                _ => {
                    let text = printable(text, 60);
                    return Err(format!("the cost {text:?} is not a whole number of units"));
                }
            },
        };
        let key = match &mut self.trace.fields {
            Some(fields) => fields.intern(&self.row),
            None => self.trace.keys.intern(self.row.key()?),
        };
        let key = key.ok_or(TOO_LONG)?;
        self.trace.records.push(Record { at, cost, key });
        self.trace.seen.add(self.row.seen());
        Ok(())
    }
}

impl Trace {
    /// Returns how much of the input was used, if more than a tenth of its lines were skipped.
    pub fn partly(&self) -> Option<String> {
        let (skipped, used) = (self.skipped.lines(), self.records.len() as u64);
        let all = skipped.saturating_add(used);
        (skipped.saturating_mul(10) > all).then(|| {
            format!(
                "{} of {} were skipped, so the results are those of the other {}",
                human::count(skipped),
                human::counted(all, "line"),
                human::count(used)
            )
        })
    }

    /// Returns an error with its own exit code if more than a tenth of the lines were skipped, and nothing allows this.
    pub fn mostly_used(&self, allow_skipped: bool) -> Result<(), Error> {
        match self.partly().filter(|_| !allow_skipped) {
            None => Ok(()),
            Some(partly) => Err(Error::Partly(format!("{partly}; to accept this, add --allow-skipped"))),
        }
    }

    /// Returns the number of different keys, or of combinations of fields.
    pub fn distinct(&self) -> u64 {
        self.fields.as_ref().map_or(self.keys.len(), Fields::len) as u64
    }

    /// Returns the name of the items that [`Trace::distinct`] counts.
    pub fn distinct_what(&self) -> &'static str {
        if self.fields.is_some() { "field-value combination" } else { "key" }
    }
}
