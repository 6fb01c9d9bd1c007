//! A real Chromium, driven by Playwright.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::deps::Deps;
use testkit::lines::Lines;
use testkit::scene::Scene;

/// The browser gives up earlier, and says why.
const LIMIT: Duration = Duration::from_secs(90);

/// A browser with one tab. Dropping it ends it.
pub(super) struct Browser {
    node: Child,
    orders: Option<ChildStdin>,
    answers: Lines<ChildStdout>,
}

impl Browser {
    /// Starts it in a scene. The error says what is missing.
    pub(super) fn start(scene: &Scene) -> Result<Browser, String> {
        let deps = Deps::find()?.browser()?;
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/browser.mjs");
        // The user of the scene may not be able to read the repository.
        let copy = scene.dir().join("browser.mjs");
        std::fs::copy(driver, &copy).expect("the driver can be copied");
        let mut command = scene.command("node");
        command.arg(copy).arg(deps).arg(scene.dir().join("profile"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut node = command.spawn().map_err(|error| format!("cannot start node: {error}"))?;
        let orders = node.stdin.take();
        let answers = Lines::new(node.stdout.take().expect("its stdout is a pipe"));
        let mut browser = Browser { node, orders, answers };
        assert_eq!(browser.answer(&"the start"), "ready");
        Ok(browser)
    }

    fn answer(&mut self, order: &dyn std::fmt::Display) -> Value {
        let line = self.answers.next(LIMIT).unwrap_or_else(|| panic!("no answer to {order}"));
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        assert!(answer.get("error").is_none(), "{order}: {}", answer["error"].as_str().unwrap_or_default());
        answer["value"].take()
    }

    fn order(&mut self, order: Value) -> Value {
        let orders = self.orders.as_mut().expect("it runs");
        writeln!(orders, "{order}").expect("the driver reads");
        self.answer(&order)
    }

    /// Opens a URL; the status of the last answer.
    pub(super) fn open(&mut self, url: &str) -> u64 {
        self.order(json!({"do": "open", "url": url})).as_u64().unwrap_or_default()
    }

    /// Waits until a script of the page returns something; its value.
    pub(super) fn wait(&mut self, script: &str) -> Value {
        self.order(json!({"do": "wait", "script": script}))
    }

    /// The value of a script.
    pub(super) fn read(&mut self, script: &str) -> Value {
        self.order(json!({"do": "read", "script": script}))
    }

    /// Clicks the element with this role and this name, as a screen reader knows them.
    pub(super) fn click(&mut self, role: &str, name: &str) {
        self.order(json!({"do": "click", "role": role, "name": name, "exact": true}));
    }

    pub(super) fn press(&mut self, key: &str) {
        self.order(json!({"do": "press", "key": key}));
    }

    pub(super) fn type_text(&mut self, text: &str) {
        self.order(json!({"do": "type", "text": text}));
    }

    pub(super) fn size(&mut self, width: u32, height: u32, scheme: &str) {
        self.order(json!({"do": "size", "width": width, "height": height, "scheme": scheme}));
    }

    /// Makes a picture of the part that is on the screen.
    pub(super) fn picture(&mut self, path: &Path) {
        self.order(json!({"do": "picture", "path": path}));
    }

    /// The roles and names of all elements, as a screen reader gets them.
    pub(super) fn roles(&mut self) -> String {
        self.order(json!({"do": "roles"})).as_str().unwrap_or_default().to_owned()
    }

    /// The errors on the console since the last call.
    pub(super) fn problems(&mut self) -> Value {
        self.order(json!({"do": "problems"}))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver closes the browser when its stdin ends.
        drop(self.orders.take());
        let _ = self.node.wait();
    }
}
