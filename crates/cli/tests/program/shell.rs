//! Completions and manual pages.

use std::process::{Command, Stdio};

use tollgate_testing::skipped::skip;

use crate::support::Place;

/// Runs a program on a file, or reports that the program is missing.
fn check_with(program: &str, args: &[&str], place: &Place) {
    let output = Command::new(program).args(args).current_dir(place.path("")).stdin(Stdio::null()).output();
    match output {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&said));
        }
        Err(error) => skip(&format!("{program}: {error}")),
    }
}

#[test]
fn completions_know_commands_and_values() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&format!("completions {shell}")).ok().stdout;
        for part in ["tollgate", "suggest", "deny-requests", "sliding-window", "compact", "push"] {
            assert!(script.contains(part), "{shell} lacks {part}");
        }
        place.file(shell, script);
    }
    check_with("bash", &["-n", "bash"], &place);
    place.run("completions cmd").fails(2, &["bash", "fish"]);
}

#[test]
fn manual_pages_describe_every_command() {
    let place = Place::new();
    let page = place.run("man").ok().stdout;
    for part in [".TH tollgate 1", "SUBCOMMANDS", "tollgate\\-replay(1)", "Exit codes"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(place.run("man pages").ok().stdout, "The manual pages are in pages\n");
    assert_eq!(String::from_utf8(place.read("pages/tollgate.1")).unwrap(), page);
    for (command, part) in
        [("replay", "sub\\-windows"), ("suggest", "deny\\-clients"), ("rules-check", "limits.yaml")]
    {
        let page = place.read(&format!("pages/tollgate-{command}.1"));
        assert!(String::from_utf8(page).unwrap().contains(part), "{command}");
    }
    // In a page, `\\` is a backslash that a reader sees, and `\"` hides the rest of its line.
    for entry in std::fs::read_dir(place.path("pages")).unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(!page.contains("\\\""), "{}", path.display());
        let is_meant = |after: &str| ["\n", "xNN", "t "].iter().any(|form| after.starts_with(form));
        let stray = page.split("\\\\").skip(1).find(|after| !is_meant(after));
        assert_eq!(stray, None, "{}", path.display());
    }
    place.file("file", "").run("man file").fails(1, &["cannot write file"]);
}
