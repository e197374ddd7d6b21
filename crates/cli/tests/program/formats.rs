//! The same six requests in every log format and every compression. The last row shows the expected decisions.
//!
//! | second | 0 | 1 | 2 | 2 | 10 | 11 |
//! |---|---|---|---|---|---|---|
//! | client | a | a | a | b | a | a |
//! | 2 in 10 s, sliding log | 1 | 1 | 0 | 1 | 1 | 1 |

use crate::support::{Place, gzip};

const ONE: &str = "--algorithm sliding-log --limit 2/10s";
const EXPECTED: &str = "110111";
const FIRST_NS: u64 = 1_498_780_800_000_000_000;

const CLF: &str = r#"a - - [29/Jun/2017:20:00:00 -0400] "GET / HTTP/1.1" 200 12
a - jo [29/Jun/2017:20:00:01 -0400] "GET /\"x\" HTTP/1.1" 200 12 "-" "agent \"x\""
a - - [30/Jun/2017:00:00:02 +0000] "-" 408 -
b - - [30/Jun/2017:00:00:02 +0000] "GET / HTTP/1.1" 200 12
a - - [30/Jun/2017:02:00:10 +0200] "GET / HTTP/1.1" 200 12
a - - [30/Jun/2017:00:00:11 +0000] "GET / HTTP/1.1" 200 12
"#;

const JSONL: &str = r#"{"timestamp":"2017-06-30T00:00:00Z","client":"a"}
{"timestamp":"2017-06-30T00:00:01.000Z","client":"a","x":{"y":[1,2]}}
 {"client":"\u0061","timestamp":"2017-06-29T20:00:02-04:00"}
{"timestamp":"2017-06-30T00:00:02Z","client":"b"}

{"timestamp":"2017-06-30T00:00:10Z","client":"a"}
{"timestamp":"2017-06-30T00:00:11Z","client":"a"}
"#;

const CSV: &str = "ip,date,time,note\n\
    a,2017-06-30,00:00:00,\n\
    a,2017-06-30,00:00:01,\"two, \"\"lines\"\"\nof text\"\n\
    \"a\",\"2017-06-30\",00:00:02,x\n\
    b,2017-06-30,00:00:02,x\n\
    a,2017-06-30,00:00:10,x,more,columns\n\
    a,2017-06-30,00:00:11,x\n";

const TSV: &str = "ts\tuid\tid.orig_h\n\
    1498780800.000000\tq\"uote\ta\n\
    1498780801.000000\t\ta\n\
    1498780802.000000\t-\ta\n\
    1498780802.000000\t-\tb\n\
    1498780810.000000\t-\ta\n\
    1498780811.000000\t-\ta\n";

fn all() -> [(&'static str, &'static str); 4] {
    [("clf", CLF), ("jsonl", JSONL), ("csv", CSV), ("tsv", TSV)]
}

// G88
#[test]
fn format_is_detected_from_content() {
    let place = Place::new();
    for (format, text) in all() {
        place.file("log", text);
        assert_eq!(place.decisions(&format!("log {ONE}")), EXPECTED, "{format}");
        assert_eq!(place.decisions(&format!("log {ONE} --format {format}")), EXPECTED, "{format}");
        let run = place.run(&format!("replay log {ONE}")).ok();
        assert!(run.stdout.contains(&format!("6 records ({format})")), "{}", run.stdout);
        let json = place.run(&format!("replay log {ONE} --json")).json();
        assert_eq!(json["input"]["first_ns"], FIRST_NS, "{format}");
        assert_eq!(json["input"]["last_ns"], FIRST_NS + 11_000_000_000, "{format}");
        assert_eq!((&json["input"]["keys"], &json["input"]["skipped"]), (&2.into(), &0.into()), "{format}");
    }
}

#[test]
fn csv_delimiter_is_detected_or_named() {
    let place = Place::new();
    let with = |delimiter: &str| CSV.replace(',', delimiter);
    for delimiter in [";", "|"] {
        place.file("log.csv", with(delimiter));
        assert_eq!(place.decisions(&format!("log.csv {ONE}")), EXPECTED, "{delimiter}");
        assert_eq!(place.decisions(&format!("log.csv {ONE} --format csv")), EXPECTED, "{delimiter}");
        let run = place.run(&format!("replay log.csv {ONE}")).ok();
        assert!(run.stdout.contains(&format!("6 records (csv with '{delimiter}')")), "{}", run.stdout);
    }
    for (delimiter, named) in [(",", ","), (";", ";"), ("~", "~"), ("\t", "\\t"), ("\t", "tab")] {
        place.file("log.csv", with(delimiter));
        assert_eq!(place.decisions(&format!("log.csv {ONE} --delimiter {named}")), EXPECTED, "{named}");
    }
    // A comma in a quoted name is no delimiter.
    place.file("log.csv", "\"time, in s\";\"client, or address\"\n100;a\n100;a\n");
    place.run("replay log.csv").fails(1, &["the fields are: time, in s, client, or address"]);
    place.run("replay log.csv --delimiter ; --format jsonl").fails(2, &["--delimiter is for CSV"]);
    for wrong in ["ab", "é", "\""] {
        place.run(&format!("replay log.csv --delimiter {wrong}")).fails(2, &["one ASCII character"]);
    }
}

#[test]
fn compression_is_detected_from_first_bytes() {
    let place = Place::new();
    for (format, text) in all() {
        let (first, second) = text.as_bytes().split_at(text.len() / 2);
        let wrappings = [
            gzip(text),
            [gzip(first), gzip(second)].concat(),
            zstd::encode_all(text.as_bytes(), 3).unwrap(),
            [zstd::encode_all(first, 3).unwrap(), zstd::encode_all(second, 3).unwrap()].concat(),
        ];
        for wrapped in wrappings {
            place.file("log.misnamed", &wrapped);
            assert_eq!(place.decisions(&format!("log.misnamed {ONE}")), EXPECTED, "{format}");
            let run = place.run_with(&format!("replay - {ONE} --decisions out"), &wrapped).ok();
            assert!(run.stdout.contains("standard input"), "{}", run.stdout);
            assert_eq!(place.read("out"), EXPECTED.as_bytes(), "{format} from standard input");
        }
    }
}

#[test]
fn mixed_or_missing_line_ends_are_accepted() {
    let place = Place::new();
    for (format, text) in all() {
        let half = text.len() / 2;
        let mixed = format!("\u{feff}{}{}", text[..half].replace('\n', "\r\n"), text[half..].trim_end());
        place.file("log", mixed);
        assert_eq!(place.decisions(&format!("log {ONE}")), EXPECTED, "{format}");
        // CR only, as old programs for Macintosh write.
        place.file("log", text.replace('\n', "\r"));
        assert_eq!(place.decisions(&format!("log {ONE}")), EXPECTED, "{format}");
    }
}

/// The fields of a record longer than the part that is inspected were "none".
#[test]
fn first_record_may_be_long() {
    let place = Place::new();
    let long = "x".repeat(70_000);
    place.file("log", JSONL.replacen('{', &format!("{{\"note\":\"{long}\","), 1));
    assert_eq!(place.decisions(&format!("log {ONE}")), EXPECTED);
}

#[test]
fn files_of_several_formats_form_one_trace() {
    let place = Place::new();
    let (early, late) = CLF.split_at(CLF.match_indices('\n').nth(2).unwrap().0 + 1);
    let json: String = JSONL.lines().skip(3).collect::<Vec<_>>().join("\n");
    place.file("late.jsonl.gz", gzip(json)).file("early.log", early);
    assert_eq!(late.lines().count(), 3);
    assert_eq!(place.decisions(&format!("early.log late.jsonl.gz {ONE}")), EXPECTED);
}

#[test]
fn fields_can_be_named() {
    let place = Place::new();
    let nested = JSONL.replace("\"timestamp\"", "\"req\":{\"id\":7,\"at\"").replace("\"client\"", "\"who\"");
    let nested: String = nested
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            // Close the nested object after the text of its time.
            let end = line.find("\"at\":\"").unwrap() + 6;
            let end = end + line[end..].find('"').unwrap() + 1;
            format!("{}}}{}\n", &line[..end], &line[end..])
        })
        .collect();
    place.file("log", nested);
    assert_eq!(place.decisions(&format!("log {ONE} --time req.at --key who")), EXPECTED);
    place.file("log", TSV.replace("ts\t", "a\t").replace("id.orig_h", "b"));
    assert_eq!(place.decisions(&format!("log {ONE} --time a --key b --time-format s")), EXPECTED);
    place.file("log", CSV.replace("ip,date,time", "k,d,t"));
    assert_eq!(place.decisions(&format!("log {ONE} --time d+t --key k")), EXPECTED);
    place.file("log", CLF);
    assert_eq!(place.decisions(&format!("log {ONE} --time time_local --key remote_addr")), EXPECTED);
}

// G88
#[test]
fn times_are_exact_to_the_nanosecond() {
    let place = Place::new();
    let cases = [
        ("auto", "1655071198.444458", 1_655_071_198_444_458_000_u64),
        ("auto", "1655071198444458001", 1_655_071_198_444_458_001),
        ("auto", "1655071198444.25", 1_655_071_198_444_250_000),
        ("us", "1655071198444458.001", 1_655_071_198_444_458_001),
        ("s", "5", 5_000_000_000),
        ("rfc3339", "\"2022-06-12T21:59:58.444458001Z\"", 1_655_071_198_444_458_001),
        ("%Y%m%d-%H%M%S%.f", "\"20220612-215958.444458001\"", 1_655_071_198_444_458_001),
        ("auto", "1.655071198444458001e9", 1_655_071_198_444_458_001),
    ];
    for (format, text, expected) in cases {
        place.file("log", format!("{{\"ts\":{text},\"ip\":\"a\"}}\n"));
        let json = place.run(&format!("replay log --time-format {format} --json")).json();
        assert_eq!(json["input"]["first_ns"], expected, "{format} {text}");
    }
}

#[test]
fn request_lines_may_hold_any_bytes() {
    let place = Place::new();
    let mut log = Vec::new();
    for request in [
        &b"GET /\xff\xfe\x90\x90"[..],
        b"\x16\x03\x01\0\0",
        b"GET /\\\"q\\\"",
        b"GET /\"raw\" quotes",
        b"-",
        b"",
    ] {
        log.extend_from_slice(b"192.0.2.1 - - [30/Jun/2017:00:00:00 +0000] \"");
        log.extend_from_slice(request);
        log.extend_from_slice(b"\" 400 0 \"-\" \"\xff\"\n");
    }
    place.file("log", log);
    let json = place.run("replay log --json --algorithm gcra").json();
    assert_eq!((&json["input"]["records"], &json["input"]["skipped"]), (&6.into(), &0.into()));
    // Keys may also hold any bytes.
    let json =
        place.run("replay log --json --algorithm gcra --key request --limit 1/d --allow-skipped").json();
    assert_eq!(json["input"]["keys"], 5);
}

#[test]
fn prefixes_of_collectors_are_cut_and_counted() {
    let place = Place::new();
    let prefixed: String = CLF.lines().map(|line| format!("web-1  | {line}\n")).collect();
    place.file("log", prefixed);
    assert_eq!(place.decisions(&format!("log {ONE}")), EXPECTED);
    let run = place.run(&format!("replay log {ONE}")).ok();
    assert!(run.stdout.contains("6 records (clf after the prefix of compose)"), "{}", run.stdout);
    assert!(run.stdout.contains("6 lines with the prefix of a collector"), "{}", run.stdout);
    assert_eq!(place.run(&format!("replay log {ONE} --json")).json()["input"]["prefixes_cut"], 6);
}

#[test]
fn format_string_is_an_option_of_every_command() {
    let place = Place::new();
    place.file(
        "log",
        "a|1498780800|7\na|1498780801|7\na|1498780802|7\nb|1498780802|7\na|1498780810|7\na|1498780811|7\n",
    );
    let format = "--log-format $who|$msec|$bytes --key who";
    assert_eq!(place.decisions(&format!("log {ONE} {format}")), EXPECTED);
    place.run(&format!("suggest log {format} --cost bytes")).ok();
    place.run(&format!("replay log {format} --format csv")).fails(2, &["--log-format"]);
    place.run("replay log --log-format $who|${msec").fails(2, &["at character 6", "no } ends"]);
}
