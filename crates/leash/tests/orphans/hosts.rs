//! Hosts in Python (pipes), Node (socketpairs) and shell, and their ways to start servers.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::census::Census;
use testkit::deps::Deps;

/// Starts its servers, prints a line, and does nothing more. As a daemon it has left its session, its parent and its
/// own channels.
pub(crate) const PYTHON: &str = r#"
import json, os, signal, subprocess, sys
from subprocess import DEVNULL, PIPE
plan = json.loads(sys.argv[1])
if plan.get("lingers"): signal.signal(signal.SIGHUP, signal.SIG_IGN)
if plan.get("daemon"):
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
kept = []
def start(one):
    options = {"cwd": one["cwd"]} if "cwd" in one else {}
    if "stderr" in one: options["stderr"] = open(one["stderr"], "w")
    if one.get("keeps_own"):
        (stdin, writes), (reads, stdout) = os.pipe(), os.pipe()
        server = subprocess.Popen(one["words"], stdin=stdin, stdout=stdout, pass_fds=[writes, reads], **options)
        os.close(stdin)
        os.close(stdout)
    else:
        stdout = DEVNULL if one.get("mute") else PIPE
        server = subprocess.Popen(one["words"], stdin=PIPE, stdout=stdout, **options)
    kept.append(server)
    if "stderr" in one: options["stderr"].close()
    for line in one.get("says", []):
        server.stdin.write((line + "\n").encode())
        server.stdin.flush()
    if "hears" in one:
        line = server.stdout.readline()
        while line and one["hears"] not in line.decode(): line = server.stdout.readline()
        if not line: sys.exit("the server has ended")
    if "lends" in one:
        ends = [getattr(server, end).fileno() for end in one["lends"]]
        kept.append(subprocess.Popen(one["to"], stdin=DEVNULL, stdout=DEVNULL, pass_fds=ends))
for one in plan["servers"]: start(one)
print("up", flush=True)
if plan.get("daemon"):
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
while plan.get("daemon") or plan.get("lingers"): signal.pause()
sys.stdin.read()
"#;

const NODE: &str = r#"
const { spawn } = require('child_process');
const { closeSync, openSync } = require('fs');
const start = (one) => new Promise((done) => {
  const stderr = one.stderr ? openSync(one.stderr, 'w') : 'ignore';
  const server = spawn(one.words[0], one.words.slice(1), { stdio: ['pipe', 'pipe', stderr], cwd: one.cwd });
  if (one.stderr) closeSync(stderr);
  (one.says ?? []).forEach((line) => server.stdin.write(line + '\n'));
  if (!one.hears) return done(server);
  let heard = '';
  server.on('exit', () => process.exit(1));
  server.stdout.on('data', (data) => { heard += data; if (heard.includes(one.hears)) done(server); });
});
Promise.all(JSON.parse(process.argv[1]).servers.map(start)).then(() => console.log('up'));
process.stdin.resume();
process.stdin.on('end', () => process.exit());
"#;

/// A shell with one server, which keeps both ends of its pipes.
pub(crate) const SHELL: &str = "coproc SERVER { exec \"$@\"; }; echo up; while read -r line; do :; done";

/// Ways to start a server and exit: the server has no living parent, and its channels belong to the process that held
/// the shell's. A shell gives background jobs the null device as stdin, unless they get another.
pub(crate) const DETACHED: [&str; 3] = [
    r#"exec 3<&0; setsid "$@" <&3 3<&- & exit 0"#,
    r#"exec 3<&0; nohup "$@" <&3 3<&- & exit 0"#,
    r#"exec 3<&0; ( ( setsid "$@" <&3 3<&- & ) & ); exit 0"#,
];

/// A server for a host to start.
pub(crate) fn server(words: &[String]) -> Value {
    json!({ "words": words })
}

/// The same with further options.
pub(crate) fn server_with(words: &[String], how: Value) -> Value {
    let mut plan = server(words);
    if let (Value::Object(plan), Value::Object(how)) = (&mut plan, how) {
        plan.extend(how);
    }
    plan
}

/// The command of a real server in most configurations: `npx` -> `sh` -> `node`, three processes for one server.
pub(crate) const EVERYTHING: [&str; 3] = ["npx", "-y", "@modelcontextprotocol/server-everything"];

/// The same, in the middle of a call that takes an hour: such a server survives the end of its input. Each process
/// passes stderr on, so all three hold the FIFO in its place.
pub(crate) fn everything(deps: &Deps, census: &Census) -> Value {
    let client = json!({ "name": "host", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": "trigger-long-running-operation", "arguments": { "duration": 3600, "steps": 1 } });
    let says = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
        json!({ "jsonrpc": "2.0", "id": "the last", "method": "ping" }),
    ];
    let says: Vec<String> = says.iter().map(Value::to_string).collect();
    let how = json!({ "cwd": deps.npm(), "stderr": census.path(), "says": says, "hears": "the last" });
    server_with(&EVERYTHING.map(str::to_owned), how)
}

/// Makes `command`, which is Python, a host.
pub(crate) fn python(mut command: Command, servers: &[Value]) -> Command {
    command.args(["-c", PYTHON]).arg(json!({ "servers": servers }).to_string());
    command
}

/// Makes `command`, which is Python, a host that goes on without its terminal.
pub(crate) fn lingering(mut command: Command, servers: &[Value]) -> Command {
    command.args(["-c", PYTHON]).arg(json!({ "lingers": true, "servers": servers }).to_string());
    command
}

/// Makes `command`, which is Python, a host that becomes a daemon. It is in the census.
pub(crate) fn daemon(mut command: Command, census: &Census, servers: &[Value]) -> Command {
    command.args(["-c", PYTHON]).arg(json!({ "daemon": true, "servers": servers }).to_string());
    command.stderr(join(census.path()));
    command
}

/// Makes `command`, which is Node, a host.
pub(crate) fn node(mut command: Command, servers: &[Value]) -> Command {
    command.args(["-e", NODE]).arg(json!({ "servers": servers }).to_string());
    command
}

/// The write end of a census, for its members.
pub(crate) fn join(census: &Path) -> Stdio {
    std::fs::OpenOptions::new().write(true).open(census).expect("the census can be joined").into()
}

/// A host, and its servers. Dropping it kills it.
pub(crate) struct Host(Child);

impl Host {
    /// Starts it without waiting: see [`Host::wait_up`].
    pub(crate) fn start(mut command: Command) -> Host {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Host(command.spawn().expect("cannot start the host"))
    }

    /// Waits until its servers are started.
    pub(crate) fn wait_up(&mut self) {
        let mut line = String::new();
        let Some(stdout) = self.0.stdout.as_mut() else { return };
        BufReader::new(stdout).read_line(&mut line).expect("the host says something");
        assert_eq!(line, "up\n");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("cannot kill the host");
        self.0.wait().expect("cannot wait for the host");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
