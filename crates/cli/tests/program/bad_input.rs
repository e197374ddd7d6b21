//! Broken input and wrong command lines: their messages and exit codes.

use std::fmt::Write as _;

use crate::support::{Place, gzip};

const ONE: &str = "--algorithm gcra --limit 1/60s";

fn clf(lines: usize) -> String {
    let mut text = String::new();
    let mut seed = 1_u64;
    for n in 0..lines {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (minute, second) = (n / 60 % 60, n % 60);
        let _ = writeln!(
            text,
            "10.0.0.{} - - [30/Jun/2017:00:{minute:02}:{second:02} +0000] \"GET /{seed:x} HTTP/1.1\" 200 5",
            seed >> 56
        );
    }
    text
}

#[test]
fn unreadable_files_are_named() {
    let place = Place::new();
    place.file("empty", "").file("empty.gz", gzip("")).file("blank", "\n\r\n\n");
    std::fs::create_dir(place.path("folder")).unwrap();
    place.run("replay missing.log").fails(1, &["missing.log", "no such file"]);
    place.run("replay folder").fails(1, &["folder", "is a directory"]);
    place.run("replay empty").fails(1, &["empty is empty"]);
    place.run("replay empty.gz").fails(1, &["empty.gz is empty"]);
    place.run("replay blank").fails(1, &["blank: cannot detect the format"]);
    place.run("replay -").fails(1, &["standard input is empty"]);
    place.file("log", clf(1));
    place.run("replay log missing.log").fails(1, &["missing.log"]);
}

/// An error shows an optional file as optional, also if the line has one, and a file that is required as required.
#[test]
fn usage_tells_which_files_are_optional() {
    let place = Place::new();
    for (args, usage) in [
        ("replay --top 3 log --bogus", "replay --top <N> [FILE]..."),
        ("suggest log --algorithm gcra --bogus", "suggest --algorithm <NAME> [FILE]..."),
        ("rules check --json", "rules check --json <FILE>..."),
        ("rules check limits.yaml --bogus", "rules check <FILE>..."),
    ] {
        place.run(args).fails(2, &[&format!("Usage: tollgate {usage}\n")]);
    }
}

#[test]
fn every_command_has_a_version() {
    let place = Place::new();
    for command in
        ["", "replay ", "suggest ", "rules ", "rules check ", "rules explain ", "rules push ", "rules diff "]
    {
        let run = place.run(&format!("{command}--version")).ok();
        assert!(run.stdout.ends_with(concat!(" ", env!("CARGO_PKG_VERSION"), "\n")), "{}", run.stdout);
    }
    // This one is the version of the rules.
    place.run("rules pull --version").fails(2, &["--version <VERSION>"]);
}

#[test]
fn header_without_records_is_an_error() {
    let place = Place::new();
    place.file("a.csv", "ts,client\n").file("a.tsv", "ts\tclient\n");
    place.run("replay a.csv").fails(1, &["no records in a.csv"]);
    place.run("replay a.tsv").fails(1, &["no records in a.tsv"]);
}

// G88
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn truncated_file_is_reported_with_position() {
    let place = Place::new();
    let text = clf(40_000);
    let csv =
        text.lines().fold("ts,client\n".to_owned(), |csv, line| csv + "1498780800," + &line[..8] + "\n");
    for (name, text) in [("clf", &text), ("csv", &csv)] {
        for whole in [gzip(text), zstd::encode_all(text.as_bytes(), 3).unwrap()] {
            for end in [whole.len() - 3, whole.len() / 2, 20] {
                place.file("log", &whole[..end]);
                place.run("replay log").fails(1, &["log: line ", "byte ", "ends early", "cut short"]);
                place.run("suggest log").fails(1, &["ends early"]);
            }
            let mut damaged = whole.clone();
            let middle = whole.len() / 2;
            damaged[middle..middle + 64].fill(0xaa);
            place.file("log", damaged);
            let run = place.run("replay log");
            assert_eq!(run.code, 1, "{name}: {run:?}");
        }
    }
}

#[test]
fn binary_input_is_refused() {
    let place = Place::new();
    let mut junk = vec![0_u8, 159, 146, 150];
    let mut seed = 7_u64;
    for _ in 0..200_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        junk.push(seed.to_be_bytes()[0]);
    }
    place.file("junk", &junk);
    place.run("replay junk").fails(1, &["junk: cannot detect the format", "--format"]);
    place.run("replay junk --format clf").fails(1, &["no usable record in junk", "; first 1, 2, "]);
    place.run("replay junk --format jsonl").fails(1, &["junk", "no JSON object"]);
    place.run("replay junk --format tsv").fails(1, &["junk: which field is the time"]);
    place.run("replay junk --format csv").fails(1, &["junk"]);
    for (name, kind) in [("junk.gz", "gzip"), ("junk.ZST", "zstd")] {
        place.file(name, &junk);
        let message = format!("{name} is not {kind} data, and no text either");
        place.run(&format!("replay {name}")).fails(1, &[&message]);
        place.run(&format!("replay {name} --format csv")).fails(1, &[&message]);
    }
    // Text can have any name.
    place.file("text.gz", clf(3));
    place.run("replay text.gz").ok();
    place.file("picture.xz", b"\xfd7zXZ\0\0\0\0\0");
    place.run("replay picture.xz").fails(1, &["xz", "decompress it first"]);
}

// G88
#[test]
fn bad_lines_are_counted_shown_and_skipped() {
    let place = Place::new();
    let good: Vec<String> = clf(4).lines().map(str::to_owned).collect();
    let text = [
        &good[0],
        "garbage",
        &good[1],
        "10.0.0.1 - - [31/Feb/2017:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
        "",
        "10.0.0.1 - - [30/Jun/1969:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
        &good[2],
        "10.0.0.1 - - [30/Jun/2017:00:00:09 +0000] \"GET / HT",
    ]
    .join("\n");
    place.file("log", &text);
    let run = place.run(&format!("replay log {ONE} --json --allow-skipped"));
    for part in ["log:2: ", "log:4: ", "does not exist", "log:6: ", "before 1970", "log:8: ", "4 lines"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let json = run.json();
    assert_eq!((&json["input"]["records"], &json["input"]["skipped"]), (&3.into(), &4.into()));
    place.run(&format!("replay log {ONE} --strict")).fails(1, &["log:2: ", "garbage", "--strict"]);

    place.file(
        "log.jsonl",
        "{\"ts\":1498780800,\"ip\":\"a\"}\n{\"ts\":1498780801}\n{\"ts\":\"x\",\"ip\":\"a\"}\nnot json\n",
    );
    let run = place.run(&format!("replay log.jsonl {ONE} --json --allow-skipped"));
    for part in ["log.jsonl:2: no field \"ip\": {", "log.jsonl:3: the time \"x\"", "log.jsonl:4: "] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    assert_eq!(run.json()["input"]["skipped"], 3);

    place.file("log.csv", "ts,client\n1498780800,a\n1498780801\n1498780802,\n\n1498780803,b\n");
    let run = place.run(&format!("replay log.csv {ONE} --json --allow-skipped"));
    for part in ["log.csv:3: ", "\"client\" is column 2", "log.csv:4: the key is empty"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    assert_eq!(run.json()["input"]["skipped"], 2);
}

// G88
#[test]
fn long_lines_and_open_quotes_of_tables_are_found() {
    let place = Place::new();
    let long = "x".repeat(3 << 20);
    place.file("a.tsv", format!("ts\tclient\n1498780800\t{long}\n1498780801\tb\n"));
    let run = place.run(&format!("replay a.tsv {ONE} --json --allow-skipped"));
    assert!(run.stderr.contains("a.tsv:2: longer than 1 MiB"), "{}", run.stderr);
    assert_eq!(run.json()["input"]["skipped"], 1);

    let csv = |lines| {
        "ts,client,agent\n1,192.0.2.1,\"b\nc\"\n2,192.0.2.2,\"b\n".to_owned()
            + &"3,192.0.2.3,d\n".repeat(lines)
    };
    place.file("a.csv", csv(150));
    let run = place.run(&format!("replay a.csv {ONE} --json --allow-skipped"));
    assert!(
        run.stderr.contains("a.csv: 151 lines: a record of 151 lines: one of its quotes"),
        "{}",
        run.stderr
    );
    assert_eq!((run.code, run.json()["input"]["skipped"].as_u64()), (0, Some(151)));
    let run = place.run("replay a.csv");
    assert!(run.code == 3 && run.stderr.contains("151 of 152 lines were skipped"), "{run:?}");
    place.file("a.csv", csv(400_000));
    place.run("replay a.csv").fails(1, &["a.csv: line 4: a record that is longer than 2 MiB", "quotes"]);
}

#[test]
fn skipped_lines_are_grouped_by_reason() {
    let place = Place::new();
    let short = "10.0.0.1 - - [30/Jun/2017:00:00:09 +0000]\n";
    place.file("log", "garbage\n".to_owned() + &clf(50) + short + &"garbage\n".repeat(39));
    let run = place.run("replay log --allow-skipped").ok();
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines[0], "Skipped 41 lines that did not parse:", "{}", run.stderr);
    assert!(
        lines[1].starts_with("  log: 40 lines: ") && lines[1].ends_with("; first 1, 53, 54: garbage"),
        "{}",
        lines[1]
    );
    assert!(lines[2].starts_with("  log:52: ") && lines[2].contains("before the request"), "{}", lines[2]);
    let json = place.run("replay log --json --allow-skipped").json();
    let reason = &json["input"]["skipped_for"][0];
    assert_eq!(
        (&reason["lines"], &reason["first"]),
        (&40.into(), &serde_json::json!([1, 53, 54])),
        "{reason}"
    );
}

/// 100 of 104 lines were skipped without a word, and a limit for the other four was recommended.
// G88
#[test]
fn inputs_that_are_mostly_skipped_have_their_exit_code() {
    let place = Place::new();
    place.file("log", clf(89) + &"garbage\n".repeat(10)).file("tenth", clf(90) + &"garbage\n".repeat(10));
    place.file("limits.yaml", "domain: d\ndescriptors: [{ key: remote_address, rate_limit: { unit: day, requests_per_unit: 1 } }]\n");
    let partly = "10 of 99 lines were skipped, so the results are those of the other 89";
    for how in ["--limit 1/d --report page.html --top 0", "--rules limits.yaml --report page.html"] {
        let run = place.run(&format!("replay log {how}"));
        assert_eq!(run.code, 3, "{run:?}");
        let [text, page] = [run.stdout, String::from_utf8(place.read("page.html")).unwrap()]
            .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(text.contains(&format!("Warning {partly}")) && page.contains(partly), "{how}: {text}");
        assert!(
            run.stderr.contains(&format!("error: {partly}; to accept this, add --allow-skipped")),
            "{}",
            run.stderr
        );
        if how.contains("--limit") {
            // A limit for a part of the requests may be wrong for all of them.
            assert!(text.contains("No limit is suggested: ") && page.contains("--allow-skipped"), "{text}");
        }
        let json = place.run(&format!("replay log {how} --json --allow-skipped")).json();
        assert_eq!(json["input"]["warnings"][0], partly);
        place.run(&format!("replay tenth {how}")).ok();
    }
    place
        .run("suggest log")
        .fails(1, &["no limit is suggested: ", partly, "log: 10 lines: ", "--allow-skipped"]);
    place.run("suggest log --allow-skipped").ok();
    place.run("suggest tenth").ok();
    let run = place.run("rules check limits.yaml --log log");
    assert!(run.code == 3 && run.stderr.contains(partly), "{run:?}");
    place.run("rules check limits.yaml --log log --allow-skipped").ok();
}

#[test]
fn missing_field_error_lists_fields() {
    let place = Place::new();
    place.file("log.csv", "began,who\n1498780800,a\n");
    place.run("replay log.csv").fails(1, &["--time", "began, who"]);
    place.run("replay log.csv --time began").fails(1, &["--key", "began, who"]);
    place.run("replay log.csv --time began --key user").fails(1, &["no field \"user\"", "began, who"]);
    place.run("replay log.csv --time began --key who --cost size").fails(1, &["no field \"size\""]);
    place.file("log.tsv", "when\twho\n1498780800\ta\n");
    place.run("replay log.tsv --time then --key who").fails(1, &["no field \"then\"", "when, who"]);
    place.file("log", clf(2));
    place.run("replay log --key cookie").fails(1, &["no field \"cookie\"", "ip, ident, user"]);
    place.file("log.jsonl", "{\"when\":1498780800,\"a\":{\"who\":\"x\"}}\n");
    place.run("replay log.jsonl --time when").fails(1, &["--key", "when, a.who"]);
    // The fields are listed once, and not for each line.
    place.file("log.jsonl", "{\"when\":1498780800,\"a\":{\"who\":\"x\"}}\n".repeat(9));
    let run = place.run("replay log.jsonl --time when --key b");
    run.fails(1, &["log.jsonl: there is no field \"b\"; the fields are: when, a.who\n"]);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn wrong_command_lines_exit_with_2() {
    let place = Place::new();
    place.file("log", clf(2));
    place.run("replay log --limit 0/60s").fails(2, &["invalid quota", "the limit is 0"]);
    place.run("replay log --limit 10").fails(2, &["invalid quota", "\"/\""]);
    place.run("replay log --limit 10/0s").fails(2, &["the period is 0"]);
    place.run("replay log --burst 0").fails(2, &["--burst 0", "the burst is 0"]);
    place.run("replay log --algorithm guess").fails(2, &["gcra"]);
    place.run("replay log --chart out.gif").fails(2, &["ends in .svg"]);
    place.run("replay log --chart out.PNG").fails(2, &["charts are SVG"]);
    place.run("replay log --chart out").fails(2, &["ends in .svg"]);
    place.run("replay log --decisions out").fails(2, &["--decisions", "--algorithm", "7"]);
    place
        .run("replay log --decisions out --algorithm gcra --algorithm sub-window")
        .fails(2, &["--decisions"]);
    assert!(!place.path("out").exists());
    place.run("replay log --time-format never").fails(2, &["strftime"]);
    place.run("replay log --time a++b").fails(2, &["date+time"]);
    place.run("replay log --ipv6-prefix 129").fails(2, &["129"]);
    place.run("replay log --store heap").fails(2, &["keyed"]);
    place.run("replay log --algorithm sub-window --sub-windows 0").fails(2, &["sub-window"]);
    place.run("suggest log --deny-requests 101%").fails(2, &["0.1%"]);
    place.run("suggest log --period soon").fails(2, &["60s"]);
    place.run("recall log").fails(2, &["recall"]);
    assert_eq!(place.run("").code, 2);
}

#[test]
fn unwritable_outputs_are_named() {
    let place = Place::new();
    place.file("log", clf(2));
    place
        .run(&format!("replay log {ONE} --decisions no/such/folder"))
        .fails(1, &["cannot write no/such/folder"]);
    place.run(&format!("replay log {ONE} --chart no/such.svg")).fails(1, &["cannot write no/such.svg"]);
    place.run(&format!("replay log {ONE} --json=no/such.json")).fails(1, &["cannot write no/such.json"]);
}

#[test]
fn invalid_number_error_has_hint() {
    let place = Place::new();
    for (line, parts) in [
        ("replay --limit -5/60s", ["'-5/60s'", "as in 100/60s"]),
        ("replay --burst -1", ["--burst", "expected a whole number, such as 20"]),
        ("replay --burst x", ["--burst", "expected a whole number, such as 20"]),
        ("replay --top -1", ["--top", "expected a whole number, such as 20"]),
        ("replay --sub-windows 0", ["--sub-windows", "1 or more"]),
        ("replay --sub-windows -3", ["--sub-windows", "1 or more"]),
    ] {
        place.run(line).fails(2, &parts);
    }
}

#[test]
fn invalid_time_error_names_format() {
    let place = Place::new();
    place.file("a.csv", "ts,client\nnoon,a\n");
    place.run("replay a.csv").fails(1, &["a.csv:2: the time \"noon\" has no known format", "--time-format"]);
    place
        .run("replay a.csv --time-format %H:%M")
        .fails(1, &["a.csv:2: the time \"noon\" is not in the format %H:%M"]);
}

/// The first record was the header, all requests were at midnight, or the message named no remedy.
// G88
#[test]
fn doubtful_inputs_are_questions() {
    let place = Place::new();
    for (text, parts) in [
        ("2024-10-10T13:55:30Z,192.0.2.1\n", &["The first line seems to be a record"][..]),
        ("2024-10-10\t192.0.2.1\n", &["\"2024-10-10\" is a value", "--log-format"]),
        ("a|192.0.2.1\n", &["\"192.0.2.1\" is a value", "such as time,ip"]),
        ("sep=;\nts;ip\n1;a\n", &["separator for Excel", "tail -n +2 log"]),
        ("\u{feff}a", &["UTF-16 text", "iconv -f UTF-16 -t UTF-8"]),
        ("a,b\n", &["UTF-16LE text", "iconv -f UTF-16LE -t UTF-8"]),
        ("#Date: 2024-10-10\n#Fields: time c-ip\n13:55:30 192.0.2.1\n", &["a time of day without a date"]),
        ("date,hour,ip\n2024-10-10,13,a\n", &["which field is the time of day?", "--time 'date+hour'"]),
        (
            "{\"data\":{\"items\":[{\"ts\":1728568536,\"ip\":\"a\"}]}}\n",
            &["in an inner array", "jq -c '.data.items[]'"],
        ),
        ("ts,ip\n638641653360000000,a\n", &["not from 1990 to 2099 in any unit", "--time-format"]),
    ] {
        let utf_16 = parts[0].starts_with("UTF-16");
        let two_bytes = || text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        place.file("log", if utf_16 { two_bytes() } else { text.as_bytes().to_vec() });
        place.run("replay log").fails(1, parts);
    }
    for (text, skipped, part) in [
        ("{\"date\":\"2024-10-10\",\"ip\":\"a\"}\n", 0, "dates without a time of day"),
        ("{\"a\":[{\"ts\":1728568536,\"ip\":\"a\"}],\"b\":[{\"ts\":1}]}", 0, "and not \"b\""),
        ("ts,ip\n12,a\n13,a\n", 0, "are numbers before 1990"),
        ("ts,ip\n1728568536000,a\n1728568537,a\n1728568538000,a\n", 1, "not from 1990 to 2099 (ms)"),
    ] {
        place.file("log", text);
        let run = place.run(&format!("replay log {ONE} --json --allow-skipped"));
        let json = serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap();
        assert_eq!(json["input"]["skipped"], skipped, "{text}");
        assert!(
            run.stderr.contains(part) || json["input"]["warnings"][0].as_str().unwrap().contains(part),
            "{json}"
        );
    }
}

#[test]
fn unknown_bytes_are_shown_escaped() {
    let place = Place::new();
    place.file("a", [0x15_u8, 0xff, b'x']);
    place.run("replay a").fails(1, &["(it begins \"\\x15\\xffx\")"]);
}

#[test]
fn help_shows_examples() {
    let place = Place::new();
    for (line, part) in [
        ("--help", "tollgate replay access.log --limit 100/60s"),
        ("rules --help", "tollgate rules check limits.yaml"),
        ("suggest --help", "Exit codes"),
    ] {
        let run = place.run(line).ok();
        assert!(run.stdout.contains(part), "{line}: {}", run.stdout);
    }
    assert!(place.run("--help").ok().stdout.starts_with("Rate limits for gateways and programs"));
}

/// The rest of an array was part of one record, and nothing said so.
#[test]
fn json_that_is_not_closed_is_an_error() {
    let place = Place::new();
    let record = r#"{"ts":1700000000,"ip":"192.0.2.1","agent":"a"}"#;
    let array = format!("[\n{record},\n{record},\n{record}\n]\n");
    place.file("log", &array);
    place.run("replay log").ok();
    let (inside, between) = (array.len() - 10, array.len() - 3);
    let quote = format!("[\n{record},\n{},\n{record}\n]\n", record.replace("\"a\"", "\"a\"b\""));
    for (log, parts) in [
        (array[..inside].to_owned(), &["log: line 4: the JSON record that begins here does not end"][..]),
        (array[..between].to_owned(), &["log: line 4: after the record", "close the array with ]"]),
        (quote, &["log: line 3:", "a quote without \\"]),
        (format!("{{\"hits\":{}", &array[..between]), &["log: line 4:"]),
    ] {
        place.file("log", log);
        place.run("replay log").fails(1, parts);
        place.run("suggest log").fails(1, parts);
    }
}
