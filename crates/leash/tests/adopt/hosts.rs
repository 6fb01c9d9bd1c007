//! The official clients themselves: after `adopt` they list the servers as leash wrote them, and start them if their
//! command does so. They run without a network; `cargo xtask setup` installed them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::deps::Deps;
use testkit::leash::Answer;
use testkit::lines::Lines;
use testkit::wait::LIMIT;
use testkit::{note, or_skip};

use crate::Home;

/// A server that answers all requests that clients send before they call it healthy.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {"tools": []}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

/// The timeout of the clients for a server, in milliseconds. Their defaults are meant for a fast machine.
const PATIENCE: u32 = 120_000;

struct Stage {
    home: Home,
    deps: Deps,
    leash: String,
    server: String,
}

impl Stage {
    fn set() -> Result<Stage, &'static str> {
        let deps = Deps::find()?;
        let home = Home::new();
        home.put("server.py", SERVER);
        home.put("p/nothing", "");
        let server = home.path("server.py").display().to_string();
        let leash = home.scene.leash_path().display().to_string();
        Ok(Stage { home, deps, leash, server })
    }

    /// Runs a command of a client to its end.
    fn client(&self, program: PathBuf, words: &[&str]) -> Answer {
        self.command(program, words).output().expect("cannot start the client").into()
    }

    /// A command of a client, in its own directory and without a network.
    fn command(&self, program: PathBuf, words: &[&str]) -> Command {
        let mut command = self.without_network(program);
        command
            .args(words)
            .current_dir(self.home.path("p"))
            .env("DISABLE_AUTOUPDATER", "1")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("GEMINI_CLI_TRUST_WORKSPACE", "true")
            .env("MCP_TIMEOUT", PATIENCE.to_string())
            .env("NO_COLOR", "1");
        command
    }

    fn without_network(&self, program: PathBuf) -> Command {
        // Only root may make a network namespace everywhere. Otherwise requests to the network end at a closed port.
        let may = rustix::process::geteuid().is_root();
        let mut command = self.home.scene.command(if may { PathBuf::from("unshare") } else { program.clone() });
        match may {
            true => _ = command.arg("--net").arg(program),
            false => {
                note("no network namespace without root: a closed port stands for the network");
                command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
            }
        }
        command
    }

    /// Adopts with the leash under test, which the clients then start.
    #[track_caller]
    fn adopt(&self, client: &str) {
        self.home.well(&["adopt", "--yes", "--leash", &self.leash, client]);
    }

    /// Waits for the receipts of the servers that a client started, and until none of their processes is left.
    #[track_caller]
    fn ended(&self, sessions: usize) -> Vec<Value> {
        let receipts = || Some(self.sessions()).filter(|found| found.len() >= sessions);
        let receipts = testkit::wait::until("the receipts", receipts);
        for receipt in &receipts {
            assert_eq!(
                (&receipt["name"], &receipt["holdings"][0]["fate"]),
                (&"demo".into(), &"gone".into()),
                "{receipt}"
            );
        }
        self.home.scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
        receipts
    }

    fn sessions(&self) -> Vec<Value> {
        let history = self.home.well(&["history", "--json"]).json();
        history["receipts"].as_array().cloned().unwrap_or_default()
    }
}

#[test]
fn claude_code_lists_and_starts_adopted_servers() {
    let stage = or_skip!(Stage::set());
    let before = format!(
        "{{\n  \"mcpServers\": {{\n    \"demo\": {{\n      \"type\": \"stdio\",\n      \"command\": \"python3\",\n      \"args\": [\n        \"{}\"\n      ],\n      \"env\": {{}}\n    }}\n  }}\n}}",
        stage.server
    );
    stage.home.put(".claude.json", &before);
    let claude = stage.deps.claude();
    let plain = stage.client(claude.clone(), &["mcp", "list"]);
    assert!(plain.stdout.contains("Connected"), "without leash: {plain:?}");
    let before = stage.home.text(".claude.json");
    stage.adopt("claude-code");
    let list = stage.client(claude.clone(), &["mcp", "list"]);
    let line = format!(
        "demo: {} run --session-env=CLAUDE_CODE_SESSION_ID --name=demo -- python3 {}",
        stage.leash, stage.server
    );
    assert!(list.stdout.contains(&line) && list.stdout.contains("Connected"), "{list:?}");
    let get = stage.client(claude, &["mcp", "get", "demo"]);
    assert!(get.stdout.contains("Status: ✔ Connected") && get.stdout.contains("Type: stdio"), "{get:?}");
    // Both commands started it, in the session that Claude Code named, and each time all of it was ended.
    for receipt in stage.ended(2) {
        assert_eq!(receipt["session"].as_str().map(str::len), Some(36), "a session of Claude Code's: {receipt}");
    }
    // Claude Code may have written its file in the meantime. The servers must be the same all the same.
    stage.home.well(&["release", "--yes"]);
    let servers = |text: &str| serde_json::from_str::<Value>(text).expect("it is JSON")["mcpServers"].clone();
    assert_eq!(servers(&stage.home.text(".claude.json")), servers(&before));
}

#[test]
fn codex_lists_adopted_servers() {
    let stage = or_skip!(Stage::set());
    let text = format!(
        "# mine\n[mcp_servers.demo]\ncommand = \"python3\" # any\nargs = [\"{}\"]\n\n[mcp_servers.bare]\ncommand = \"bare\"\n",
        stage.server
    );
    stage.home.put(".codex/config.toml", &text);
    stage.adopt("codex");
    let list = stage.client(stage.deps.codex(), &["mcp", "list", "--json"]).json();
    let args = |name: &str| {
        let found =
            list.as_array().expect("a list").iter().find(|server| server["name"] == name).expect("it is listed");
        assert_eq!((&found["transport"]["command"], &found["enabled"]), (&stage.leash.as_str().into(), &true.into()));
        found["transport"]["args"].clone()
    };
    assert_eq!(args("demo"), json!(["run", "--name=demo", "--", "python3", stage.server]));
    assert_eq!(args("bare"), json!(["run", "--name=bare", "--", "bare"]));
    let get = stage.client(stage.deps.codex(), &["mcp", "get", "demo"]);
    assert!(get.code == 0 && get.stdout.contains("command:"), "{get:?}");
    stage.home.well(&["release", "--yes"]);
    assert_eq!(stage.home.text(".codex/config.toml"), text);
}

/// Its list does not start servers. The program behind its editors does so when it is asked for their status.
#[test]
fn codex_starts_adopted_servers() {
    let stage = or_skip!(Stage::set());
    // Codex passes on little of its environment, so leash gets its directories explicitly.
    let places = format!(
        "LEASH_RUNTIME_DIR = \"{}\"\nXDG_STATE_HOME = \"{}\"",
        stage.home.scene.runtime_dir().display(),
        stage.home.path("state").display()
    );
    let text = format!(
        "[mcp_servers.demo]\ncommand = \"python3\"\nstartup_timeout_sec = {}\nargs = [\"{}\"]\n[mcp_servers.demo.env]\n{places}\n",
        PATIENCE / 1000,
        stage.server
    );
    stage.home.put(".codex/config.toml", &text);
    stage.adopt("codex");
    let mut command = stage.command(stage.deps.codex(), &["app-server"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("cannot start codex");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines = Lines::new(child.stdout.take().expect("a pipe"));
    let mut ask = |id: u32, method: &str, params: Value| {
        writeln!(stdin, "{}", json!({ "id": id, "method": method, "params": params })).expect("it reads");
        let answer = |line: &str| serde_json::from_str(line).ok().filter(|answer: &Value| answer["id"] == id);
        lines.wait(LIMIT, answer).unwrap_or_else(|| panic!("no answer to {method}"))
    };
    ask(1, "initialize", json!({ "clientInfo": { "name": "test", "version": "1" } }));
    let status = ask(2, "mcpServerStatus/list", json!({}));
    let server = &status["result"]["data"][0];
    assert_eq!((&server["name"], &server["serverInfo"]["name"]), (&"demo".into(), &"s".into()), "{status}");
    drop(stdin);
    child.wait().expect("it is ours");
    stage.ended(1);
    stage.home.well(&["release", "--yes"]);
    assert_eq!(stage.home.text(".codex/config.toml"), text);
}

#[test]
fn gemini_lists_and_starts_adopted_servers() {
    let stage = or_skip!(Stage::set());
    let text = format!(
        "{{\n  // mine\n  \"security\": {{ \"folderTrust\": {{ \"enabled\": false }} }},\n  \"mcpServers\": {{\n    \"demo\": {{ \"command\": \"python3\", \"args\": [\"{}\"], \"timeout\": {PATIENCE} }}\n  }}\n}}\n",
        stage.server
    );
    stage.home.put(".gemini/settings.json", &text);
    stage.adopt("gemini");
    let list = stage.client(stage.deps.gemini(), &["mcp", "list"]);
    let said = format!("{}{}", list.stdout, list.stderr);
    let line = format!("demo: {} run --name=demo -- python3 {} (stdio) - Connected", stage.leash, stage.server);
    assert!(said.contains(&line), "{list:?}");
    stage.ended(1);
    stage.home.well(&["release", "--yes"]);
    assert_eq!(stage.home.text(".gemini/settings.json"), text);
}
