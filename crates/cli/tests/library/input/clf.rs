//! Lines of web servers' logs.

use tollgate_cli::input::clf::{ClfLine, parse, sample, text};

fn texts(line: &[u8]) -> [String; 9] {
    let line = parse(line).unwrap_or_else(|reason| panic!("{reason}"));
    let ClfLine { host, ident, user, time, request, status, bytes, referer, agent, .. } = line;
    [host, ident, user, time, request, status, bytes, referer, agent]
        .map(|part| String::from_utf8_lossy(part).into_owned())
}

fn field<'a>(line: &ClfLine<'a>, name: &str) -> &'a [u8] {
    text(line, sample().column(name).unwrap())
}

#[test]
fn combined_format_is_parsed() {
    let line = br#"192.0.2.1 - jo doe [10/Oct/2000:13:55:36 -0700] "GET /a?b=\"c\" HTTP/1.0" 200 23 "http://x/" "M 4""#;
    let time = "10/Oct/2000:13:55:36 -0700";
    let request = r#"GET /a?b=\"c\" HTTP/1.0"#;
    assert_eq!(texts(line), ["192.0.2.1", "-", "jo doe", time, request, "200", "23", "http://x/", "M 4"]);
}

#[test]
fn virtual_hosts() {
    let time = "[10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 23";
    for (who, vhost, host, user) in [
        ("shop.example:443 192.0.2.1 - -", "shop.example:443", "192.0.2.1", "-"),
        ("shop.example 192.0.2.1 - jo doe", "shop.example", "192.0.2.1", "jo doe"),
        ("192.0.2.9:80 2001:db8::1 - -", "192.0.2.9:80", "2001:db8::1", "-"),
        ("shop.example:443 host.example - -", "shop.example:443", "host.example", "-"),
        ("shop.example:443 192.0.2.1:5551 - -", "shop.example:443", "192.0.2.1:5551", "-"),
        // These lines have no virtual host, for any name that a client logs in with.
        ("192.0.2.1 - -", "", "192.0.2.1", "-"),
        ("192.0.2.1:5551 - jo doe", "", "192.0.2.1:5551", "jo doe"),
        ("192.0.2.1 - 192.0.2.2 x", "", "192.0.2.1", "192.0.2.2 x"),
        ("host.example:5551 - jo doe", "", "host.example:5551", "jo doe"),
    ] {
        let line = format!("{who} {time}");
        let line = parse(line.as_bytes()).unwrap();
        let text = String::from_utf8_lossy;
        assert_eq!((&*text(line.vhost), &*text(line.host), &*text(line.user)), (vhost, host, user), "{who}");
    }
}

#[test]
fn forwarded_lists_in_front() {
    let time = "[10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 23";
    for (who, vhost, forwarded, host, user) in [
        ("203.0.113.9, 192.0.2.1 - jo doe", "", "", "203.0.113.9, 192.0.2.1", "jo doe"),
        ("203.0.113.9,192.0.2.1 - -", "", "", "203.0.113.9,192.0.2.1", "-"),
        ("\"203.0.113.9, 192.0.2.1\" - -", "", "", "203.0.113.9, 192.0.2.1", "-"),
        ("\"-\" - -", "", "", "-", "-"),
        ("unknown, 192.0.2.1 10.0.0.9 - -", "", "unknown, 192.0.2.1", "10.0.0.9", "-"),
        ("\"192.0.2.1\" 10.0.0.9 - jo", "", "192.0.2.1", "10.0.0.9", "jo"),
        ("- 10.0.0.9 - -", "", "-", "10.0.0.9", "-"),
        ("\"\" 10.0.0.9 - -", "", "", "10.0.0.9", "-"),
        ("'198.51.100.1, 192.0.2.10' - -", "", "", "198.51.100.1, 192.0.2.10", "-"),
        ("[198.51.100.2] - -", "", "", "198.51.100.2", "-"),
        ("(198.51.100.2) - jo", "", "", "198.51.100.2", "jo"),
        ("[2001:db8::1] - -", "", "", "[2001:db8::1]", "-"),
        ("[2001:db8::1]:443 - -", "", "", "[2001:db8::1]:443", "-"),
        ("[[2001:db8::1], 192.0.2.1] - -", "", "", "[2001:db8::1], 192.0.2.1", "-"),
        ("(203.0.113.9, 192.0.2.1) 10.0.0.9 - -", "", "203.0.113.9, 192.0.2.1", "10.0.0.9", "-"),
        ("10.0.0.9 (198.51.100.1) - -", "", "198.51.100.1", "10.0.0.9", "-"),
        ("10.0.0.9 [203.0.113.9, 198.51.100.1] - jo", "", "203.0.113.9, 198.51.100.1", "10.0.0.9", "jo"),
        ("10.0.0.9 (-) - -", "", "-", "10.0.0.9", "-"),
        ("shop.example 203.0.113.9, 192.0.2.1 - -", "shop.example", "", "203.0.113.9, 192.0.2.1", "-"),
        (
            "\"shop.example\" \"203.0.113.9, 192.0.2.1\" - -",
            "shop.example",
            "",
            "203.0.113.9, 192.0.2.1",
            "-",
        ),
    ] {
        let line = format!("{who} {time}");
        let line = parse(line.as_bytes()).unwrap_or_else(|why| panic!("{who}: {why}"));
        let texts = [line.vhost, line.forwarded, line.host, line.user].map(String::from_utf8_lossy);
        assert_eq!(texts, [vhost, forwarded, host, user], "{who}");
    }
}

#[test]
fn forwarded_lists_at_the_end() {
    for (end, list) in [
        ("\"-\" \"x\" \"203.0.113.9, 192.0.2.1\"", "203.0.113.9, 192.0.2.1"),
        ("\"-\" \"\" \"2001:db8::1\" \"shop.example\"", "2001:db8::1"),
        ("\"-\" \"x\" \"-\"", "-"),
        ("\"-\" \"x\" \"id-7\"", "-"),
        ("\"-\" \"x\" 192.0.2.1", "192.0.2.1"),
        ("\"-\" \"x\" 203.0.113.9, 192.0.2.1", "203.0.113.9, 192.0.2.1"),
        ("\"-\" \"x\" \"shop.example\" \"192.0.2.1\"", "192.0.2.1"),
        ("\"-\" \"x\" 0.003 \"192.0.2.1\" 7", "192.0.2.1"),
        // Upstream servers have ports.
        ("\"-\" \"x\" \"10.0.0.5:8080\" \"192.0.2.1\"", "192.0.2.1"),
        ("\"-\" \"x\" \"192.0.2.1:4711\"", "192.0.2.1:4711"),
        ("\"-\" \"x\" 0.003 \"10.0.0.5:8080\"", "-"),
        ("\"-\" \"x\" 10.0.0.5:8080, 10.0.0.6:8080", "-"),
        // In brackets, after a name, and before the referer.
        ("\"-\" \"x\" [192.0.2.1]", "192.0.2.1"),
        ("\"-\" \"x\" [203.0.113.9, 192.0.2.1] 7", "203.0.113.9, 192.0.2.1"),
        ("\"-\" \"x\" rt=0.003 xff=\"203.0.113.9, 192.0.2.1\"", "203.0.113.9, 192.0.2.1"),
        ("\"-\" \"x\" upstream=10.0.0.5 clientip=192.0.2.1", "192.0.2.1"),
        ("192.0.2.1 \"-\" \"x\"", "192.0.2.1"),
        ("\"-\" \"x\"", "-"),
        ("", "-"),
    ] {
        let line = format!("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 23 {end}");
        let line = parse(line.as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(field(&line, "$http_x_forwarded_for")), list, "{end}");
    }
}

#[test]
fn words_before_the_address_are_no_client() {
    let line = |who: &str| format!("{who} [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 23");
    for who in [
        "web1 nginx 192.0.2.1 - -",
        "a b \"203.0.113.9, 192.0.2.1\" - -",
        "a:1 b 2001:db8::1 - -",
        "INFO access - 192.0.2.1 - -",
        "83 app - -",
        "[info]192.0.2.1 - -",
        "2024-10-10T13:55:36Z app - -",
        "ACCESS",
        "1:203.0.113.5 - -",
        "access.log:203.0.113.5 - -",
        "access.log:2001:db8::1 - -",
        "INFO:werkzeug:203.0.113.5:4000 - -",
        "ip=203.0.113.5 - -",
        "9.9.9.9;203.0.113.5 - -",
    ] {
        assert!(parse(line(who).as_bytes()).unwrap_err().starts_with("words before the address"), "{who}");
    }
    for who in [
        "host.example - -",
        "host.example - 192.0.2.1",
        "localhost - jo doe",
        "- - -",
        "host.example:443 - -",
        "[fe80::1%eth0]:4000 - -",
        "2001:db8::1:50000 - -",
        "for=192.0.2.1 - -",
        "fe80::1%eth0 - -",
        "192.0.2.1",
    ] {
        assert!(parse(line(who).as_bytes()).is_ok(), "{who}");
    }
}

#[test]
fn whole_urls_have_a_path() {
    for (target, path, bare) in [
        ("http://shop.example/a?b=http://c/d", "/a?b=http://c/d", "/a"),
        ("https://shop.example:443", "/", "/"),
        ("http://shop.example?x=/y", "/", "/"),
        ("/http://shop.example/a", "/http://shop.example/a", "/http://shop.example/a"),
        ("shop.example:443", "shop.example:443", "shop.example:443"),
        ("*", "*", "*"),
    ] {
        let line = format!("h - - [10/Oct/2000:13:55:36 -0700] \"GET {target} HTTP/1.1\" 200 1");
        let line = parse(line.as_bytes()).unwrap();
        assert_eq!((field(&line, "path"), field(&line, "bare_path")), (path.as_bytes(), bare.as_bytes()));
    }
}

#[test]
fn common_format_and_missing_values() {
    let parts = texts(br#"::1 - - [10/Oct/2000:13:55:36 -0700] "-" 408 -"#);
    assert_eq!(parts[0], "::1");
    assert_eq!(parts[4..], ["-", "408", "-", "", ""]);
    let parsed = parse(br#"::1 - - [10/Oct/2000:13:55:36 -0700] "-" 408 -"#).unwrap();
    assert_eq!(field(&parsed, "bytes"), b"0");
    assert_eq!(field(&parsed, "path"), b"-");
}

#[test]
fn request_may_hold_any_bytes_and_quotes() {
    let line = b"h - - [10/Oct/2000:13:55:36 -0700] \"GET /\xff\x90\"\x01\\\" HTTP\" 404 5";
    let parsed = parse(line).unwrap();
    assert_eq!(parsed.request, b"GET /\xff\x90\"\x01\\\" HTTP");
    // A backslash that is not an escape stands before the closing quote.
    let parsed = parse(b"h - - [10/Oct/2000:13:55:36 -0700] \"GET /\\\" 404 5 \"-\" \"-\"").unwrap();
    assert_eq!((parsed.request, parsed.status), (&b"GET /\\"[..], &b"404"[..]));
    // A forged ending inside an escaped quote is not believed.
    let parsed = parse(b"h - - [10/Oct/2000:13:55:36 -0700] \"GET /\\\" 200 1 \" 404 5").unwrap();
    assert_eq!(parsed.status, b"404");
}

#[test]
fn truncated_log_line_is_rejected() {
    let whole: &[u8] = br#"h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 23"#;
    for end in 0..whole.len() - 2 {
        assert!(parse(&whole[..end]).is_err(), "{end}");
    }
    assert!(parse(whole).is_ok());
}

#[test]
fn bare_path_omits_query() {
    for (request, path, bare) in [
        ("GET /a?b=c?d HTTP/1.0", "/a?b=c?d", "/a"),
        ("GET /a HTTP/1.0", "/a", "/a"),
        ("GET ?x", "?x", ""),
        ("-", "-", "-"),
    ] {
        let line = format!("h - - [10/Oct/2000:13:55:36 -0700] \"{request}\" 200 1");
        let line = parse(line.as_bytes()).unwrap();
        assert_eq!(field(&line, "path"), path.as_bytes());
        assert_eq!(field(&line, "bare_path"), bare.as_bytes());
    }
}

#[test]
fn field_names_and_aliases() {
    let field = |name| sample().column(name);
    assert_eq!(field("Remote_Addr"), field("ip"));
    assert_eq!(field("CS-URI-Stem"), field("bare_path"));
    assert!(field("path").is_some() && field("path") != field("bare_path"));
    assert_eq!(field("cookie"), None);
}
