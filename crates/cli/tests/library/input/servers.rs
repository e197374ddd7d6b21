//! A hundred lines of each format that is recognised by itself, as its server writes them, and of format strings.
//!
//! Each format is one entry of [`FORMATS`]: the name that the program reports, the field of the client, and a function
//! that writes a request as the documentation of the format says. Requests have the hostile and the missing parts that
//! logs have.

use std::io::Cursor;

use clap::Parser;
use jiff::Timestamp;
use tollgate_cli::args::{Cli, Command};
use tollgate_cli::input::decompress::InputSource;
use tollgate_cli::input::{Selection, Trace, load_source};
use tollgate_report::error::Error;

/// A request.
struct LoggedRequest {
    /// Its number.
    n: usize,
    /// Its time, in whole seconds.
    at: Timestamp,
    /// The client's address.
    ip: &'static str,
    user: &'static str,
    method: &'static str,
    path: &'static str,
    protocol: &'static str,
    status: u16,
    bytes: u64,
    referer: &'static str,
    agent: &'static str,
}

const IPS: [&str; 5] = ["198.51.100.1", "198.51.100.22", "2001:db8::7", "203.0.113.255", "2001:db8:1::99"];

fn request(n: usize) -> LoggedRequest {
    let of = |texts: &[&'static str]| texts[n % texts.len()];
    LoggedRequest {
        n,
        at: Timestamp::from_second(1_728_568_536 + i64::try_from(n).unwrap()).unwrap(),
        ip: of(&IPS),
        user: of(&["-", "-", "-", "jo", "-", "-", "ann"]),
        method: of(&["GET", "POST", "GET", "HEAD", "DELETE", "PROPFIND"]),
        path: of(&["/", "/a?b=c&d=%20", "/login", "/\\x16\\x03", "/x;y/[z]", "/search?q=a,b:c"]),
        protocol: of(&["HTTP/1.1", "HTTP/2.0", "HTTP/1.0"]),
        status: [200, 301, 404, 499, 503][n % 5],
        bytes: [0, 5, 123_456, 9_999_999_999][n % 4],
        referer: of(&["-", "https://shop.example/a?b=[c]", "-", ""]),
        agent: of(&["curl/8.5.0", "Mozilla/5.0 (X11; Linux x86_64) [en]", "-", "a \\\"b\\\" c", ""]),
    }
}

impl LoggedRequest {
    fn time(&self, format: &str) -> String {
        self.at.strftime(format).to_string()
    }

    fn clf(&self) -> String {
        self.time("%d/%b/%Y:%H:%M:%S +0000")
    }

    fn line(&self) -> String {
        format!("{} {} {}", self.method, self.path, self.protocol)
    }

    /// What follows the addresses in the common log format.
    fn common(&self) -> String {
        format!("- {} [{}] \"{}\" {} {}", self.user, self.clf(), self.line(), self.status, self.bytes)
    }

    fn combined(&self) -> String {
        format!("{} \"{}\" \"{}\"", self.common(), self.referer, self.agent)
    }

    /// nginx writes what the client claims before the address.
    fn list(&self) -> String {
        match self.n % 3 {
            0 => self.ip.to_owned(),
            1 => format!("192.0.2.66, {}", self.ip),
            _ => format!("evil, 192.0.2.66,{}", self.ip),
        }
    }

    fn iso(&self) -> String {
        self.time("%Y-%m-%dT%H:%M:%S.000Z")
    }
}

/// A format: the name that is reported, the field of the client (the program's choice if it is empty), what stands
/// before the lines, and the line of a request.
type ServerFormat = (&'static str, &'static str, &'static str, fn(&LoggedRequest) -> String);

#[rustfmt::skip]
const FORMATS: &[ServerFormat] = &[
    // https://httpd.apache.org/docs/2.4/logs.html#accesslog
    ("clf", "ip", "", |r| format!("{} {}", r.ip, r.common())),
    ("clf", "ip", "", |r| format!("{} {}", r.ip, r.combined())),
    ("clf", "ip", "", |r| format!("shop.example:443 {} {}", r.ip, r.combined())),
    ("clf", "ip", "", |r| format!("shop.example {} {}", r.ip, r.combined())),
    // %{X-Forwarded-For}i in the place of %h, and before it: https://httpd.apache.org/docs/2.4/mod/mod_log_config.html
    ("clf", "ip", "", |r| format!("{} {}", r.list(), r.combined())),
    ("clf", "ip", "", |r| format!("{} {}", r.list().replace(' ', ""), r.combined())),
    ("clf", "ip", "", |r| format!("\"{}\" {}", r.list(), r.combined())),
    ("clf", "forwarded", "", |r| format!("{} 10.0.0.9 {}", r.list(), r.combined())),
    ("clf", "forwarded", "", |r| format!("\"{}\" 10.0.0.9 {}", r.list(), r.combined())),
    ("clf", "ip", "", |r| format!("shop.example:80 {} {}", r.list(), r.combined())),
    // https://github.com/nginx/pkg-oss/blob/master/debian/nginx.conf
    ("clf", "http_x_forwarded_for", "", |r| format!("10.0.0.9 {} \"{}\"", r.combined(), r.list())),
    ("clf", "ip", "", |r| format!("{} {} \"-\"", r.ip, r.combined())),
    ("clf", "ip", "", |r| format!("{} {}", r.ip, r.combined().replace(&r.clf(), &r.time("%Y-%m-%dT%H:%M:%S+00:00")))),
    ("clf", "forwarded", "", |r| format!("10.0.0.9 ({}) {}", r.list().replace("evil", "192.0.2.7"), r.combined())),
    // https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/log-format/
    ("ingress-nginx", "remote_addr", "", |r| {
        let upstream = ["10.1.2.3:80 17 0.003 200", "10.1.2.3:80, 10.1.2.4:80 0, 17 0.001, 0.003 502, 200", "- - - -"];
        format!("{} {} 432 0.004 [default-web-80] [] {} 5c6c{:04x}", r.ip, r.combined(), upstream[r.n % 3], r.n)
    }),
    ("ingress-nginx-0.26", "the_real_ip", "", |r| format!(
        "10.0.0.9 - [{}] {} 432 0.004 [default-web-80] [] [fd00::1]:80 17 0.003 200 5c6c{:04x}", r.ip, r.combined(), r.n
    )),
    // https://github.com/kubernetes/ingress-nginx/blob/nginx-0.20.0/docs/user-guide/nginx-configuration/log-format.md
    ("ingress-nginx-0.20", "the_real_ip", "", |r| format!(
        "10.0.0.9 - [{}] {} 432 0.004 [default-web-80] 10.1.2.3:80 17 0.003 200 5c6c{:04x}", r.ip, r.combined(), r.n
    )),
    // https://doc.traefik.io/traefik/observe/logs-and-access-logs/
    ("traefik", "ip", "", |r| format!("{} {} {} \"web@docker\" \"http://10.1.2.3:80\" {}ms", r.ip, r.combined(), r.n, r.n)),
    ("jsonl", "ClientHost", "", |r| format!(
        r#"{{"ClientAddr":"{0}:4711","ClientHost":"{0}","Duration":1234,"RequestAddr":"shop.example","StartLocal":"{1}","StartUTC":"{1}","level":"info","msg":"","time":"{1}"}}"#,
        r.ip, r.iso()
    )),
    // https://caddyserver.com/docs/caddyfile/directives/log
    ("jsonl", "request.client_ip", "", |r| format!(
        r#"{{"level":"info","ts":{}.25,"logger":"http.log.access","msg":"handled request","request":{{"remote_ip":"10.0.0.9","client_ip":"{}","uri":"/","headers":{{"X-Forwarded-For":["1.2.3.4"]}}}},"user_id":"","duration":0.001,"status":200}}"#,
        r.at.as_second(), r.ip
    )),
    ("jsonl", "request.headers.X-Real[0]", "", |r| format!(
        r#"{{"ts":"{}","request":{{"headers":{{"X-Real":["{}","10.0.0.9"]}}}}}}"#, r.time("%Y/%m/%d %H:%M:%S"), r.ip
    )),
    // https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage#default-format-string
    ("envoy", "%REQ(X-FORWARDED-FOR)%", "", |r| format!(
        r#"[{}] "{}" {} - 0 {} 226 {} "{}" "{}" "cc21d9b0-{:04}" "shop.example" "10.0.2.1:80""#,
        r.iso(), r.line(), r.status, r.bytes, if r.n % 2 == 0 { "100" } else { "-" }, r.list(), r.agent, r.n
    )),
    // https://istio.io/latest/docs/tasks/observability/logs/access-log/
    ("istio", "forwarded", "", |r| format!(
        r#"[{}] "{}" {} - via_upstream - "-" 0 {} 5 4 "{}" "{}" "cc21d9b0-{:04}" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default"#,
        r.iso(), r.line(), r.status, r.bytes, r.list(), r.agent, r.n
    )),
    // https://docs.haproxy.org/3.0/configuration.html#8.2.3
    ("haproxy", "client_ip", "", |r| format!(
        r#"{}:{} [{}.655] http-in~ static/srv1 10/0/30/69/109 {} {} - - ---- 1/1/1/1/0 0/0 {}"{}""#,
        r.ip, 33_000 + r.n, r.time("%d/%b/%Y:%H:%M:%S"), r.status, r.bytes, ["{1wt.eu} {} ", "", "{a b|c} "][r.n % 3], r.line()
    )),
    ("haproxy after the prefix of syslog", "ip", "", |r| format!(
        r#"{} lb haproxy[14389]: {}:33317 [{}.655] http-in <NOSRV>/<NOSRV> -1/-1/-1/-1/0 400 187 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>""#,
        r.time("%b %e %H:%M:%S"), r.ip, r.time("%d/%b/%Y:%H:%M:%S")
    )),
    // https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html
    ("aws-alb", "client:port", "", |r| {
        let ip = if r.ip.contains(':') { format!("[{}]", r.ip) } else { r.ip.to_owned() };
        let common = format!(
            r#"h2 {} app/lb/50dc6c495c0c9188 {ip}:2817 {} 0.000 0.001 0.000 {} 200 34 366 "{} https://shop.example:443{} {}" "{}" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/t/73e2d6bc24d8a067"#,
            r.iso(), ["10.0.0.1:80", "-"][r.n % 2], r.status, r.method, r.path, r.protocol, r.agent
        );
        match r.n % 2 {
            0 => common,
            _ => common + r#" "Root=1-58337262-36d228ad5d99923122bbe354" "shop.example" "arn:aws:acm:us-east-2:123456789012:certificate/1" 0 2024-10-10T13:55:36.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1234abcd5678ef90 new-field"#,
        }
    }),
    // https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html
    ("aws-elb", "ip", "", |r| {
        let ip = if r.ip.contains(':') { format!("[{}]", r.ip) } else { r.ip.to_owned() };
        match r.n % 3 {
            0 => format!(r#"{} lb {ip}:2817 10.0.0.1:80 0.001069 0.000028 0.000041 - - 82 305 "- - - " "-" - -"#, r.iso()),
            1 => format!(r#"{} lb {ip}:2817 - -1 -1 -1 503 0 0 0 "GET http://shop.example:80/ HTTP/1.1" "{}" - -"#, r.iso(), r.agent),
            _ => format!(r#"{} lb {ip}:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://shop.example:80/ HTTP/1.1""#, r.iso()),
        }
    }),
    // https://docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html
    ("s3", "remote_ip", "", |r| format!(
        r#"79a59df900b949e5 bucket1 [{}] {} - 3E57427F3EXAMPLE REST.GET.OBJECT a%2Bb.png "{}" {} - {} 113 7 5 "{}" "{}" - s9lzHYrFp76ZVxRcpX9+5cjAnEH2ROuNkd2BHfIa6UkFVdtjf5mKR3= SigV4 ECDHE-RSA AuthHeader bucket1.s3.us-west-1.amazonaws.com TLSv1.2{}"#,
        r.clf(), r.ip, r.line(), r.status, r.bytes, r.referer, r.agent, [" - -", " arn:aws:s3:us-west-1:1:accesspoint/a Yes extra", ""][r.n % 3]
    )),
    // Requests that S3 makes itself have no request line, and some have no header fields either.
    ("s3", "remote_ip", "", |r| {
        let (request, ends) = if r.n % 3 == 0 {
            ("-".to_owned(), ["- -", "\"-\" -", "- \"S3 - a\"", "-"][r.n / 3 % 4])
        } else {
            (format!("\"{}\"", r.line()), "\"-\" \"a - b\"")
        };
        format!(
            "79a59df900b949e5 bucket1 [{}] {} svc:s3.amazonaws.com 3E57427F3EXAMPLE REST.COPY.OBJECT_GET a/-/b.png {request} 200 - - 113 7 - {ends} - s9lzHYrFp76ZVxR SigV4",
            r.clf(), r.ip
        )
    }),
    // https://wiki.squid-cache.org/Features/LogFormat
    ("squid", "client_address", "", |r| format!(
        "{}.250 {:6} {} TCP_MISS/{:03} {} {} http://shop.example{} {} HIER_DIRECT/192.0.2.9 text/html",
        r.at.as_second(), r.n * 7, r.ip, r.status, r.bytes, r.method, r.path, r.user
    )),
    // https://learn.microsoft.com/en-us/windows/win32/http/w3c-logging
    ("w3c", "c-ip", "#Software: Microsoft Internet Information Services 10.0\r\n#Version: 1.0\r\n#Date: 2024-10-10 13:55:36\r\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken\r\n", |r| format!(
        "{} 192.0.2.20 {} /a - 443 {} {} Mozilla/5.0+(X) - {} 0 0 {}\r", r.time("%Y-%m-%d %H:%M:%S"), r.method, r.user, r.ip, r.status, r.n
    )),
    // https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html
    ("w3c", "c-ip", "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) x-forwarded-for\n", |r| format!(
        "{}\tFRA2\t{}\t{}\t{}\td111.cloudfront.net\t/a\t{}\t-\tMozilla/5.0%20(X)\t-", r.time("%Y-%m-%d\t%H:%M:%S"), r.bytes, r.ip, r.method, r.status
    )),
    // https://docs.docker.com/engine/logging/drivers/json-file/
    ("clf in the field \"log\"", "ip", "", |r| format!(
        r#"{{"log":"{} {}\n","stream":"stdout","time":"2020-01-01T00:00:00.1Z"}}"#, r.ip, r.common().replace('\\', "\\\\").replace('"', "\\\"")
    )),
    // https://www.freedesktop.org/software/systemd/man/latest/systemd.journal-fields.html
    ("clf in the field \"MESSAGE\"", "forwarded", "", |r| format!(
        r#"{{"__REALTIME_TIMESTAMP":"1600000000000000","_PID":"1","MESSAGE":"10.0.0.9 {} \"{}\""}}"#,
        r.combined().replace('\\', "\\\\").replace('"', "\\\""), r.list()
    )),
    ("clf in the field \"MESSAGE\"", "ip", "", |r| {
        let line = format!("{} {}", r.ip, r.combined());
        let bytes = format!("{:?}", line.as_bytes());
        let text = serde_json::to_string(&line).unwrap();
        format!(r#"{{"MESSAGE":{},"__REALTIME_TIMESTAMP":"1600000000000000"}}"#, if r.n % 3 == 0 { text } else { bytes })
    }),
    ("jsonl in the field \"log\" after the prefix of compose", "who", "", |r| format!(
        r#"app-1  | {{"log":"{{\"time\":\"{}\",\"who\":\"{}\"}}\r\n","stream":"stderr"}}"#, r.time("%Y-%m-%d %H:%M:%S UTC"), r.ip
    )),
    // https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
    ("clf after the prefix of a container runtime", "ip", "", |r| format!("2024-10-10T13:55:36.100000000Z stdout F {} {}", r.ip, r.combined())),
    ("clf after the prefix of a container runtime", "ip", "", |r| {
        let (time, line) = ("2024-10-10T13:55:36.100000000+02:00", format!("{} {}", r.ip, r.combined()));
        format!("{time} stdout P {}\n{time} stdout F {}", &line[..20], &line[20..])
    }),
    // https://docs.docker.com/reference/cli/docker/compose/logs/
    ("clf after the prefix of compose", "ip", "", |r| format!("\u{1b}[36mweb-1  | \u{1b}[0m{} {}", r.ip, r.combined())),
    ("clf after the prefix of a time after the prefix of compose", "ip", "", |r| format!("web_1 | {} {} {}", r.iso(), r.ip, r.combined())),
    ("clf after the prefix of compose", "ip", "", |r| format!("web.1.k3x@node1    | {} {}", r.ip, r.combined())),
    ("clf after the prefix of a time", "ip", "", |r| format!("2026-11-28 10:00:00 {} {}", r.ip, r.combined())),
    ("clf after the prefix of syslog", "ip", "", |r| format!("Nov 28 10:00:00 web1 {} {}", r.ip, r.combined())),
    ("clf after the prefix of syslog", "ip", "", |r| format!("Nov  8 10:00:00 {} {}", r.ip, r.combined())),
    // https://kubernetes.io/docs/reference/kubectl/generated/kubectl_logs/
    ("clf after the prefix of kubectl", "ip", "", |r| format!("[pod/web-7d4/nginx] {} {}", r.ip, r.combined())),
    // https://nginx.org/en/docs/syslog.html, https://www.rfc-editor.org/rfc/rfc3164
    ("clf after the prefix of syslog", "ip", "", |r| format!("<190>{} web nginx: {} {}", r.time("%b %e %H:%M:%S"), r.ip, r.combined())),
    ("clf after the prefix of syslog", "ip", "", |r| format!("{} web nginx[7]: {} {}", r.time("%Y-%m-%dT%H:%M:%S.1+00:00"), r.ip, r.combined())),
    ("clf after the prefix of syslog", "ip", "", |r| format!("{} nginx: {} {}", r.time("%b %e %H:%M:%S"), r.ip, r.combined())),
    // https://devcenter.heroku.com/articles/log-drains
    ("clf after the prefix of syslog", "ip", "", |r| format!("83 <40>1 {} host app web.3 - {} {}", r.iso(), r.ip, r.combined())),
    // https://www.rfc-editor.org/rfc/rfc5424
    ("clf after the prefix of syslog", "ip", "", |r| format!(
        "<165>1 {} web nginx 7 ID47 {} {} {}", r.iso(), ["-", r#"[a@1 b="c ]\" d"][e f="1"]"#][r.n % 2], r.ip, r.combined()
    )),
    // https://docs.fluentbit.io/manual/pipeline/outputs/file
    ("jsonl", "remote_addr", "", |r| format!(
        r#"{{"date":{}.5,"time":"{}","time_ms":{},"remote_addr":"{}"}}"#, r.at.as_second(), r.time("%d/%b/%Y:%H:%M:%S +0000"), r.n, r.ip
    )),
    ("jsonl", "ip", "", |r| format!(r#"{{"time_ms":{},"when":"[{}]","ip":"{}"}}"#, r.n, r.time("%Y-%m-%dT%H:%M:%SZ"), r.ip)),
];

fn selection(args: &[&str]) -> Selection {
    let line = ["tollgate", "replay", "log"].iter().chain(args);
    match Cli::try_parse_from(line).unwrap_or_else(|error| panic!("{error}")).command {
        Command::Replay(args) => args.input,
        other => panic!("{other:?}"),
    }
}

fn load(text: &[u8], args: &[&str]) -> Result<Trace, Error> {
    let source = InputSource::from_reader("log", Box::new(Cursor::new(text.to_vec()))).unwrap();
    let mut trace = Trace::default();
    load_source(source, &selection(args), &mut trace)?;
    Ok(trace)
}

/// Returns the texts of all clients, in order of the requests.
fn clients(trace: &Trace) -> Vec<String> {
    trace.records.iter().map(|record| trace.keys.name(record.key)).collect()
}

fn whole(write: impl Fn(&LoggedRequest) -> String) -> String {
    (0..100).map(|n| write(&request(n)) + "\n").collect()
}

#[track_caller]
fn assert_read(trace: &Trace, name: &str) {
    assert_eq!(trace.skipped.lines(), 0, "{name}: {}", trace.skipped.shown());
    let times: Vec<u64> = trace.records.iter().map(|record| record.at / 1_000_000_000).collect();
    let expected = (0..100).map(|n| u64::try_from(request(n).at.as_second()).unwrap());
    assert!(times.iter().copied().eq(expected), "{name}: {times:?}");
    let expected: Vec<String> = (0..100)
        .map(|n| request(n).ip.to_owned() + if request(n).ip.contains(':') { "/128" } else { "" })
        .collect();
    assert_eq!(clients(trace), expected, "{name}");
}

#[test]
fn formats_of_servers_are_recognised() {
    for &(name, key, head, write) in FORMATS {
        let text = head.to_owned() + &whole(write);
        let shown = format!("{name}: {}", text.lines().last().unwrap());
        let trace = load(text.as_bytes(), &["--key", key, "--ipv6-prefix", "128"])
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_read(&trace, &shown);
        assert!(trace.notes[0].contains(&format!("100 records ({name})")), "{shown}: {}", trace.notes[0]);
    }
}

/// The same records as one JSON array, over one line or many, and under one name.
#[test]
fn json_arrays_are_read() {
    let records = (0..100).map(|n| {
        let r = request(n);
        format!(
            r#"{{"eventTime":"{}","tags":[{{"a":"]}}\"{{"}}],"sourceIPAddress":"{}"}}"#,
            r.time("%Y-%m-%dT%H:%M:%SZ"),
            r.ip
        )
    });
    let records: Vec<String> = records.collect();
    for (name, text) in [
        ("array of jsonl", format!("[{}]", records.join(","))),
        ("array of jsonl", format!("[\n{}\n]\n", records.join(",\n"))),
        (
            "array of jsonl",
            format!("\u{feff}[\r\n  {}]", records.join(" ,\r\n  ").replace(",\"tags\"", ",\r\n\"tags\"")),
        ),
        ("array \"Records\" of jsonl", format!("{{\"Records\":[{}]}}", records.join(","))),
        (
            "array \"events\" of jsonl",
            format!(
                "{{\n \"page\": [1],\n \"note\": \"[{{\",\n \"events\": [\n{}\n ],\n \"next\": [{{\"x\":1}}]\n}}\n",
                records.join(",\n")
            ),
        ),
        ("jsonl", records.join("\n").replace("\",\"", "\",\n  \"")),
        ("jsonl", records.join("\n")),
    ] {
        let trace = load(text.as_bytes(), &["--key", "sourceIPAddress", "--ipv6-prefix", "128"])
            .unwrap_or_else(|error| panic!("{text:.80}: {error}"));
        assert_read(&trace, &text[..80]);
        assert!(trace.notes[0].contains(&format!("100 records ({name})")), "{}", trace.notes[0]);
    }
}

/// A format string, the key, the time, and the line of a request.
type FormatString = (&'static str, &'static str, &'static str, fn(&LoggedRequest) -> String);

/// Format strings of servers, with a key and a time by the server's own names.
#[test]
#[rustfmt::skip]
fn format_strings_of_servers() {
    let formats: &[FormatString] = &[
        // https://nginx.org/en/docs/http/ngx_http_log_module.html
        (r#"$http_x_forwarded_for $remote_addr "$request_method $request_uri" [$time_iso8601] ${status} $upstream_addr $request_time"#, "$http_x_forwarded_for", "$time_iso8601",
            |r| format!("{} 10.0.0.9 \"{} {}\" [{}] {} 10.0.0.1:80, [fd00::1]:80 : 10.0.0.2:80 0.001", r.list(), r.method, r.path, r.time("%Y-%m-%dT%H:%M:%S+00:00"), r.status)),
        ("log_format main escape=json '$remote_addr - $remote_user [$time_local] '\n    '\"$request\" $host$request_uri \\'$msec\\'';", "remote_addr", "msec",
            |r| format!("{} - {} [x] \"{}\" shop.example{} '{}.123'", r.ip, r.user, r.line(), r.path, r.at.as_second()).replace("[x]", &format!("[{}]", r.clf()))),
        ("$msec\t$http_x_real_ip\t$status", "http_x_real_ip", "msec", |r| format!("{}.000\t{}\t{}", r.at.as_second(), r.ip, r.status)),
        (r#"{"time":"$time_iso8601","xff":"$http_x_forwarded_for","ua":"$http_user_agent"}"#, "http_x_forwarded_for", "time",
            |r| format!(r#"{{"time":"{}","xff":"{}","ua":"{}"}}"#, r.time("%Y-%m-%dT%H:%M:%S+00:00"), r.list(), r.agent)),
        // https://httpd.apache.org/docs/2.4/mod/mod_log_config.html#formats
        (r#"LogFormat "%v:%p %{X-Forwarded-For}i %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" proxied"#, "%{X-Forwarded-For}i", "%t",
            |r| format!("shop.example:443 {} 10.0.0.9 {}", r.list(), r.combined())),
        (r#"%a %{%Y-%m-%d %H:%M:%S %z}t %{ms}T "%m %U%q %H" %!200,304{User-agent}i %%"#, "%a", "%{%Y-%m-%d %H:%M:%S %z}t",
            |r| format!("{} {} {} \"{}\" {} %", r.ip, r.time("%Y-%m-%d %H:%M:%S +0000"), r.n, r.line(), r.agent)),
        // The fraction and the offset of a time are directives of their own.
        ("%h [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] %{end:%F %T}t", "ip", "time",
            |r| format!("{} [{}.000 +0200] {}", r.ip, (r.at + jiff::SignedDuration::from_hours(2)).strftime("%d/%b/%Y:%H:%M:%S"), r.time("%F %T"))),
        ("%h %{%F}t,%{%T}t%{%z}t %{sec}t.%{usec_frac}t", "ip", "time",
            |r| format!("{} {}+0000 {}.000000", r.ip, r.time("%F,%T"), r.at.as_second())),
        ("%{sec}t.%{usec_frac}t %h", "ip", "%{sec}t.%{usec_frac}t", |r| format!("{}.000000 {}", r.at.as_second(), r.ip)),
        // A time may have spaces without brackets around it.
        ("%START_TIME(%d.%m.%Y %H:%M:%S)% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "ip", "time",
            |r| format!("{} {}", r.time("%d.%m.%Y %H:%M:%S"), r.ip)),
        (r#""%{X-Forwarded-For}i" %{%s}t "%{User-Agent}i""#, "forwarded", "time", |r| format!("\"{}\" {} \"{}\"", r.list(), r.at.as_second(), r.agent)),
        (r#""%a %{sec}t \"%r\"""#, "ip", "time", |r| format!("{} {} \"{}\"", r.ip, r.at.as_second(), r.line())),
        // IPv6 addresses have colons too.
        ("$remote_addr:$remote_port [$time_local] $status", "ip", "time", |r| format!("{}:{} [{}] {}", r.ip, 5_000 + r.n, r.clf(), r.status)),
        ("%{sec}t %a:%{remote}p", "ip", "time", |r| format!("{} {}:{}", r.at.as_second(), r.ip, 50_000 + r.n)),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%:%DOWNSTREAM_REMOTE_PORT% %START_TIME(%s.%3f)%", "ip", "time", |r| format!("{}:{} {}.250", r.ip, r.n, r.at.as_second())),
        ("%{usec}t %{c}a %D", "ip", "%{usec}t", |r| format!("{} {} 17", r.at.as_microsecond(), r.ip)),
        // https://docs.haproxy.org/3.0/configuration.html#8.2.6
        (r#"log-format "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r""#, "%ci", "%tr",
            |r| format!(r#"{}:{} [{}.655] http-in~ static/<NOSRV> 10/-1/-1/-1/+9 {} +{} - - ---- 1/1/1/1/0 0/0 {}"{}""#, r.ip, 33_000 + r.n, r.time("%d/%b/%Y:%H:%M:%S"), r.status, r.bytes, ["{a b|c} {} ", "{a b|c} ", ""][r.n % 3], r.line())),
        (r"log-format %{+Q}o\ %{-Q}ci\ -\ -\ [%T]\ %r\ %ST\ %B\ %hrl\ %hsl", "ip", "time",
            |r| format!(r#"{} - - [{}] "{}" {} {} "a" "b""#, r.ip, r.clf(), r.line(), r.status, r.bytes)),
        ("%Ts %[req.hdr(X-Forwarded-For)] %HM %HP%HQ %[capture.req.hdr(0),lower] 100%%", "%[req.hdr(X-Forwarded-For)]", "%Ts",
            |r| format!("{} {} {} {} a b 100%", r.at.as_second(), r.list(), r.method, r.path)),
        (r#"'{"time":"%Tl","ip":"%[src]","status":%ST,"path":%{+Q,+E}HU}'"#, "ip", "time",
            |r| format!(r#"{{"time":"{}","ip":"{}","status":{},"path":"{}"}}"#, r.clf(), r.ip, r.status, r.path)),
        // https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage
        ("%START_TIME(%Y/%m/%dT%H:%M:%S%z)% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% \"%REQ(X-FORWARDED-FOR):60%\" %RESPONSE_CODE%\\n", "%REQ(X-FORWARDED-FOR):60%", "%START_TIME(%Y/%m/%dT%H:%M:%S%z)%",
            |r| format!("{} 10.0.0.9 \"{}\" {}", r.time("%Y/%m/%dT%H:%M:%S+0000"), r.list(), r.status)),
        ("%START_TIME(%s.%3f)% %REQ(X-ENVOY-EXTERNAL-ADDRESS?X-REAL-IP)% %DURATION%", "http_x_envoy_external_address", "time",
            |r| format!("{}.250 {} 7", r.at.as_second(), r.ip)),
    ];
    for &(format, key, time, write) in formats {
        let text = whole(write);
        let args = ["--log-format", format, "--key", key, "--time", time, "--ipv6-prefix", "128"];
        let trace = load(text.as_bytes(), &args).unwrap_or_else(|error| panic!("{format}: {error}\n{text:.200}"));
        assert_read(&trace, format);
        // Prefixes and JSON are removed before these formats, too.
        let wrapped: String = text.lines().map(|line| format!("web-1  | {line}\n")).collect();
        assert_read(&load(wrapped.as_bytes(), &args).unwrap(), format);
    }
}

/// Parts of two lines are mixed, and a line has no last part.
#[test]
fn divided_lines_are_joined_by_stream() {
    let line = |n| format!("{} {}", request(n).ip, request(n).combined());
    let time = "2024-10-10T13:55:36.1Z";
    let two = |n| {
        let (one, other) = (line(n), line(n + 1));
        let (begin, end) = (&one[..9], &one[9..]);
        format!("{time} stdout P {begin}\n{time} stderr P {}\n{time} stdout F {end}\n", &other[..9])
            + &format!("{time} stderr F {}\n", &other[9..])
    };
    let text: String = (0..100).step_by(2).map(two).collect();
    assert_read(&load(text.as_bytes(), &["--ipv6-prefix", "128"]).unwrap(), "two streams");
    let trace = load(format!("{text}{time} stdout P 192.0.2.1\n").as_bytes(), &[]).unwrap();
    let shown = trace.skipped.shown();
    assert!(
        shown.contains("log:201: the line was divided, and its last part is missing: 192.0.2.1"),
        "{shown}"
    );
}

/// docker writes a line of more than 16 KiB as several objects, and only the last text ends with a line feed.
#[test]
fn lines_that_docker_divided_are_joined_by_stream() {
    let object = |stream: &str, text: &str| {
        let text = serde_json::to_string(text).unwrap();
        format!(r#"{{"log":{text},"stream":"{stream}","time":"2020-01-01T00:00:00.1Z"}}"#) + "\n"
    };
    let line = |n| format!("{} {}\n", request(n).ip, request(n).combined());
    let two = |n: usize| {
        let (one, other) = (line(n), line(n + 1));
        let parts =
            [("stdout", &one[..9]), ("stderr", &other[..9]), ("stdout", &one[9..20]), ("stdout", &one[20..])];
        parts.map(|(stream, part)| object(stream, part)).concat() + &object("stderr", &other[9..])
    };
    let text: String = (0..100).step_by(2).map(two).collect();
    assert_read(&load(text.as_bytes(), &["--ipv6-prefix", "128"]).unwrap(), "two streams");
    let trace = load((text + &object("stdout", "192.0.2.1")).as_bytes(), &[]).unwrap();
    let shown = trace.skipped.shown();
    assert!(
        shown.contains("log:251: the line was divided, and its last part is missing: 192.0.2.1"),
        "{shown}"
    );
    // Programs that send single messages write no line feeds.
    let text: String = (0..100).map(|n| object("stdout", line(n).trim_end())).collect();
    assert_read(&load(text.as_bytes(), &["--ipv6-prefix", "128"]).unwrap(), "messages");
}

#[test]
fn lines_that_do_not_fit_are_skipped_with_the_field() {
    let text = "2024-10-10T13:55:36Z 192.0.2.1 200\n2024-10-10T13:55:37Z 192.0.2.1 OK\n2024-10-10T13:55:38Z 192.0.2.1 200 x\n";
    let trace = load(text.as_bytes(), &["--log-format", "$time_iso8601 $remote_addr $status"]).unwrap();
    assert_eq!((trace.records.len(), trace.skipped.lines()), (1, 2));
    let shown = trace.skipped.shown();
    assert!(shown.contains("no \"status\" where it is expected"), "{shown}");
}

#[test]
fn wrong_format_strings_name_the_place() {
    for (text, parts) in [
        ("", &["neither a format string nor a known format", "combined"][..]),
        ("plain", &["neither a format string nor a known format", "$remote_addr", "%h", "haproxy"]),
        ("$remote_addr ${status", &["at character 14", "no } ends"]),
        ("$remote_addr $ x", &["at character 14", "a variable's name"]),
        ("%h %{Referer", &["at character 4", "no } ends"]),
        ("%h %", &["at character 4", "%%"]),
        ("é %h %-", &["at character 6"]),
        ("%START_TIME", &["at character"]),
        ("%START_TIME(x% %PROTOCOL%", &["at character 1", "no ) ends"]),
        ("%REQ(:PATH)x% %PROTOCOL%", &["at character 1", "expected %"]),
        ("$a\\n$b", &["at character 3", "several lines"]),
        ("%ci:%cp [%tr] %fx", &["at character 15", "no variable of HAProxy's log-format"]),
        ("%ci %{+Q", &["at character 5", "no } ends the flags"]),
        ("%ci %[src", &["at character 5", "no ] ends"]),
    ] {
        let error =
            Cli::try_parse_from(["tollgate", "replay", "log", "--log-format", text]).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: {part:?} is not in {error}");
        }
    }
}

/// Lines of every format, cut and changed at random places, never stop the program.
#[test]
fn damaged_lines_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let marks = b" \"'[]{}(),:;|\\-+#<>\t\n\x1b\xff0P";
    for &(name, _, head, write) in FORMATS {
        for round in 0..12 {
            let mut text = (head.to_owned()
                + &(0..25).map(|n| write(&request(n)) + "\n").collect::<String>())
                .into_bytes();
            for _ in 0..1 << round {
                let at = random(text.len());
                text[at] = marks[random(marks.len())];
            }
            text.truncate(random(text.len()) + 1);
            if let Ok(trace) = load(&text, &[]) {
                assert!(trace.records.len() <= 200, "{name}");
            }
            let _ = load(
                &text,
                &[
                    "--log-format",
                    "$http_x_forwarded_for [$time_local] \"$request\" $status",
                    "--key",
                    "forwarded",
                ],
            );
        }
    }
}

#[test]
fn inner_field_is_named_or_refused() {
    let text = whole(|r| {
        format!(r#"{{"entry":"{} {}"}}"#, r.ip, r.common().replace('\\', "\\\\").replace('"', "\\\""))
    });
    assert_read(&load(text.as_bytes(), &["--inner", "entry", "--ipv6-prefix", "128"]).unwrap(), "entry");
    let error = load(text.as_bytes(), &["--inner", "other"]).unwrap_err().to_string();
    assert!(error.contains("--inner") && error.contains("--log-format"), "{error}");
    // The text of a body is not the record.
    let text = whole(|r| format!(r#"{{"ts":{},"ip":"{}","body":"{{\"user\":1}}"}}"#, r.at.as_second(), r.ip));
    assert_read(&load(text.as_bytes(), &["--ipv6-prefix", "128"]).unwrap(), "body");
}

/// HAProxy writes captured header fields in one text.
#[test]
fn captured_headers_have_places() {
    let line = |n: usize, list: &str| {
        let r = request(n);
        format!(
            r#"10.0.0.1:33000 [{}.655] http-in static/srv1 10/0/30/69/109 200 5 - - ---- 1/1/1/1/0 0/0 {{shop|{list}}} {{}} "{}""#,
            r.time("%d/%b/%Y:%H:%M:%S"),
            r.line()
        )
    };
    let text = [line(0, "203.0.113.9, 192.0.2.1"), line(1, "192.0.2.2")].join("\n");
    let trace = load(text.as_bytes(), &["--key", "captured_headers[1]"]).unwrap();
    assert_eq!(clients(&trace), ["192.0.2.1", "192.0.2.2"]);
    let error = load(text.as_bytes(), &[]).unwrap_err().to_string();
    assert!(error.contains("\"client_ip\" (1 value") && error.contains("captured_headers[1]"), "{error}");
}

/// An array within a record is not the array of the records.
#[test]
fn records_may_have_arrays_of_objects() {
    let text = whole(|r| {
        format!(
            r#"{{"client_ip":"{}","started_at":{}000,"tries":[{{"ip":"10.0.0.1"}}]}}"#,
            r.ip,
            r.at.as_second()
        )
    });
    assert_read(&load(text.as_bytes(), &["--ipv6-prefix", "128"]).unwrap(), "tries");
}

/// Load balancers and Squid log whole URLs.
#[test]
fn paths_have_no_authority() {
    for (log, key, path) in [
        (
            "1728568536.250 7 198.51.100.1 TCP_MISS/200 5 GET http://shop.example/a?b - HIER_DIRECT/192.0.2.9 text/html",
            "path",
            "/a?b",
        ),
        (
            "1728568536.250 7 198.51.100.1 TCP_MISS/200 5 GET http://shop.example/a?b - HIER_DIRECT/192.0.2.9 text/html",
            "bare_path",
            "/a",
        ),
        (
            r#"2024-10-10T13:55:36.1Z lb 198.51.100.1:2817 - -1 -1 -1 503 0 0 0 "GET http://shop.example:80 HTTP/1.1" "x" - -"#,
            "path",
            "/",
        ),
    ] {
        let trace = load(format!("{log}\n").repeat(3).as_bytes(), &["--key", key]).unwrap();
        assert_eq!(clients(&trace), [path; 3], "{log}");
    }
}

/// A client's text in quotes that the server did not escape does not move the fields that follow.
#[test]
fn unescaped_quotes_are_read() {
    let line = r#"[2024-10-10T13:55:36.000Z] "GET /"a" HTTP/1.1" 200 - 0 5 226 100 "198.51.100.1" "x" "y\" "id" "shop" "10.0.2.1:80""#;
    let text = format!("{line}\n").repeat(3);
    let trace = load(text.as_bytes(), &["--key", "%REQ(X-FORWARDED-FOR)%"]).unwrap();
    assert_eq!(clients(&trace), ["198.51.100.1"; 3]);
}
