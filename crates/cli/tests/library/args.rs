//! The command line.

use clap::{CommandFactory, Parser};
use tollgate_cli::args::{Cli, Command, LimitArg, Share};

#[test]
fn command_line_is_valid() {
    Cli::command().debug_assert();
}

/// Calls `look` with each command, and with the commands of commands.
fn for_each_command(command: &mut clap::Command, look: &mut impl FnMut(&mut clap::Command)) {
    look(command);
    command.get_subcommands_mut().for_each(|one| for_each_command(one, look));
}

/// Cause: a quote was escaped in a comment, where it needs none, and `\"` begins a comment in a manual page.
#[test]
fn help_has_no_stray_backslash() {
    // A line that continues, the form of a byte that is not UTF-8, and a tab.
    let is_stray = |text: &str| {
        let after = text.split('\\').skip(1);
        after
            .into_iter()
            .any(|after| !after.starts_with('\n') && !after.starts_with("xNN") && !after.starts_with("t "))
    };
    assert!(is_stray("a \\\"b") && !is_stray("a \\\nb"));
    let mut command = Cli::command();
    command.build();
    let mut seen = 0;
    for_each_command(&mut command, &mut |command| {
        let name = command.get_name().to_owned();
        for text in [command.render_help().to_string(), command.render_long_help().to_string()] {
            assert!(!is_stray(&text), "{name}: {text}");
        }
        seen += 1;
    });
    assert!(seen > 10);
}

/// The short help of the service is one screen, and each flag in it exists with these values.
#[test]
#[cfg(feature = "serve")]
fn short_help_of_serve_is_one_screen_and_true() {
    let mut command = Cli::command();
    command.build();
    let serve = command.find_subcommand_mut("serve").unwrap();
    let short = serve.render_help().to_string();
    let lines = Vec::from_iter(short.lines());
    assert!(lines.len() <= 50 && lines.iter().all(|line| line.len() <= 80), "{}: {short}", lines.len());
    let place = |text: &str| short.find(text).unwrap_or_else(|| panic!("no {text:?} in {short}"));
    assert!(
        place("Examples:") < place("[FILE|FOLDER]...  ")
            && place("[FILE|FOLDER]...  ") < place("--grpc ADDRESS")
    );
    assert!(place("--resp ADDRESS") < place("--redis URL"));
    let mut flags = 0;
    for line in lines.iter().filter(|line| line.starts_with("  --")) {
        let mut words = line.split_whitespace();
        while let Some(flag) = words.next().filter(|word| word.starts_with("--")) {
            let name = flag.trim_start_matches("--");
            let arg = serve.get_arguments().find(|arg| arg.get_long() == Some(name));
            let arg = arg.unwrap_or_else(|| panic!("no flag {flag}"));
            if arg.get_action().takes_values() {
                let value = words.next().unwrap();
                let known = arg.get_value_names().unwrap_or_default().join("|");
                assert!(known.split('|').any(|known| known == value), "{flag} {value}, not {known}");
            }
            let default = arg.get_default_values().first().and_then(|default| default.to_str());
            if let (Some(default), Some((_, shown))) = (default, line.split_once("[default: ")) {
                assert!(default.ends_with(shown.trim_end_matches(']')), "{flag}: {shown}, not {default}");
            }
            flags += 1;
        }
    }
    assert!(flags >= 15, "{flags}");
}

/// Cause: the example, which no gateway asks, drained for 5 s as a service does.
#[test]
#[cfg(feature = "serve")]
fn example_does_not_drain() {
    let drain =
        |args: &[&str]| match Cli::try_parse_from([&["tollgate", "serve"], args].concat()).unwrap().command {
            Command::Service(tollgate_serve::Command::Serve(args)) => args.drain().as_secs(),
            _ => unreachable!("the command is serve"),
        };
    assert_eq!((drain(&[]), drain(&["limits.yaml"]), drain(&["--xds", "plane:1"])), (0, 5, 5));
    assert_eq!((drain(&["--drain", "3s"]), drain(&["limits.yaml", "--drain", "0"])), (3, 0));
}

#[test]
fn help_of_program_says_what_it_does() {
    let about = Cli::command().get_about().unwrap().to_string();
    for part in ["gateways", "serve", "rules", "logs"] {
        assert!(about.contains(part), "{about}");
    }
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
