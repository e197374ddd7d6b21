//! Output on a terminal: lines that fit it, and colours. `COLUMNS` stands for a terminal of that width.

use unicode_width::UnicodeWidthStr as _;

use crate::support::{Place, Run};

/// A place with a log of long keys, and with rules of long paths and names.
fn place() -> Place {
    let place = Place::new();
    let keys = [
        "2001:db8:0:1::1",
        "192.0.2.1",
        "日本語のとても長いキーがここにありますので折り返します",
        &"k".repeat(90),
    ];
    let line = |n: usize| format!("{},{},/login\n", 1_498_780_800 + n / 9, keys[n % keys.len()]);
    let log: String = (0..4_000).map(line).collect();
    let rules = "\
domain: a-domain-with-a-long-name
tollgate: {}
descriptors:
  - key: remote_address
    rate_limit: { name: per-client, unit: hour, requests_per_unit: 10 }
  - key: remote_address
    value: 192.0.2.1
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: path
    value: /a/long/path/that/no/request/has/and/that/does/not/fit
    descriptors:
      - key: remote_address
        rate_limit:
          { name: a-long-name, unit: second, requests_per_unit: 1000, burst: 3000, algorithm: gcra, store: compact, memory: 1MiB }
";
    let wrong = rules
        .replace("unit: day", "unit: fortnight")
        .replace("requests_per_unit: 10 ", "requests_per_unit: -1 ");
    place
        .file("log", format!("ts,ip,path\n{log}garbage\n"))
        .file("rules.yaml", rules)
        .file("wrong.yaml", wrong);
    place
}

const LINES: [&str; 9] = [
    "replay",
    "replay log --limit 5/60s",
    "replay log --limit 5/60s --limit 50/h --store compact --memory 64KiB",
    "replay log --limit 5/60s --store sketch --memory 64KiB",
    "replay log --rules rules.yaml",
    "suggest log --deny-requests 1% --algorithm all",
    "suggest log --deny-requests 1% --period 1h --period 1s --store compact",
    "rules check rules.yaml",
    "rules check rules.yaml --log log",
];

const WRONG: [&str; 6] = [
    "replay log --key user",
    "replay log --limit 5/60s --algorithm sub-window --store compact --memory 64KiB",
    "replay log --store sketch --memory 64KiB --burst 5 --limit 100/60s --algorithm gcra",
    "rules check rules.yaml wrong.yaml",
    "replay --burst many",
    "suggest log --period soon",
];

#[track_caller]
fn assert_fits(run: &Run, columns: usize, args: &str) {
    // A word that is longer than a line, such as the path of a rule, stays whole.
    for line in run.stdout.lines().chain(run.stderr.lines()).filter(|line| line.trim().contains([' ', '─']))
    {
        assert!(line.width() <= columns, "{args}, {columns} columns, {}: {line}", line.width());
    }
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn output_fits_the_terminal() {
    let place = place();
    for args in LINES {
        let wide = place.run_in(&[("COLUMNS", "400")], args, b"").ok().stdout;
        let piped = place.run(args).ok().stdout;
        assert!(wide.split_whitespace().eq(piped.split_whitespace()), "{args}: {wide}{piped}");
        for columns in [80_usize, 100] {
            assert_fits(&place.run_in(&[("COLUMNS", &columns.to_string())], args, b"").ok(), columns, args);
        }
    }
}

#[test]
fn errors_fit_the_terminal() {
    let place = place();
    for args in WRONG {
        let run = place.run_in(&[("COLUMNS", "80")], args, b"");
        assert!(run.code > 0, "{args}: {run:?}");
        assert_fits(&run, 80, args);
        let plain = place.run(args).stderr;
        assert!(run.stderr.split_whitespace().eq(plain.split_whitespace()), "{args}: {}{plain}", run.stderr);
    }
}

#[test]
fn help_fits_80_columns() {
    let place = Place::new();
    for command in [
        "",
        "replay",
        "suggest",
        "rules",
        "rules check",
        "rules push",
        "rules pull",
        "rules diff",
        "completions",
        "man",
    ] {
        for flag in ["-h", "--help"] {
            for variables in [&[][..], &[("COLUMNS", "200")]] {
                let args = format!("{command} {flag}");
                assert_fits(&place.run_in(variables, &args, b"").ok(), 80, &args);
            }
        }
    }
}

#[test]
fn narrow_terminal_leaves_columns_out() {
    let run = place().run_in(&[("COLUMNS", "80")], "replay log --limit 5/60s", b"").ok();
    let note = "(Columns left out: State, Most denied key. The terminal is too narrow; --json";
    assert!(run.stdout.contains(note), "{}", run.stdout);
    // A header is split at its hyphen.
    assert!(run.stdout.lines().any(|line| line.contains(" token- ")), "{}", run.stdout);
}

#[test]
fn colours_are_for_terminals() {
    let place = Place::new();
    for args in ["--help", "replay --burst many", "replay missing.log"] {
        let codes = |variables| {
            let Run { stdout, stderr, .. } = place.run_in(variables, args, b"");
            assert!(!(stdout.is_empty() && stderr.is_empty()));
            stdout.contains('\x1b') || stderr.contains('\x1b')
        };
        assert!(!codes(&[]), "{args}");
        assert!(codes(&[("CLICOLOR_FORCE", "1")]), "{args}");
        assert!(!codes(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), "{args}");
    }
}
