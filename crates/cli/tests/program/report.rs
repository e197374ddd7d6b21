//! `tollgate replay --report`: the page as text, and in a real Chromium.
//!
//! `TOLLGATE_CHROMIUM` names the browser; without it, the tests take the `chromium` on the search path.

use std::path::Path;
use std::process::Command;

use tollgate_testing::skipped::{assert_skip_is_reported, chromium};

use crate::support::Place;

/// A key that ends a script, an attribute and an element, and a key that turns the direction of writing.
const HOSTILE: &str = "</script><script>document.title='hacked'</script>\"'><img src=x onerror=alert(1)>";

const RULES: &str = "domain: d
descriptors:
  - key: ip
    value: \"</script><b>\"
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: ip
    rate_limit: { unit: minute, requests_per_unit: 100 }
";

/// Two hours of requests: one client each second, and another client's ten requests every five minutes.
fn place() -> Place {
    let place = Place::new();
    let mut log = String::new();
    for second in 0..7_200_u64 {
        let line = |ip: &str| format!("{}\n", serde_json::json!({ "ts": 1_760_000_400 + second, "ip": ip }));
        log += &line("198.51.100.7");
        if second % 300 < 10 {
            log += &line(HOSTILE);
            log += &line("</script><b>");
        }
    }
    place.file("log.jsonl", log).file("rules.yaml", RULES);
    place
}

fn page(place: &Place, args: &str) -> String {
    place.run(&format!("replay log.jsonl --report page.html {args}")).ok();
    String::from_utf8(place.read("page.html")).unwrap()
}

#[test]
fn page_has_results_chart_keys_and_limit() {
    let place = place();
    let page = page(&place, "--limit 5/min --algorithm gcra --algorithm fixed-window");
    for part in [
        "<h1>Replay of 5/min for each key</h1>",
        "<h2>Summary</h2>",
        "<h2>Input and settings</h2>",
        "<h2>Over time</h2>",
        "<h2>Most denied keys</h2>",
        "<h2>The limit for 1 %</h2>",
        "<caption>Results by algorithm</caption>",
        "<caption>Requests and denials over time</caption>",
        "role=\"img\" aria-label=\"fixed-window: ",
        "UTC, 2025-10-09 09:00:00 to ",
        // The first client has a denied request in each minute.
        "most</span> ",
    ] {
        assert!(page.contains(part), "{part:?}");
    }
    // The verdict is on top, and the bars say that they are of all algorithms together.
    let verdict = "<h2>Summary</h2>\n<p>Of 7,680 requests, ";
    assert!(page.contains(verdict) && page.contains("This is more than 1 %"), "{page}");
    assert!(
        page.contains("at least one of the algorithms denied") && page.contains("Denied by any, over time")
    );
    let alone = self::page(&place, "--limit 5/min --algorithm gcra");
    assert!(!alone.contains("at least one of the algorithms") && alone.contains("Denials over time"));
    let fits = self::page(&place, "--limit 100/s --algorithm gcra");
    assert!(fits.contains("<h2>Summary</h2>\n<p>No request would have been denied.</p>"), "{fits}");
    assert!(page.len() < 100_000, "{}", page.len());
    // The page loads nothing.
    for part in ["http://", "https://", "src=\"", "@import", "url("] {
        assert!(!page.contains(part), "{part:?}");
    }
    // `suggest` finds the same limit.
    let json = place.run("suggest log.jsonl --deny-requests 1% --algorithm gcra --json").json();
    let limit = json["suggestions"][0]["limit"].as_u64().unwrap();
    assert!(page.contains(&format!(">{limit}/min</td>")), "{limit}");
}

#[test]
fn texts_of_log_and_rules_are_escaped() {
    let place = place();
    for args in ["--limit 5/min", "--rules rules.yaml --descriptor ip=ip"] {
        let page = page(&place, args);
        assert!(page.contains("&lt;/script&gt;&lt;b&gt;</bdi>"));
        // The page's own: the numbers and the program.
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("<img") && !page.contains("<b>"));
    }
}

#[test]
fn rules_page_has_effect_of_each_rule() {
    let page = page(&place(), "--rules rules.yaml --descriptor ip=ip --json=out.json --decisions out.bin");
    for part in [
        "<h2>Summary</h2>\n<p>Of 7,680 requests, ",
        "<h2>Effect of each rule</h2>",
        "<h3>rules.yaml</h3>",
        "<td role=\"cell\" data-name=\"Limit\">1/min fixed-window</td>",
        "<td role=\"cell\" data-name=\"Place\"><bdi>rules.yaml:5</bdi></td>",
        "data-name=\"First denied\"><span class=\"word\">2025-10-09</span> ",
    ] {
        assert!(page.contains(part), "{part:?}");
    }
    assert!(!page.contains("The limit for 1 %"));
}

#[test]
fn report_goes_with_other_outputs_and_stores() {
    let place = place();
    let run = place.run(
        "replay log.jsonl --limit 5/min --limit 50/h --algorithm fixed-window --store compact --memory 64KiB \
         --report page.html --chart out.svg --decisions out.bin --json",
    );
    run.json();
    let page = String::from_utf8(place.read("page.html")).unwrap();
    assert!(page.contains("Denied requests by limit") && page.contains("Differs from keyed"));
    assert!(place.path("out.svg").exists() && place.path("out.bin").exists());
    // Without keys.
    let page = self::page(&place, "--limit 5/min --algorithm gcra --top 0");
    assert!(page.contains("The keys were left out") && !page.contains("198.51.100.7"));
    // Extreme times, and a log in which no request is denied.
    place.file("log.jsonl", "{\"ts_ns\":0,\"ip\":\"a\"}\n{\"ts_ns\":18446744073709551615,\"ip\":\"a\"}\n");
    let page = self::page(&place, "--algorithm fixed-window");
    assert!(page.contains("No request was denied."));
}

#[test]
fn wrong_report_paths_fail_before_replay() {
    let place = place();
    place.run("replay missing.log --report no/such.html").fails(1, &["cannot write no/such.html"]);
    place.run("replay missing.log --rules rules.yaml --report no/such.html").fails(1, &["cannot write"]);
    place.run("replay missing.log --report page.pdf").fails(2, &["page.pdf", "ends in .html"]);
    place.run("replay missing.log --report page.svg").fails(2, &["report.html", "--chart"]);
    place.run("replay --report").fails(2, &["--report <FILE>"]);
}

/// Loads a page in the browser. Returns its content after all scripts, and the messages of its console.
fn load(program: &Path, place: &Place, name: &str) -> (String, Vec<String>) {
    let output = Command::new(program)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--window-size=360,800",
        ])
        .arg("--virtual-time-budget=2000")
        .arg(format!("--user-data-dir={}", place.path("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", place.path(name).display()))
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    let console = messages.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    (String::from_utf8(output.stdout).unwrap(), console)
}

/// Uses the page as a reader would: zooms with a button, a key and the pointer, and moves the slider. The results are in
/// the attribute `data-test`.
const USE: &str = r#"<script>
addEventListener("load", () => {
  const byId = (id) => document.getElementById(id), seen = [];
  const figures = () => document.querySelector(".figures").textContent;
  const note = (name) => seen.push(name + "=" + figures());
  note("begin");
  byId("in").click(); note("in");
  byId("at").value = 0; byId("at").dispatchEvent(new Event("input")); note("slider");
  byId("at").dispatchEvent(new KeyboardEvent("keydown", { key: "0", cancelable: true })); note("key");
  const svg = document.querySelector(".plot svg"), box = svg.getBoundingClientRect();
  svg.setPointerCapture = () => {};
  for (const [type, part] of [["pointerdown", 0.1], ["pointermove", 0.4], ["pointerup", 0.4]]) {
    svg.dispatchEvent(new PointerEvent(type, { button: 0, clientX: box.left + part * box.width }));
  }
  note("drag");
  // The browser's window is at least 500 pixels wide; a phone's page is narrower.
  document.body.style.width = "340px";
  seen.push("overflow=" + (document.body.scrollWidth > 340));
  seen.push("title=" + document.title);
  document.body.setAttribute("data-test", seen.join(" | "));
});
</script>"#;

#[test]
fn page_works_in_chromium() {
    let Some(program) = chromium() else { return };
    let place = place();
    let page = page(&place, "--limit 5/min --algorithm gcra --algorithm fixed-window");
    place.file("used.html", page.replace("</body>", &format!("{USE}</body>")));
    let (content, console) = load(&program, &place, "used.html");
    assert_eq!(console, [""; 0], "{console:?}");
    let seen =
        content.split("data-test=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    let seen: Vec<(&str, &str)> = seen.split(" | ").filter_map(|part| part.split_once('=')).collect();
    let of = |name: &str| seen.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    assert!(of("begin").contains(" denied (") && !of("begin").contains("UTC"), "{seen:?}");
    for name in ["in", "slider", "drag"] {
        assert!(of(name).contains(" UTC: ") && of(name) != of("begin"), "{name}: {seen:?}");
    }
    assert_ne!(of("in"), of("slider"));
    assert_eq!(of("key"), of("begin"), "0 shows the whole time");
    assert_eq!((of("overflow"), of("title")), ("false", "Replay of 5/min for each key"));
}

#[test]
fn missing_chromium_is_reported() {
    let test = "report::page_works_in_chromium";
    assert_skip_is_reported(test, "TOLLGATE_CHROMIUM", "/no/chromium", "no /no/chromium; install chromium");
}
