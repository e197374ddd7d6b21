//! Users of a file, and what they may send.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tollgate_resp::internals::Users;

use super::{TestEndpoint, endpoint_with};

/// SHA-256 of `secret`.
const HASHED: &str = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// An endpoint with a file of users.
pub(super) struct UserFile {
    pub(super) endpoint: TestEndpoint,
    path: PathBuf,
    _folder: TempDir,
}

impl UserFile {
    pub(super) fn new(quotas: usize, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.acl");
        fs::write(&path, format!("{text}\n")).unwrap();
        Self { endpoint: endpoint_with(quotas, Some(Users::load(&path).unwrap())), path, _folder: folder }
    }

    fn users(&self) -> &Users {
        self.endpoint.shared.users.as_ref().unwrap()
    }

    /// A change has effect at the second reading.
    fn read_twice(&self) {
        self.users().reload_if_changed();
        self.users().reload_if_changed();
    }

    pub(super) fn change(&self, text: &str) {
        fs::write(&self.path, format!("{text}\n")).unwrap();
        self.read_twice();
    }
}

// G141
#[test]
fn users_need_their_password_and_send_what_they_may() {
    let text = format!(
        "# users\n\nuser all on >one >two +@all ~*\nuser shop on {HASHED} +tollgate.check ~shop\nuser cl on >x +CL.THROTTLE\n\
         user off >x +@all ~*"
    );
    let file = UserFile::new(8, &text);
    let mut client = file.endpoint.connect();
    for (line, expected) in [
        ("PING", "-NOAUTH Authentication required.|"),
        ("CL.THROTTLE a 1 1 1", "-NOAUTH"),
        ("HELLO 3", "-NOAUTH HELLO must be called"),
        ("HELLO 3 AUTH all one SETNAME \"a b\"", "-ERR Client names"),
        ("HELLO 3 AUTH all one SETNAME", "-ERR Syntax error"),
        ("HELLO 3 AUTH all one AUTH all three SETNAME a", "-WRONGPASS"),
        ("PING", "-NOAUTH"),
        ("AUTH one", "-WRONGPASS"),
        ("AUTH unknown one", "-WRONGPASS"),
        ("AUTH off x", "-WRONGPASS"),
        ("AUTH all on", "-WRONGPASS"),
        ("AUTH all two", "+OK|"),
        ("CL.THROTTLE a 1 1 1", "*5|:0|"),
        ("AUTH all three", "-WRONGPASS"),
        ("TOLLGATE.CHECK shop user a", "*6|:0|"),
        ("AUTH shop secret", "+OK|"),
        ("CL.THROTTLE a 1 1 1", "-NOPERM User shop has no permissions to run the 'cl.throttle' command|"),
        ("TOLLGATE.CHECK shop user a", "*6|:0|"),
        ("TOLLGATE.PEEK shop user a", "-NOPERM"),
        ("TOLLGATE.CHECK other user a", "-NOPERM No permissions to ask about the domain 'other'|"),
        ("PING", "+PONG|"),
        ("AUTH cl x", "+OK|"),
        ("GCRA a 1 1 1", "-NOPERM"),
        ("TOLLGATE.CHECK shop user a", "-NOPERM"),
        ("RESET", "+RESET|"),
        ("PING", "-NOAUTH"),
        ("HELLO 3 AUTH all one", "%7|"),
    ] {
        let answer = client.say(line);
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    // A file that cannot be used has no effect.
    for unusable in ["user all on >one +@everything", "user all on > +@all ~*"] {
        file.change(unusable);
        assert_eq!(client.say("PING"), "+PONG|");
    }
    // Fewer permissions have effect at once, and another password ends the permission.
    file.change("user all on >one >two +gcra ~*");
    assert!(client.say("CL.THROTTLE a 1 1 1").starts_with("-NOPERM"));
    // A password beside the present one ends nothing.
    file.change("user all on >zero >one >two +gcra ~*");
    assert!(client.say("GCRA a 1 1 1").starts_with("*5|"));
    file.change("user all on >three +@all ~*\nuser default on nopass +gcra");
    assert!(client.say("GCRA a 1 1 1").starts_with("-NOAUTH"));
    // The user `default` may need no password.
    let mut other = file.endpoint.connect();
    assert!(other.say("GCRA a 1 1 1").starts_with("*5|"));
    assert!(other.say("CL.THROTTLE a 1 1 1").starts_with("-NOPERM"));
    // A password after `nopass` is needed, as in Redis.
    for password in [">one", HASHED] {
        file.change(&format!("user default on nopass {password} +@all ~*"));
        assert!(file.endpoint.connect().say("PING").starts_with("-NOAUTH"), "{password}");
    }
}

// G140
#[test]
fn users_share_the_places_of_quotas() {
    let greedy = "user greedy on >x +cl.throttle";
    let others = "user other on >x +gcra\nuser rules on >x +tollgate.check ~*\nuser off >x +@all ~*";
    let file = UserFile::new(6, greedy);
    let endpoint = &file.endpoint;
    let mut client = endpoint.connect();
    assert_eq!(client.say("AUTH greedy x"), "+OK|");
    // Alone, a user has all places.
    for seconds in 1..=6 {
        assert!(client.say(&format!("CL.THROTTLE a 0 1 {}", seconds * 100)).starts_with("*5|:0|"));
    }
    assert!(client.say("CL.THROTTLE a 0 1 9000").starts_with("-ERR 6 other quotas are in use"));
    // Two may send quotas. The first one loses none that is in use, and gets none until it has less than its share.
    file.change(&format!("{greedy}\n{others}"));
    let mut other = endpoint.connect();
    assert_eq!(other.say("AUTH other x"), "+OK|");
    assert!(other.say("GCRA a 0 1 9000").starts_with("-ERR 6 other quotas are in use"));
    for seconds in [102, 101, 103] {
        let refused = "-ERR 3 other quotas of this user are in use, its share of --resp-quotas";
        assert!(
            client.say("CL.THROTTLE a 0 1 9000").starts_with(refused) || endpoint.shared.quotas.len() == 6
        );
        endpoint.clock.advance(Duration::from_secs(seconds));
        let why = client.say("CL.THROTTLE a 0 1 9000");
        assert!(why.starts_with(refused) && !why.contains("  "), "{why}");
        assert!(other.say(&format!("GCRA a 0 1 {}", 9_000 + seconds)).starts_with("*5|:0|"));
    }
    let [first, second] = [client.say("CL.THROTTLE a 0 1 600"), other.say("GCRA a 0 1 9101")];
    assert!(
        first.starts_with("*5|:1|") && second.starts_with("*5|:1|"),
        "nothing in use was lost: {first} {second}"
    );
    // All of a user's quotas are charged for long. The other one has its share.
    endpoint.clock.advance(Duration::from_secs(1_000));
    for count in 1..=3 {
        assert!(client.say(&format!("CL.THROTTLE a 0 {count} 90000")).starts_with("*5|:0|"));
    }
    for count in 4..=400 {
        let told = client.say(&format!("CL.THROTTLE a 0 {count} 90000"));
        assert!(told.starts_with("-ERR 3 other quotas of this") && !told.contains("  "), "{told}");
    }
    endpoint.clock.advance(Duration::from_secs(9_000));
    assert!(other.say("GCRA a 0 1 30").starts_with("*5|:0|"));
    // A share that has grown counts at once.
    file.change(greedy);
    endpoint.clock.advance(Duration::from_secs(60));
    assert!(client.say("CL.THROTTLE a 0 4 90000").starts_with("*5|:0|"));
    assert!(client.say("CL.THROTTLE a 0 1 90000").starts_with("*5|:1|"));
}

// G141
#[test]
fn strangers_may_send_little() {
    let UserFile { endpoint, .. } = &UserFile::new(8, "user a on >x +@all ~*");
    let ends = |bytes: &[u8]| !endpoint.connect().send(bytes).1;
    assert!(ends(b"*11\r\n") && ends(b"*1\r\n$16384\r\n") && ends(&[b'x'; 20_000]));
    assert!(!ends(b"*10\r\n") && !ends(b"*1\r\n$16000\r\n"));
    assert!(ends(&b"AUTH a y\r\n".repeat(8)) && !ends(&b"AUTH a y\r\n".repeat(7)));
    assert_eq!(endpoint.shared.counts.wrong_passwords.get(), 15);
}

/// Every part of a file, as a reader can see it while another program writes the file.
// G141
#[test]
fn files_of_users_that_are_half_written_change_nothing() {
    let lines = "# users\nuser shop on >secret +@all ~*\nuser spät on >one >two +gcra";
    let whole = format!("{lines}\n");
    let file = UserFile::new(8, lines);
    let (endpoint, users, path) = (&file.endpoint, file.users(), &file.path);
    let mut client = endpoint.connect();
    assert_eq!(client.say("AUTH spät two"), "+OK|");
    for cut in 0..whole.len() {
        fs::write(path, &whole.as_bytes()[..cut]).unwrap();
        users.reload_if_changed();
        // A part with whole lines only is like a file without the other users. It differs at the next reading.
        if cut == 0 || !whole.as_bytes()[..cut].ends_with(b"\n") {
            users.reload_if_changed();
        }
        assert_eq!(client.say("PING"), "+PONG|", "{cut}");
    }
    assert_eq!(users.changes(), 0);
    fs::remove_file(path).unwrap();
    file.read_twice();
    file.change(lines);
    assert_eq!(
        (client.say("PING"), endpoint.say("AUTH shop secret")),
        ("+PONG|".to_owned(), "+OK|".to_owned())
    );
    file.change("user shop on >secret +@all ~*");
    assert!(client.say("PING").starts_with("-NOAUTH"), "the user is removed");
}

// G141
#[test]
fn files_of_users_name_their_problems() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    for (text, problem) in [
        ("", "there is no user"),
        ("# nothing\n", "there is no user"),
        ("\nusr a\n", "line 2: expected a line such as: user NAME on >PASSWORD +@all ~*"),
        ("user", "line 1: the user has no name"),
        ("user a on secret", "line 1: a word is none of on, off, nopass"),
        ("user a #12", "line 1: after # comes the SHA-256 of the password"),
        // Digits after the hash, and characters that are none, used to be cut off.
        (
            "user b on nopass\nuser a #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b0zz",
            "line 2: after # comes the SHA-256 of the password: 64 hexadecimal digits, and nothing else",
        ),
        ("user a #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25bzz", "line 1: after #"),
        ("user a #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b0", "line 1: after #"),
        ("user a #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a2zz", "line 1: after #"),
        ("user a #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25", "line 1: after #"),
        // A name that was left out would be shown in the log.
        ("user >secret on +@all", "line 1: the user has no name: it comes first"),
        (
            "user a +get",
            "\"get\" is no command that a user can be permitted; there are: cl.throttle, gcra, tollgate.check",
        ),
        ("user a ~sh*", "a word is none of"),
        ("user a on\nuser a off", "line 2: the user \"a\" is there twice"),
        ("user a on >x\nuser b on >y", "line 2 has no end, so the file may be written in part"),
        ("user a on >x\n# b", "line 2 has no end"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Users::load(&path).unwrap_err().to_string();
        assert!(error.contains(problem), "{text:?}: {error}");
        assert!(!error.contains("secret") && error.contains("users.acl"), "{error}");
    }
    let missing = Users::load(&folder.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("cannot read"), "{missing}");
}
