//! Formats and usual names of fields.

use tollgate_cli::input::choice::client;
use tollgate_cli::input::client::Clients;
use tollgate_cli::input::fields::{Format, choose_time};
use tollgate_cli::input::sample::{Role, Sample};
use tollgate_cli::input::time::TimeFormat;
use tollgate_report::error::Error;

fn chosen(present: &[&str]) -> Result<(String, String), Error> {
    let sample = Sample::of(present.iter().map(|&name| (name, Role::Other)));
    let time = choose_time(&sample, &TimeFormat::Auto, "f")?;
    let key = client(&sample, Clients::default(), "f")?.fields;
    Ok((time.join("+"), key.join("+")))
}

#[test]
fn usual_field_names_are_found() {
    let cases: [(&[&str], &str, &str); 7] = [
        (&["ts_ns", "client", "resource", "status"], "ts_ns", "client"),
        (&["datetime", "host", "src", "proto"], "datetime", "src"),
        (&["id", "dt", "repo", "type", "actor"], "dt", "actor"),
        (&["ip", "date", "time", "zone"], "date+time", "ip"),
        (&["capture", "ts", "uid", "id.orig_h"], "ts", "id.orig_h"),
        (&["ip", "ident", "user", "time", "request"], "time", "ip"),
        (&["Timestamp", "ClientIP"], "Timestamp", "ClientIP"),
    ];
    for (present, time, key) in cases {
        assert_eq!(chosen(present).unwrap(), (time.to_owned(), key.to_owned()));
    }
}

#[test]
fn time_is_chosen_by_values() {
    let cases: [(&[(&str, &str)], &str); 17] = [
        (&[("date", "1710256948.123"), ("time", "2024-03-12T15:22:28Z")], "time"),
        (&[("date", "2024-03-12"), ("time", "15:22:28")], "date+time"),
        (&[("date", "2024-03-12"), ("time_ms", "12")], "date"),
        (&[("time_ms", "12"), ("when", "2024-03-12 15:22:28")], "when"),
        (&[("date", "20240312"), ("time", "15:22:28")], "date+time"),
        (&[("date", "2024/03/12"), ("time", "152228")], "date+time"),
        (&[("date", "20240312"), ("time", "152228")], "date+time"),
        (&[("log_date", "2024-03-12"), ("log_time", "15:22:28")], "log_date+log_time"),
        (&[("x-date", "2024-03-12"), ("ip", "192.0.2.1"), ("x-time", "15:22:28.5")], "x-date+x-time"),
        (&[("time", "15:22:28"), ("day", "2024-03-12")], "day+time"),
        (&[("clock", "15:22"), ("date", "20240312")], "date+clock"),
        (&[("date", "1710256948"), ("time", "12")], "date"),
        (&[("time", "0.003"), ("@timestamp", "2024-03-12T15:22:28Z")], "@timestamp"),
        (&[("ts", "100"), ("ip", "192.0.2.1")], "ts"),
        (&[("id", "1710256948"), ("request.time", "1710256948")], "request.time"),
        (&[("timestamp", ""), ("start_time", "1710256948")], "start_time"),
        (&[("id", "1710256948"), ("startedAt", "1710256948000"), ("bytes", "1810256948")], "startedAt"),
    ];
    for (fields, time) in cases {
        let mut sample = Sample::default();
        (0..3).for_each(|_| sample.add(fields.iter().map(|&(name, value)| (name, value.as_bytes()))));
        assert_eq!(choose_time(&sample, &TimeFormat::Auto, "f").unwrap().join("+"), time, "{fields:?}");
    }
}

#[test]
fn unknown_fields_are_requested() {
    let error = chosen(&["when", "who"]).unwrap_err().to_string();
    assert!(error.contains("--time") && error.contains("when, who"), "{error}");
    let error = chosen(&["ts", "who"]).unwrap_err().to_string();
    assert!(error.contains("--key"), "{error}");
}

#[test]
fn format_is_detected_by_content() {
    let clf = b"h - - [10/Oct/2000:13:55:36 -0700] \"GET /,\t HTTP/1.0\" 200 23\n";
    assert_eq!(Format::guess(clf), Some(Format::Clf));
    assert_eq!(Format::guess(b"\xef\xbb\xbf\r\n{\"a\":1}\n"), Some(Format::Jsonl));
    assert_eq!(Format::guess(b"a,b\n1,\"\t\"\n"), Some(Format::Csv));
    assert_eq!(Format::guess(b"a\tb,c\n"), Some(Format::Tsv));
    assert_eq!(Format::guess(b"\n\n"), None);
    assert_eq!(Format::guess(b"\x7fELF\x02\x01,\x01\0\0"), None);
    let torn = [b"torn line\n".as_slice(), clf].concat();
    assert_eq!(Format::guess(&torn), Some(Format::Clf));
}

/// A duration with a usual name was the time, in 1970.
#[test]
fn doubts_about_time_are_questions() {
    let cases: [(&[(&str, &str)], &str); 5] = [
        (
            &[("time_ms", "12"), ("began", "2024-03-12 15:22:28"), ("the end", "2024-03-12 15:22:29")],
            "\"began\" and \"the end\" would do. Name it with --time began or --time 'the end'",
        ),
        (&[("time_ms", "12"), ("logged", "1710256948")], "--time time_ms or --time logged"),
        (
            &[("date", "2024-03-12"), ("hour", "15")],
            "\"date\" has only the date. Name it with --time 'date+hour' or --time date --time-format rfc3339",
        ),
        (
            &[("day", "2024-03-12"), ("began", "15:22:28"), ("ended", "15:22:29")],
            "--time 'day+began' or --time 'day+ended' or",
        ),
        (
            &[("StartTime_", "1710256948"), ("EndTime_", "1710256948")],
            "\"StartTime_\" and \"EndTime_\" would do",
        ),
    ];
    for (fields, part) in cases {
        let mut sample = Sample::default();
        (0..3).for_each(|_| sample.add(fields.iter().map(|&(name, value)| (name, value.as_bytes()))));
        let said = choose_time(&sample, &TimeFormat::Auto, "f").unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
    // Durations do not grow.
    let mut sample = Sample::default();
    ["0.3", "0.1", "0.2", "0.1"].iter().for_each(|time| sample.add([("time", time.as_bytes())]));
    assert!(choose_time(&sample, &TimeFormat::Auto, "f").unwrap_err().to_string().contains("--time"));
    // Large numbers that are no times.
    let mut sample = Sample::default();
    for (ts, id) in [("100", "3710256948"), ("101", "1710256948"), ("102", "2710256948")] {
        sample.add([("ts", ts.as_bytes()), ("id", id.as_bytes())]);
    }
    assert_eq!(choose_time(&sample, &TimeFormat::Auto, "f").unwrap(), ["ts"]);
}
