//! A real Chromium, which the tests drive over its debugging pipe: named pipes as its file descriptors 3 and 4.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

/// The longest wait for an answer of the browser.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    session: Value,
    calls: u64,
    /// Errors and warnings of the console and of the network, and exceptions.
    pub(crate) errors: Vec<String>,
    folder: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [to, from] = ["to", "from"].map(|name| folder.path().join(name));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        let child = Command::new("sh")
            .args(["-c", r#"to=$1 from=$2; shift 2; exec "$@" 3<"$to" 4>"$from""#, "sh"])
            .args([&to, &from])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = OpenOptions::new().write(true).open(to).unwrap();
        let from = BufReader::new(File::open(from).unwrap());
        let (send, receive) = channel();
        thread::spawn(move || {
            for message in from.split(0).map_while(Result::ok) {
                let _ = send.send(serde_json::from_slice(&message).unwrap());
            }
        });
        let (session, errors) = (Value::Null, Vec::new());
        let mut browser = Self { child, to, from: receive, session, calls: 0, errors, folder };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].clone();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    /// Calls a method of the protocol, and returns its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut message = self.from.recv_timeout(PATIENCE).expect(method);
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.errors.push(params.to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => {
                self.errors.push(params.to_string());
            }
            Some("Log.entryAdded") => self.errors.push(params["entry"].to_string()),
            _ => {}
        }
    }

    /// Returns the value of an expression.
    #[track_caller]
    pub(crate) fn eval(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{script}: {result}");
        result["result"]["value"].take()
    }

    /// Returns a text that an expression has.
    #[track_caller]
    pub(crate) fn text(&mut self, script: &str) -> String {
        self.eval(script).as_str().unwrap_or_else(|| panic!("{script} is no text")).to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn until(&mut self, script: &str) {
        let is_true = crate::server::eventually(|| self.eval(script) == true);
        assert!(is_true, "{script}: {:?} {:?}", self.eval("document.body.innerText"), self.errors);
    }

    /// Opens an address in a window of this width, light or dark.
    pub(crate) fn open(&mut self, url: &str, width: u32, scheme: &str) {
        self.resize(width, scheme);
        self.call("Page.navigate", json!({ "url": url }));
        self.until("document.readyState === 'complete' && location.protocol !== 'about:'");
    }

    /// Makes the window this wide, light or dark.
    pub(crate) fn resize(&mut self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key == "Enter" { "\r" } else { "" };
            let event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Writes a picture of the whole page into a folder: the one that `TOLLGATE_SCREENSHOTS` names, or one of the test.
    pub(crate) fn picture(&mut self, name: &str) -> PathBuf {
        let shot =
            self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true, "format": "png" }));
        let png = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        let folder = std::env::var_os("TOLLGATE_SCREENSHOTS");
        let folder = folder.map_or_else(|| self.folder.path().to_owned(), PathBuf::from);
        let path = folder.join(name);
        std::fs::write(&path, png).unwrap();
        path
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
