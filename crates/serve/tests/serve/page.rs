//! The page of the debug endpoint: its events over HTTP, and the page itself in a real Chromium.
//!
//! `TOLLGATE_CHROMIUM` names the browser, and `TOLLGATE_SCREENSHOTS` a folder for the pictures.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tollgate_testing::skipped::{assert_skip_is_reported, chromium};

use crate::browser::Browser;
use crate::client::{block_on, comes_true, get, http, stat};
use crate::frames::BEGIN;
use crate::server::{Place, Server};

/// A text that ends a script, an attribute and an element, and turns the direction of writing.
const HOSTILE: &str = "</script><img src=x onerror=document.title='hacked'>\"'\u{202e}";

const RULES: &str = r#"
domain: edge
tollgate: {}
descriptors:
  - key: remote_address
    rate_limit: { name: per-client, unit: year, every: 70, requests_per_unit: 10 }
  - key: remote_address
    value: 198.51.100.20
    rate_limit: { unlimited: true }
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: { unit: year, every: 70, requests_per_unit: 3 }
  - key: api_key
    shadow_mode: true
    rate_limit: { name: "</script><img src=x onerror=document.title='hacked'>", unit: year, every: 70, requests_per_unit: 2 }
  - key: job
    rate_limit: { in_progress: 4, hold: { life: 60s } }
"#;

/// Asks several times for one client.
async fn ask(server: &Server, entries: &[(&str, &str)], times: usize) {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    let body = json!({ "domain": "edge", "descriptors": [{ "entries": entries }] }).to_string();
    for _ in 0..times {
        http(&server.address("http"), "POST", "/json", &body).await;
    }
}

async fn traffic(server: &Server) {
    ask(server, &[("remote_address", "192.0.2.1")], 14).await;
    ask(server, &[("remote_address", "192.0.2.2")], 9).await;
    ask(server, &[("remote_address", HOSTILE)], 12).await;
    ask(server, &[("path", "/login"), ("remote_address", "192.0.2.1")], 5).await;
    ask(server, &[("api_key", HOSTILE)], 4).await;
    // Only one test has this rule.
    ask(server, &[("tenant", "a")], 2).await;
}

/// An open page without a browser.
struct Events(Incoming, String);

impl Events {
    /// Opens it. Returns the status if it is refused.
    async fn open(server: &Server, filter: &str) -> Result<Self, u16> {
        let stream = TcpStream::connect(server.address("debug")).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("/live?filter={filter}")).header("host", "localhost");
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        match response.status().as_u16() {
            200 => Ok(Self(response.into_body(), String::new())),
            status => Err(status),
        }
    }

    async fn next(&mut self) -> Map<String, Value> {
        loop {
            if let Some((event, rest)) = self.1.split_once("\n\n") {
                let event = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
                self.1 = rest.to_owned();
                return event;
            }
            let frame = self.0.frame().await.unwrap().unwrap().into_data().unwrap();
            self.1 += str::from_utf8(&frame).unwrap();
        }
    }
}

// G147
#[test]
fn browsers_get_the_page_and_others_the_text() {
    Place::with(RULES).serve("", async |server| {
        let debug = server.address("debug");
        assert!(get(&debug, "/").await.body.contains("\n/page "));
        let page = get(&debug, "/page").await;
        assert!(page.body.starts_with("<!DOCTYPE html>"));
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        for part in ["http://", "https://", "style=", "<script>", " onload"] {
            assert!(!page.body.contains(part), "{part:?}");
        }
        for (path, kind) in
            [("/page.css", "text/css"), ("/page.js", "text/javascript"), ("/top", "text/plain")]
        {
            let part = get(&debug, path).await;
            assert!(part.headers["content-type"].to_str().unwrap().starts_with(kind), "{path}");
            assert_eq!(part.headers["x-content-type-options"], "nosniff");
            assert_eq!(part.headers["cross-origin-resource-policy"], "same-origin");
        }
        assert_eq!(http(&debug, "POST", "/live", "").await.status, 405);
    });
}

// G147
#[test]
fn events_have_only_what_changed() {
    Place::with(RULES).serve("", async |server| {
        let mut events = Events::open(server, "").await.unwrap();
        let first = events.next().await;
        assert_eq!(first["order"], json!({ "shown": [0, 1, 2, 3, 4], "found": 5 }));
        assert!(first["rules"]["0"][5].as_str().unwrap().ends_with("limits.yaml:6"), "{first:?}");
        assert_eq!(first["state"]["holds"], 0);
        let idle = events.next().await;
        assert_eq!(idle.keys().collect::<Vec<_>>(), ["at"], "{idle:?}");
        ask(server, &[("remote_address", "192.0.2.1")], 12).await;
        // An event may come between two of the requests.
        let (mut changed, mut count) = (Map::new(), 0);
        while changed.get("denied") != Some(&json!([["per-client", "192.0.2.1", 2]])) && count < 60 {
            changed.extend(events.next().await);
            count += 1;
        }
        assert_eq!(changed["figures"], json!({ "0": [12, 2, 0, 2, 2, 12] }), "{changed:?}");
        assert_eq!(changed["denied"], json!([["per-client", "192.0.2.1", 2]]));
        assert_eq!(changed["near"], json!([["per-client", "remote_address=192.0.2.1", 2]]));
        assert!(!changed.contains_key("rules") && changed["state"].get("version").is_none(), "{changed:?}");
        // Twenty keys of each list at most.
        for client in 0..25 {
            ask(server, &[("path", "/login"), ("remote_address", &client.to_string())], 4).await;
        }
        let full = Events::open(server, "").await.unwrap().next().await;
        assert_eq!(full["denied"].as_array().unwrap().len(), 20);
        // A filter in letters of the other case.
        let found = Events::open(server, "PER-cl").await.unwrap().next().await;
        assert_eq!(found["order"], json!({ "shown": [0], "found": 1 }));
    });
}

// G147
#[test]
fn pages_are_bounded_in_number() {
    Place::with(RULES).serve("", async |server| {
        // A page that reads nothing loses its place after ten seconds, and a busy machine can take as long to open eight.
        let (mut open, began) = (Vec::new(), Instant::now());
        let is_refused = comes_true(async || match Events::open(server, "").await {
            Ok(events) => {
                open.push(events);
                false
            }
            Err(status) => {
                assert_eq!(status, 503);
                true
            }
        });
        assert!(is_refused.await, "{} pages are open", open.len());
        let all_are_kept = began.elapsed() < Duration::from_secs(10);
        assert!(open.len() == 8 || (open.len() > 8 && !all_are_kept), "{} pages are open", open.len());
        open.pop();
        let is_free = comes_true(async || Events::open(server, "").await.is_ok());
        assert!(is_free.await, "a closed page keeps its place");
    });
}

#[test]
fn servers_that_are_away_are_shown() {
    let place = Place::with(
        "domain: edge\ntollgate: {}\ndescriptors:\n  - key: a\n    \
         rate_limit: { unit: year, every: 70, requests_per_unit: 9, store: redis, on_failure: closed }\n",
    );
    place.serve("--redis redis://127.0.0.1:1", async |server| {
        let breaker = async || Events::open(server, "").await.unwrap().next().await["servers"][""][0].clone();
        assert_eq!(breaker().await, "closed: no call yet");
        ask(server, &[("a", "x")], 1).await;
        // Cause: the first errors leave the breaker closed. Symptom: the page said no more, as of a server that answers.
        assert_eq!(breaker().await, "closed: every call failed");
        let mut asked = 0;
        while breaker().await.as_str().unwrap().starts_with("closed") {
            asked += 1;
            assert!(asked < 100, "the breaker does not open");
            ask(server, &[("a", "x")], 3).await;
        }
        let first = Events::open(server, "").await.unwrap().next().await;
        let redis = &first["servers"][""];
        assert!(redis[1].as_u64() > Some(0) && redis[2] == 0, "{redis}");
        assert!(redis[6].as_u64() > Some(0), "decided without it: {redis}");
    });
}

// G147
#[test]
fn why_names_each_rule_and_charges_nothing() {
    Place::with(RULES).serve("", async |server| {
        let debug = server.address("debug");
        let question = "/why?domain=edge&descriptor=path=/login,remote_address=192.0.2.1&cost=2";
        let json = get(&debug, &format!("{question}&format=json")).await.body;
        let answer: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&answer["outcome"], &answer["others"]), (&json!("admitted"), &json!(4)), "{json}");
        assert_eq!(answer["rules"][0]["remaining"], 3);
        let row = answer["table"]["rows"][0].as_array().unwrap();
        assert_eq!(row[2..4], [json!("yes"), json!("enforced")]);
        assert!(row[10].as_str().unwrap().ends_with("limits.yaml:14"), "{row:?}");
        let text = get(&debug, question).await.body;
        assert!(text.starts_with("admitted\nDescriptor  Rule  Applies  Why"), "{text}");
        let name = "ratelimit.service.rate_limit.edge.path_/login.remote_address.total_hits";
        assert_eq!(stat(&debug, name).await, 0);
        for (question, status, why) in [
            ("", 400, "the domain is missing"),
            ("?domain=edge", 400, "the descriptor is missing"),
            ("?domain=edge&descriptor=x", 400, "expected KEY=VALUE"),
            ("?domain=edge&descriptor=a=b&cost=x", 400, "the cost"),
            ("?domain=none&descriptor=a=b", 404, "no rules are in force for the domain none"),
            (&format!("?domain={}", "x".repeat(9_000)), 414, "longer than 8 KiB"),
        ] {
            let page = get(&debug, &format!("/why{question}")).await;
            assert_eq!(page.status, status, "{question}");
            assert!(page.body.contains(why), "{question}: {}", page.body);
        }
    });
}

/// Rules of which each has a value of its own.
fn many(rules: usize) -> String {
    (0..rules).fold("domain: edge\ntollgate: {}\ndescriptors:\n".to_owned(), |text, rule| {
        text + &format!(
            "  - key: k\n    value: \"{rule}\"\n    rate_limit: {{ unit: year, every: 70, requests_per_unit: 9 }}\n"
        )
    })
}

/// Asks once for each of these rules. A rule without requests has no counts to read.
async fn ask_all(server: &Server, rules: usize) {
    for start in (0..rules).step_by(64) {
        let of = |rule: usize| json!({ "entries": [{ "key": "k", "value": rule.to_string() }] });
        let descriptors: Vec<Value> = (start..rules.min(start + 64)).map(of).collect();
        let body = json!({ "domain": "edge", "descriptors": descriptors }).to_string();
        assert_eq!(http(&server.address("http"), "POST", "/json", &body).await.status, 200);
    }
}

// G147
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn open_page_takes_a_hundredth_of_a_core() {
    for rules in [10, 10_000] {
        let place = Place::with(many(rules));
        let server = place.start("");
        block_on(async {
            ask_all(&server, rules).await;
            let mut events = Events::open(&server, "").await.unwrap();
            let first = events.next().await;
            assert_eq!(first["order"]["shown"].as_array().unwrap().len(), rules.min(100));
            assert_eq!(first["order"]["found"], rules);
            let size = serde_json::to_string(&first).unwrap().len();
            assert!(size < 50_000, "{size} bytes");
            let used = || server.processor_time("tollgate-pages");
            let (began, from) = (used(), Instant::now());
            let (mut count, mut took, mut before_last) = (0, Duration::ZERO, Duration::ZERO);
            while from.elapsed() < Duration::from_secs(test_seconds()) || count < 2 {
                // A busy machine makes an event costly, and the rest after it long. Meanwhile, the page tells that it reads.
                let Ok(event) = timeout(Duration::from_secs(1), events.next()).await else {
                    get(&server.address("debug"), &format!("/reads?page={}", first["page"])).await;
                    continue;
                };
                assert!(event.contains_key("at"));
                (count, before_last, took) = (count + 1, took, used().saturating_sub(began));
            }
            let time = from.elapsed();
            println!("{rules} rules: {count} events in {time:?} took {took:?}, the first has {size} bytes");
            // The rest after the last event is still to come. The thread also writes the events, and hears that the page reads.
            let most = time / 100 + Duration::from_millis(60);
            assert!(before_last < most, "{rules} rules: {before_last:?} of {time:?}");
        });
    }
}

/// How long the processor time is measured: `TOLLGATE_PAGE_SECONDS`, or 5.
fn test_seconds() -> u64 {
    std::env::var("TOLLGATE_PAGE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// The least contrast of a text with what is behind it, and the text.
const CONTRAST: &str = r#"(() => {
  const parts = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = parts(color).map((n) => (n / 255 <= 0.04045 ? n / 255 / 12.92 : ((n / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return (parts(color)[3] ?? 1) === 0 && element.parentElement ? behind(element.parentElement) : color;
  };
  let least = [99, ""];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== "");
    if (!own && !["INPUT", "TEXTAREA"].includes(element.tagName)) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((a, b) => b - a);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < least[0]) least = [contrast, element.textContent];
  }
  return least;
})()"#;

/// The figures of a rule on the page: requests, denials, near, over.
fn figures(browser: &mut Browser, rule: &str) -> Vec<u64> {
    let script = format!(
        "[...document.querySelectorAll('#figures tbody tr')].filter((row) => row.cells[0].textContent.startsWith({}))
           .flatMap((row) => [2, 4, 7, 8].map((at) => Number(row.cells[at].textContent.replaceAll(',', ''))))",
        json!(rule)
    );
    let figures = browser.eval(&script);
    figures.as_array().unwrap().iter().map(|figure| figure.as_u64().unwrap()).collect()
}

// G147
#[test]
fn page_in_chromium() {
    let Some(program) = chromium() else { return };
    let place = Place::new();
    let shared =
        "  - key: tenant\n    rate_limit: { unit: year, every: 70, requests_per_unit: 9, store: redis }\n";
    place.write("limits.yaml", format!("{RULES}{shared}"));
    let server = place.start("--redis redis://127.0.0.1:1");
    let url = format!("http://{}/", server.address("debug"));
    let mut browser = Browser::start(&program);
    browser.open(&url, 1280, "light");
    browser.until("document.getElementById('status').textContent === 'Live'");
    block_on(traffic(&server));
    browser.until("document.querySelector('#whole').textContent.includes('Answers46')");
    browser.until("document.querySelectorAll('#near tbody tr').length === 5");

    // The figures are those of /stats.
    block_on(async {
        let debug = server.address("debug");
        for (rule, path) in [("per-client", "remote_address"), ("edge.path", "path_/login.remote_address")] {
            let [requests, _, near, over] = figures(&mut browser, rule)[..] else { panic!("{rule}") };
            for (count, value) in [("total_hits", requests), ("near_limit", near), ("over_limit", over)] {
                let name = format!("ratelimit.service.rate_limit.edge.{path}.{count}");
                assert_eq!(stat(&debug, &name).await, value, "{name}");
            }
        }
        assert_eq!(figures(&mut browser, "per-client")[1], 6);
    });

    assert!(browser.text("document.getElementById('servers').innerText").starts_with("Calls since"));

    // Hostile texts are texts.
    assert_eq!(browser.text("document.title"), "Tollgate");
    assert_eq!(browser.eval("document.querySelectorAll('img, bdi *').length"), 0);
    assert!(browser.text("document.getElementById('denied').textContent").contains("</script><img src=x"));

    // Each picture is looked at by a person; a program sees overflow and contrast.
    for (name, width, scheme) in [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 360, "light")] {
        browser.resize(width, scheme);
        let wide = browser.eval("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(width.into()), "{name}: the page is {wide} wide");
        let contrast = browser.eval(CONTRAST);
        assert!(contrast[0].as_f64() >= Some(4.5), "{name}: {contrast}");
        browser.picture(&format!("page-{name}.png"));
    }
    assert_eq!(browser.errors, [""; 0]);
}

// G147
#[test]
fn page_is_used_by_keyboard() {
    let Some(program) = chromium() else { return };
    let place = Place::with(RULES);
    let server = place.start("");
    let mut browser = Browser::start(&program);
    browser.open(&format!("http://{}/", server.address("debug")), 1280, "dark");
    browser.until("Number(document.body.dataset.events) > 1");
    let mut order = Vec::new();
    for _ in 0..9 {
        browser.press("Tab", 9);
        order.push(browser.text("document.activeElement.id || document.activeElement.className"));
        assert_eq!(
            browser.text("getComputedStyle(document.activeElement).outlineStyle"),
            "solid",
            "{order:?}"
        );
    }
    let expected = ["skip", "pause", "filter", "wide", "domain", "descriptors", "tier", "cost", ""];
    assert_eq!(order, expected, "from the top to the button of the form");

    // A question, sent with the keyboard.
    let fill = "document.getElementById('descriptors').value = 'remote_address=198.51.100.20'";
    browser.eval(fill);
    browser.press("Enter", 13);
    browser
        .until("document.getElementById('answer').textContent.startsWith('The request would be admitted')");
    let because = browser.text("document.getElementById('because').innerText");
    assert!(
        because.contains("edge|remote_address=198.51.100.20")
            && because.contains("the key of entry 1 is not \"job\""),
        "{because}"
    );
    browser.picture("page-why.png");
    browser.resize(360, "light");
    let wide = browser.eval("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(360), "the page is {wide} wide");
    browser.picture("page-why-phone.png");
    browser.resize(1280, "dark");

    // A filter.
    browser.eval("document.getElementById('filter').focus()");
    browser.call("Input.insertText", json!({ "text": "LOGIN" }));
    browser.until("document.querySelectorAll('#figures tbody tr').length === 1");
    browser.until("document.getElementById('found').textContent === '1 shown'");

    // A load that fails, and the next one.
    place.write("limits.yaml", "domain: edge\ndescriptors: [ { key: a, rate_limit: { unit: dya } } ]\n");
    browser.until("document.querySelector('#problem:not([hidden]) pre')?.textContent.includes('dya')");
    browser.picture("page-problem.png");
    place.write("limits.yaml", RULES);
    browser.until("document.getElementById('problem').hidden");

    // A hidden page asks for nothing.
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});
             document.dispatchEvent(new Event('visibilitychange')); document.body.dataset.events"
        )
    };
    let events = browser.eval(&hide(true));
    let later = "new Promise((done) => setTimeout(() => done(document.body.dataset.events), 2500))";
    assert_eq!(browser.eval(later), events);
    browser.eval(&hide(false));
    browser.until(&format!("document.body.dataset.events !== {events}"));
    browser.eval("document.getElementById('pause').click()");
    assert_eq!(browser.text("document.getElementById('status').textContent"), "Paused");
    assert_eq!(browser.errors, [""; 0]);
}

#[test]
fn missing_chromium_is_reported() {
    for test in ["page::page_in_chromium", "page::page_is_used_by_keyboard"] {
        assert_skip_is_reported(
            test,
            "TOLLGATE_CHROMIUM",
            "/no/chromium",
            "no /no/chromium; install chromium",
        );
    }
}

/// Cause: the pages were served over HTTP/2 too. Symptom: a client without a window for answers kept 64 whole pages in memory on
/// each connection, for as long as it wished.
#[test]
fn pages_are_served_over_http_1_only() {
    Place::new().serve("--metrics 127.0.0.1:0", async |server| {
        for endpoint in ["debug", "metrics"] {
            let mut stream = TcpStream::connect(server.address(endpoint)).await.unwrap();
            stream.write_all(BEGIN).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{endpoint}: {answer:?}");
        }
    });
}
