//! `tollgate rules push`, `pull` and `diff`: rules on a real server, and wrong input.

use crate::support::Place;
use tollgate_testing::redis::Server;

const LIMITS: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 100 }
";
const KEY: &str = "tollgate:rules:{default}";
/// The remedy for rules that a push cannot read.
const REPLACE: &str = "replace the rules with `tollgate rules push --force`";
/// An address where nothing listens, with a password.
const NOWHERE: &str = "redis://wilma:sekret@127.0.0.1:1/";

// G94
#[test]
fn pushed_rules_are_pulled_and_compared() {
    let Some(server) = Server::start() else { return };
    let (place, url) = (Place::with_test_features(), server.url());
    place.file("limits.yaml", LIMITS);
    place.run(&format!("rules pull --from {url}")).fails(1, &["there are no rules named \"default\""]);

    let run = place.run(&format!("rules diff limits.yaml --to {url}")).ok();
    let added = "2 added, 0 changed, 0 removed\n  added domain \"shop\"\n  added rule \"shop.user\" (shop|user): 100/d, fixed-window\n";
    assert_eq!(run.stdout, format!("there are no rules yet\n{added}"));
    let run = place.run(&format!("rules push limits.yaml --to {url} --by ann")).ok();
    assert_eq!(run.stdout, format!("version 1 is written: {added}"));
    let run = place.run(&format!("rules push limits.yaml --to {url}")).ok();
    assert_eq!(run.stdout, "version 1 has this text already; nothing is written\n");

    let run = place.run(&format!("rules pull --from {url}")).ok();
    assert_eq!(run.stdout, LIMITS);
    assert!(run.stderr.starts_with("version 1: 94 bytes of yaml, pushed by \"ann\" at 20"), "{}", run.stderr);

    place.file("limits.yaml", LIMITS.replace("100", "200").replace("user", "account"));
    let changed = "1 added, 0 changed, 1 removed\n  added rule \"shop.account\" (shop|account): 200/d, fixed-window\n  removed rule \"shop.user\" (shop|user): 100/d, fixed-window\n";
    let run = place.run(&format!("rules diff limits.yaml --to {url}")).ok();
    assert!(run.stdout.starts_with("version 1: ") && run.stdout.ends_with(changed), "{}", run.stdout);
    let run = place.run(&format!("rules push limits.yaml --to {url} --seen 1")).ok();
    assert_eq!(run.stdout, format!("version 2 is written: {changed}"));

    // Another push came in between.
    place.file("limits.yaml", LIMITS.replace("100", "300"));
    place
        .run(&format!("rules push limits.yaml --to {url} --seen 1"))
        .fails(1, &["pushed version 2, and this push replaces version 1", "tollgate rules diff"]);
    let run = place.run(&format!("rules push limits.yaml --to {url} --force")).ok();
    assert!(run.stdout.starts_with("version 3 is written"), "{}", run.stdout);

    // A roll-back.
    let run = place.run(&format!("rules pull --from {url} --version 1")).ok();
    assert_eq!(run.stdout, LIMITS);
    place.file("old.yaml", run.stdout).run(&format!("rules push old.yaml --to {url}")).ok();
    assert_eq!(place.run(&format!("rules pull --from {url}")).ok().stdout, LIMITS);
    place.run(&format!("rules pull --from {url} --version 9")).fails(1, &["there is no version 9"]);

    // Standard input is a file too.
    let run =
        place.run_with(&format!("rules push - --to {url}"), LIMITS.replace("100", "400").as_bytes()).ok();
    assert!(run.stdout.starts_with("version 5 is written") && run.stdout.contains("400/d"), "{}", run.stdout);
    let run = place.run_with(&format!("rules diff - --to {url}"), LIMITS.as_bytes()).ok();
    assert!(run.stdout.contains("1 changed"), "{}", run.stdout);
    place
        .run_with(&format!("rules push - --to {url}"), LIMITS.replace("day", "fortnight").as_bytes())
        .fails(1, &["standard input:4:25"]);

    // Names are separate, and the format is kept.
    place.file("api.toml", "domain = \"api\"\ndescriptors = []\n");
    place.run(&format!("rules push api.toml --to {url} --name api")).ok();
    let run = place.run(&format!("rules pull --from {url} --name api")).ok();
    assert!(run.stderr.contains("bytes of toml"), "{}", run.stderr);
    let run = place.run(&format!("rules diff limits.yaml --to {url} --name api")).ok();
    assert!(run.stdout.contains("removed domain \"api\""), "{}", run.stdout);
}

// G94
#[test]
fn bad_rules_are_not_pushed() {
    let Some(server) = Server::start() else { return };
    let (place, url) = (Place::with_test_features(), server.url());
    place.file("wrong.yaml", LIMITS.replace("day", "fortnight"));
    for command in ["push wrong.yaml", "push wrong.yaml --force", "diff wrong.yaml"] {
        place
            .run(&format!("rules {command} --to {url}"))
            .fails(1, &["wrong.yaml:4:25: descriptors[0].rate_limit.unit", "1 problem in 1 file"]);
    }
    place.file("long.yaml", format!("{LIMITS}#{}", "x".repeat(1 << 20)));
    place.run(&format!("rules push long.yaml --to {url}")).fails(1, &["the maximum is 1048576"]);
    place.run(&format!("rules push none.yaml --to {url}")).fails(1, &["none.yaml: cannot be read"]);
    place.file("limits.txt", LIMITS);
    place.run(&format!("rules push limits.txt --to {url}")).fails(1, &["no known extension"]);
    place.file("latin.yaml", b"domain: \xff");
    place.run(&format!("rules push latin.yaml --to {url}")).fails(1, &["latin.yaml:1:9: this is not UTF-8"]);
    assert_eq!(server.command::<Vec<String>>(&["KEYS", "*"]), Vec::<String>::new());
}

// G94
#[test]
fn damaged_rules_are_replaced_only_by_force() {
    let Some(server) = Server::start() else { return };
    let (place, url) = (Place::with_test_features(), server.url());
    place.file("limits.yaml", LIMITS);
    place.run(&format!("rules push limits.yaml --to {url}")).ok();
    let () = server.command(&["HSET", "tollgate:rules:{default}", "text", "domain: other"]);
    for command in ["pull --from", "push limits.yaml --to", "diff limits.yaml --to"] {
        place
            .run(&format!("rules {command} {url}"))
            .fails(1, &["the SHA-256 of version 1 does not match its text", REPLACE]);
    }
    let run = place.run(&format!("rules push limits.yaml --to {url} --force")).ok();
    assert!(run.stdout.starts_with("version 2 is written"), "{}", run.stdout);
    place
        .run(&format!("rules pull --version 1 --from {url}"))
        .fails(1, &["the history is damaged: the SHA-256 of version 1"]);
    // The damage of a version says nothing about a version that is not kept.
    for version in [0, 3, 9] {
        place
            .run(&format!("rules pull --version {version} --from {url}"))
            .fails(1, &[&format!("there is no version {version} of \"default\"")]);
    }
    let () = server.command(&["HSET", "tollgate:rules:{default}", "sha256", "0"]);
    place.run(&format!("rules pull --from {url}")).fails(1, &["the SHA-256 of version 2 does not match"]);
    place.run(&format!("rules push limits.yaml --to {url} --force")).ok();
    let () = server.command(&["HSET", "tollgate:rules:{default}", "sha256", "0"]);
    // Damage of the present version does not hide an earlier version.
    place.file("limits.yaml", LIMITS.replace("100", "200"));
    place.run(&format!("rules push limits.yaml --to {url} --force")).ok();
    place.file("limits.yaml", LIMITS.replace("100", "300"));
    place.run(&format!("rules push limits.yaml --to {url}")).ok();
    let () = server.command(&["HSET", "tollgate:rules:{default}", "sha256", "0"]);
    let earlier = place.run(&format!("rules pull --version 4 --from {url}")).ok();
    assert_eq!(earlier.stdout, LIMITS.replace("100", "200"));
    place.file("limits.yaml", LIMITS);
    let run = place.run(&format!("rules push limits.yaml --to {url} --force")).ok();
    assert!(run.stderr.contains("warning: rules in Redis at 127.0.0.1:"), "{}", run.stderr);
    assert_eq!(place.run(&format!("rules pull --from {url}")).ok().stdout, LIMITS);
    // The number itself is damaged, or missing.
    for damage in [&["HSET", KEY, "version", "many"][..], &["HDEL", KEY, "version"]] {
        let store = || server.command::<String>(&["HGET", KEY, "store"]);
        let before = store();
        let _: i64 = server.command(damage);
        place.run(&format!("rules push limits.yaml --to {url}")).fails(1, &["the field `version`", REPLACE]);
        let run = place.run(&format!("rules push limits.yaml --to {url} --force")).ok();
        // In the same store, readers would refuse a lower number.
        assert!(run.stdout.starts_with("version 1 is written") && store() != before, "{}", run.stdout);
    }
}

/// Cause: a push compared only the versions. Symptom: it returned 0, each running process refused its text, and new
/// processes started with it, without the limits of the removed domain.
// G94
#[test]
fn removed_domains_need_a_flag() {
    let Some(server) = Server::start() else { return };
    let (place, url) = (Place::with_test_features(), server.url());
    place.file("limits.yaml", LIMITS);
    place.run(&format!("rules push limits.yaml --to {url}")).ok();
    let renamed = LIMITS.replace("shop", "shops");
    for text in [&*renamed, "domain: shop\ndescriptors: []\n"] {
        place.file("limits.yaml", text);
        let refused = "the domain \"shop\" would have no rules any more";
        for force in ["", " --force"] {
            place
                .run(&format!("rules push limits.yaml --to {url}{force}"))
                .fails(1, &[refused, "push with --allow-removals"]);
        }
        let run = place.run(&format!("rules diff limits.yaml --to {url}")).ok();
        assert!(run.stderr.contains(&format!("warning: {refused}")), "{}", run.stderr);
    }
    assert_eq!(place.run(&format!("rules pull --from {url}")).ok().stdout, LIMITS);
    place.file("limits.yaml", &renamed);
    let run = place.run(&format!("rules push limits.yaml --to {url} --allow-removals")).ok();
    assert!(run.stdout.starts_with("version 2 is written"), "{}", run.stdout);
    assert!(run.stderr.contains("warning: the domain \"shop\""), "{}", run.stderr);
    // A domain that has no rules can go.
    place
        .file("none.yaml", "domain: one\ndescriptors: []\n")
        .run(&format!("rules push none.yaml --to {url} --name n"))
        .ok();
    place.run(&format!("rules push limits.yaml --to {url} --name n")).ok();
}

#[test]
fn variable_of_the_server_is_named() {
    let place = Place::with_test_features();
    for (url, parts) in [
        ("", &["the variable TOLLGATE_REDIS_URL is empty", "redis://"][..]),
        ("nowhere", &["invalid server address", "from the variable TOLLGATE_REDIS_URL"]),
    ] {
        let variables = [("TOLLGATE_REDIS_URL", url)];
        place.run_in(&variables, "rules pull", b"").fails(2, parts);
        let typed = place.run_in(&variables, "rules pull --from nowhere", b"");
        assert!(!typed.stderr.contains("TOLLGATE_REDIS_URL"), "{}", typed.stderr);
    }
}

// G94
#[test]
fn messages_never_contain_the_password() {
    let place = Place::with_test_features();
    place.file("limits.yaml", LIMITS);
    for command in
        ["pull --from", "push limits.yaml --to", "push limits.yaml --force --to", "diff limits.yaml --to"]
    {
        let run = place.run(&format!("rules {command} {NOWHERE}"));
        run.fails(1, &["127.0.0.1:1", "tollgate:rules:{default}", "the server cannot be reached"]);
        assert!(!run.stderr.contains("sekret") && !run.stderr.contains("wilma"), "{}", run.stderr);
        for url in ["http://wilma:sekret@host/", "redis://wilma:sekret@host:port/", "wilma:sekret"] {
            let run = place.run(&format!("rules {command} {url}"));
            run.fails(2, &["invalid server address"]);
            assert!(!run.stderr.contains("sekret"), "{}", run.stderr);
        }
    }
    let Some(server) = Server::start() else { return };
    let () = server.command(&["CONFIG", "SET", "requirepass", "other"]);
    let url = server.url().replace("redis://", "redis://:sekret@");
    let run = place.run(&format!("rules pull --from {url}"));
    run.fails(1, &["127.0.0.1:"]);
    assert!(!run.stderr.contains("sekret"), "{}", run.stderr);
}

// G94
#[test]
fn wrong_command_lines_are_usage_errors() {
    let place = Place::with_test_features();
    place.file("limits.yaml", LIMITS);
    for (command, part) in [
        ("push", "<FILE>"),
        ("diff", "<FILE>"),
        ("push limits.yaml", "TOLLGATE_REDIS_URL"),
        ("pull", "TOLLGATE_REDIS_URL"),
        ("pull limits.yaml", "unexpected argument"),
        ("push limits.yaml --to redis://127.0.0.1:1 --name a/b", "the name \"a/b\" cannot be used"),
        ("push limits.yaml --to redis://127.0.0.1:1 --seen x", "--seen"),
        ("push limits.yaml --to redis://127.0.0.1:1 --seen 1 --force", "--force"),
        ("pull --from redis://127.0.0.1:1 --version x", "--version"),
        ("push a.yaml b.yaml --to redis://127.0.0.1:1", "unexpected argument"),
    ] {
        place.run(&format!("rules {command}")).fails(2, &[part]);
    }
    let help = place.run("rules push --help").ok().stdout;
    assert!(help.contains("Write over any version, also over one that is damaged"), "{help}");
    assert!(help.contains("TOLLGATE_REDIS_URL=redis://") && help.contains("Roll back"), "{help}");
}
