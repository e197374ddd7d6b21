//! The command line.

use clap::{CommandFactory, Parser};
use tollgate_cli::args::{Cli, Command, LimitArg, Share};

#[test]
fn command_line_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn shares_are_exact() {
    let share: Share = "0.1%".parse().unwrap();
    assert_eq!(share, "0.001".parse().unwrap());
    assert!(share.allows(1, 1000) && !share.allows(1, 999));
    assert_eq!(share.to_string(), "0.1%");
    assert_eq!("100 %".parse::<Share>().unwrap().to_string(), "100%");
    assert_eq!("0".parse::<Share>().unwrap().to_string(), "0%");
    for text in ["1", "1.0", "", "%", "101%", "1.1", "-1%", "x"] {
        assert!(text.parse::<Share>().is_err(), "{text:?}");
    }
}

#[test]
fn burst_in_limit_overrides_flag() {
    let with = |text: &str| text.parse::<LimitArg>().unwrap().with_burst(Some(3)).unwrap().burst_size();
    assert_eq!((with("10/s burst 5"), with("10/s")), (5, 3));
}

#[test]
fn json_flag_needs_equals_sign() {
    let parse = |args: &[&str]| match Cli::try_parse_from([&["tollgate", "replay"], args].concat())
        .unwrap()
        .command
    {
        Command::Replay(args) => args,
        _ => unreachable!("the command is replay"),
    };
    let args = parse(&["--json", "access.log"]);
    assert_eq!((args.json, args.input.files), (Some("-".into()), vec!["access.log".into()]));
    assert_eq!(parse(&["--json=out.json"]).json, Some("out.json".into()));
}
