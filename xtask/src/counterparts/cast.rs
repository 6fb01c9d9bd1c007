//! The checked servers and hosts, and the commands that start them.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use testkit::deps::Deps;
use testkit::everything::{Everything, Transport};
use testkit::lines::Lines;

use crate::step::{Failure, Outcome, Step, Workspace};

/// The duration of a call that is longer than any client waits.
const LONG: &str = "60";

/// The timeout until a server prints its address.
const LISTENS: Duration = Duration::from_secs(40);

/// After this time without a request a session must be gone. Servers with an option for it get a shorter timeout.
const IDLE: &str = "3s";

/// The resources that all of them need.
pub(super) struct Stage {
    pub(super) leash: PathBuf,
    deps: Deps,
    fixture: PathBuf,
    /// The directory of the test programs.
    scripts: PathBuf,
    root: PathBuf,
    /// Their own home directory and leash directories, not those of the user who runs this.
    home: PathBuf,
}

impl Stage {
    pub(super) fn set(workspace: &Workspace) -> Outcome<Self> {
        let home = std::env::temp_dir().join(testkit::unique("leash-counterparts"));
        for dir in ["", "run", "state"] {
            let dir = home.join(dir);
            fs::create_dir(&dir).map_err(Failure::at(&dir))?;
        }
        let run = home.join("run");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).map_err(Failure::at(&run))?;
        Ok(Self {
            leash: testkit::leash::leash().to_owned(),
            deps: Deps::find().map_err(Failure::new)?,
            fixture: testkit::leash::fixture().to_owned(),
            scripts: workspace.root.join("crates/leash/tests/check"),
            root: workspace.root.clone(),
            home,
        })
    }

    /// A command with its own home directory, in the directory of the npm packages.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("HOME", &self.home)
            .env("LEASH_RUNTIME_DIR", self.home.join("run"))
            .env("XDG_STATE_HOME", self.home.join("state"))
            .env_remove("XDG_CONFIG_HOME")
            .current_dir(self.deps.npm())
            .stdin(Stdio::null());
        command
    }

    fn script(&self, name: &str) -> OsString {
        self.scripts.join(name).into()
    }

    fn node_package(&self, dir: &Path) -> String {
        let text = fs::read(dir.join("package.json")).unwrap_or_default();
        let package: Value = serde_json::from_slice(&text).unwrap_or_default();
        package["version"].as_str().unwrap_or("?").to_owned()
    }

    fn npm(&self, package: &str) -> String {
        self.node_package(&self.deps.npm().join("node_modules").join(package))
    }

    fn host(&self, package: &str) -> String {
        let modules = self.deps.npm().with_file_name("hosts").join("node_modules");
        self.node_package(&modules.join(package))
    }

    fn mcp(&self, python: &Path) -> String {
        let ask = "import importlib.metadata as m; print(m.version('mcp'))";
        Step::new(python).args(["-c", ask]).answer().unwrap_or_else(|| "?".to_owned())
    }

    fn rmcp(&self) -> String {
        let lock = fs::read_to_string(self.root.join("Cargo.lock")).unwrap_or_default();
        let entry = lock.split("[[package]]").find(|entry| entry.contains("name = \"rmcp\"\n"));
        let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
        version.unwrap_or("?").to_owned()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A server that is checked by its URL.
enum Server {
    /// `server-everything`.
    Everything,
    /// A server that prints its URL, and exits at the end of its stdin.
    Said(Vec<OsString>),
    /// `leash serve` in front of `server-everything`.
    Gateway,
}

enum Kind {
    /// A command, and the call that should be pending.
    Stdio(Vec<OsString>, Option<String>),
    Http(Server),
    Host(Vec<OsString>),
}

/// A server or host that is checked.
pub(super) struct Counterpart {
    pub(super) name: &'static str,
    pub(super) version: String,
    kind: Kind,
}

/// A running server. Dropping it ends it.
struct Running {
    /// Objects that must live as long as the server, and end with it.
    parts: Vec<Box<dyn Any>>,
    pid: u32,
    url: String,
}

/// A child that is killed when this is dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All of them, in the order of the table.
pub(super) fn all(stage: &Stage) -> Vec<Counterpart> {
    [stdio(stage), http(stage), hosts(stage)].into_iter().flatten().collect()
}

fn stdio(stage: &Stage) -> Vec<Counterpart> {
    let (deps, everything) = (&stage.deps, stage.npm("@modelcontextprotocol/server-everything"));
    let long = format!("trigger-long-running-operation {{\"duration\": {LONG}, \"steps\": {LONG}}}");
    let wait = Some(format!("wait {{\"seconds\": {LONG}}}"));
    let server =
        |name, version, command: Vec<OsString>, call| Counterpart { name, version, kind: Kind::Stdio(command, call) };
    let npx = ["npx", "--no-install", "mcp-server-everything", "stdio"].map(OsString::from).to_vec();
    let node = vec!["node".into(), deps.everything().into(), "stdio".into()];
    let sdk = |python: PathBuf| vec![python.into(), stage.script("sdk_server.py"), "stdio".into()];
    let sleep = Some(format!("sleep {{\"ms\": {LONG}000, \"steps\": 1}}"));
    vec![
        server("server-everything, npx", everything.clone(), npx, Some(long.clone())),
        server("server-everything, node", everything, node, Some(long)),
        server("Python SDK 2 server", stage.mcp(&deps.python()), sdk(deps.python()), wait.clone()),
        server("Python SDK 1 server", stage.mcp(&deps.old_python()), sdk(deps.old_python()), wait.clone()),
        server(
            "TypeScript SDK 1 server",
            stage.npm("@modelcontextprotocol/sdk"),
            vec!["node".into(), stage.script("sdk_server.mjs"), "stdio".into()],
            wait,
        ),
        server("Rust SDK server", stage.rmcp(), vec![stage.fixture.clone().into(), "stdio".into()], sleep),
    ]
}

fn http(stage: &Stage) -> Vec<Counterpart> {
    let (deps, everything) = (&stage.deps, stage.npm("@modelcontextprotocol/server-everything"));
    let server = |name, version, server| Counterpart { name, version, kind: Kind::Http(server) };
    let sdk = |python: PathBuf| Server::Said(vec![python.into(), stage.script("sdk_server.py"), "http".into()]);
    let typescript = vec!["node".into(), stage.script("sdk_server.mjs"), "http".into()];
    let rust = ["http", "--until-eof", "--keep-alive", "2"].map(OsString::from);
    let rust = std::iter::once(stage.fixture.clone().into()).chain(rust).collect();
    vec![
        server("server-everything, HTTP", everything.clone(), Server::Everything),
        server("Python SDK 2 server, HTTP, idle 2s", stage.mcp(&deps.python()), sdk(deps.python())),
        server("Python SDK 1 server, HTTP, idle 2s", stage.mcp(&deps.old_python()), sdk(deps.old_python())),
        server("TypeScript SDK 1 server, HTTP", stage.npm("@modelcontextprotocol/sdk"), Server::Said(typescript)),
        server("Rust SDK server, HTTP, keep-alive 2s", stage.rmcp(), Server::Said(rust)),
        server("`leash serve --idle 2s` in front of server-everything", everything, Server::Gateway),
    ]
}

fn hosts(stage: &Stage) -> Vec<Counterpart> {
    let deps = &stage.deps;
    let host = |name, version, command: Vec<OsString>| Counterpart { name, version, kind: Kind::Host(command) };
    let python = |python: PathBuf| vec![python.into(), stage.script("host.py"), "closes".into()];
    let node = |words: &[&str]| {
        let words = words.iter().map(OsString::from);
        ["node".into(), stage.script("host.mjs")].into_iter().chain(words).collect::<Vec<OsString>>()
    };
    let real = |name: &str, program: PathBuf| {
        vec![deps.python().into(), stage.script("real_host.py"), name.into(), program.into()]
    };
    let (one, two) = (stage.npm("@modelcontextprotocol/sdk"), stage.npm("@modelcontextprotocol/client"));
    vec![
        host("Python SDK 2 host", stage.mcp(&deps.python()), python(deps.python())),
        host("Python SDK 1 host", stage.mcp(&deps.old_python()), python(deps.old_python())),
        host("TypeScript SDK 1 host, `close()`", one.clone(), node(&["closes"])),
        host("TypeScript SDK 1 host, `terminateSession()` and `close()`", one, node(&["careful"])),
        host("TypeScript SDK 2 host, `close()`", two.clone(), node(&["closes", "2"])),
        host("TypeScript SDK 2 host, `terminateSession()` and `close()`", two, node(&["careful", "2"])),
        host("Claude Code, `mcp list`", stage.host("@anthropic-ai/claude-code"), real("claude", deps.claude())),
        host("Gemini CLI, `mcp list`", stage.host("@google/gemini-cli"), real("gemini", deps.gemini())),
        host("Codex, `app-server`", stage.host("@openai/codex"), real("codex", deps.codex())),
    ]
}

impl Counterpart {
    /// The report of `leash check` about it.
    pub(super) fn check(&self, stage: &Stage) -> Outcome<Value> {
        let mut command = stage.command(&stage.leash);
        command.args(["check", "--json", "--grace", "3s", "--ready", "60s"]);
        // Ended after the check.
        let _running = match &self.kind {
            Kind::Stdio(words, call) => {
                if let Some(call) = call {
                    command.args(["--call", call]);
                }
                command.arg("--").args(words);
                None
            }
            Kind::Host(words) => {
                command.args(["--host", "--"]).args(words);
                None
            }
            Kind::Http(server) => {
                let running = server.start(stage)?;
                let pid = running.pid.to_string();
                command.args(["--url", &running.url, "--expect-idle", IDLE, "--pid", &pid]);
                Some(running)
            }
        };
        let output = command.output().map_err(Failure::at(&stage.leash))?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            Failure::new(format!("no report of {}: {error}: {said}", self.name))
        })
    }
}

impl Server {
    fn start(&self, stage: &Stage) -> Outcome<Running> {
        match self {
            Self::Everything => {
                let server = Everything::start(&stage.deps, Transport::StreamableHttp);
                Ok(Running { pid: server.pid(), url: server.url().to_owned(), parts: vec![Box::new(server)] })
            }
            Self::Said(words) => {
                let mut command = stage.command(&words[0]);
                command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
                let mut child = Held(command.spawn().map_err(Failure::at(Path::new(&words[0])))?);
                let says = child.0.stdout.take();
                listening(child, says)
            }
            Self::Gateway => {
                let behind = Everything::start(&stage.deps, Transport::StreamableHttp);
                let terms = ["--idle", "2s", "--linger", "2s", "--name", "x", "--url", behind.url()];
                let mut command = stage.command(&stage.leash);
                command.args(["serve", "--listen", "127.0.0.1:0"]).args(terms);
                let mut child = Held(
                    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(Failure::at(&stage.leash))?,
                );
                let says = child.0.stderr.take();
                let mut running = listening(child, says)?;
                running.url.push_str("/x/mcp");
                running.parts.push(Box::new(behind));
                Ok(running)
            }
        }
    }
}

/// Waits until a server has printed its URL.
fn listening<P: AsFd + 'static>(child: Held, says: Option<P>) -> Outcome<Running> {
    let silent = || Failure::new("a server does not say where it listens");
    let mut says = Lines::new(says.ok_or_else(silent)?);
    let url = says.wait(LISTENS, |line| line.strip_prefix("listening on ").map(str::to_owned)).ok_or_else(silent)?;
    Ok(Running { pid: child.0.id(), url, parts: vec![Box::new(child), Box::new(says)] })
}
