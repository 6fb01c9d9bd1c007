//! The stderr of servers behind the gateway: printed with the server's name, and quoted when the server exits.

use std::{ffi::OsString, io::Read as _, process::Stdio};

use rustix::process::{Pid, Signal};
use serde_json::json;
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, initialize};
use testkit::process::Handle;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::LATEST;

fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

#[test]
fn exit_code_and_last_lines_of_stderr_are_in_the_error() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = r"printf 'starting\nError: no \033[31mAPI key\n' >&2; exit 3";
    let gateway = Gateway::single(&scene, &[], &shell(script));
    let reply = gateway.post("x", None, &initialize(LATEST));
    assert_eq!(reply.status, 502, "{}", reply.text());
    let error = &reply.json()["error"];
    let line = r"Error: no \u{1b}[31mAPI key";
    let exited = format!("the server `x` exited with code 3 before it answered; its stderr ends with: {line}");
    let message = error["message"].as_str().expect("a message");
    // The second form is for a server that exited before it got the request.
    assert!(message == exited || message == format!("Bad Gateway: {exited}"), "{message}");
    assert_eq!(error["data"], json!({"exit": {"code": 3}, "stderr": ["starting", line]}));
}

#[test]
fn signal_that_ended_the_server_is_in_the_error() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &shell("read line; kill -KILL $$"));
    let reply = gateway.post("x", None, &initialize(LATEST));
    let error = &reply.json()["error"];
    let message = "the server `x` was ended by SIGKILL before it answered; it wrote nothing to stderr; run its command \
                   in a terminal to see why";
    assert_eq!((reply.status, error["message"].as_str()), (502, Some(message)), "{}", reply.text());
    assert_eq!(error["data"], json!({"exit": {"signal": 9}, "stderr": []}));
}

/// Two servers write at the same time, in small pieces: no line contains bytes of another server.
#[test]
fn every_line_has_the_name_of_its_server() {
    let scene = or_skip!(Scene::set(Who::User));
    let server = |half: &str| {
        let script = format!("for n in $(seq 200); do printf {half} >&2; printf '{half}\\n' >&2; done; read end");
        json!({"command": "sh", "args": ["-c", script]})
    };
    let [a, b] = ["a", "b"].map(|letter| letter.repeat(20));
    let config = json!({"mcpServers": {"first": server(&a), "second": server(&b)}});
    let file = scene.dir().join("leash.json");
    std::fs::write(&file, config.to_string()).expect("cannot write the configuration");
    let gateway = Gateway::start(&scene, ["--config", file.to_str().expect("a plain path")]);
    let clients = ["first", "second"].map(|name| {
        let mut client = gateway.connect();
        let body = initialize(LATEST);
        client.send("POST", &format!("/{name}/mcp"), &POST, body.as_bytes()).expect("it is written");
        client
    });
    let is_whole = |line: &&str| *line == format!("first: {a}{a}") || *line == format!("second: {b}{b}");
    wait::until("all lines", || (gateway.said().lines().filter(is_whole).count() == 400).then_some(()));
    let said = gateway.said();
    // A path of the test may have some of these letters, too.
    let mixed: Vec<&str> =
        said.lines().filter(|line| line.contains("aaaaaaaaaa") || line.contains("bbbbbbbbbb")).collect();
    assert!(mixed.iter().all(is_whole), "{mixed:?}");
    drop(clients);
}

#[test]
fn long_line_comes_in_pieces_with_the_name() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &shell("printf '%010000d\\nnext' 0 >&2"));
    gateway.post("x", None, &initialize(LATEST));
    // The last line has no newline of its own.
    wait::until("the last line", || gateway.said().contains("x: next\n").then_some(()));
    let said = gateway.said();
    let pieces = said.lines().filter_map(|line| line.strip_prefix("x: 0"));
    let lengths: Vec<usize> = pieces.map(|piece| piece.len() + 1).collect();
    assert_eq!(lengths, [4000, 4000, 2000]);
}

#[test]
fn terminal_gets_no_control_characters_of_a_server() {
    let scene = or_skip!(Scene::set(Who::User));
    let terminal = Pty::open().expect("a terminal");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
    let script = r"printf '\033[2Ja\tb\rc\n' >&2; read end";
    let mut command = scene.leash(["serve", "--port", &port.to_string(), "--name", "x", "--", "sh", "-c", script]);
    let mut child = command.stderr(terminal.terminal().expect("its other side")).spawn().expect("cannot start leash");
    terminal.wait_shown("listening on", 1).expect("it listens");
    let mut client = Connection::open(([127, 0, 0, 1], port).into());
    client.send("POST", "/x/mcp", &POST, initialize(LATEST).as_bytes()).expect("it is written");
    terminal.wait_shown("x: \\u{1b}[2Ja\tb\\rc", 1).expect("the line of the server");
    child.kill().expect("it was not waited for");
    child.wait().expect("it is ours");
    scene.wait_gone(&[]).expect("nothing is left");
}

/// A stderr that is not read delays the servers that write to it, and nothing else.
#[test]
fn stderr_that_is_not_read_does_not_stop_the_gateway() {
    let scene = or_skip!(Scene::set(Who::User));
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
    let words = ["serve", "--port", &port.to_string(), "--name", "x", "--grace", "300ms", "--", "sh", "-c", "yes >&2"];
    let mut command = scene.leash(words);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("cannot start leash");
    let mut stderr = child.stderr.take().expect("a pipe");
    let mut begin = [0; 12];
    stderr.read_exact(&mut begin).expect("it listens");
    let address = ([127, 0, 0, 1], port).into();
    let mut client = wait::until("it listens", || Connection::attempt(address).ok());
    client.send("POST", "/x/mcp", &POST, initialize(LATEST).as_bytes()).expect("it is written");
    wait::until("the pipe to be full", || (rustix::io::ioctl_fionread(&stderr).ok()? > 60_000).then_some(()));
    assert_eq!(Connection::open(address).ask("GET", "/healthz", &[], b"").status, 200);
    drop(client);
    scene.wait_gone(&[Pid::from_child(&child)]).expect("the server ends with its client");
    let gateway = Handle::open(Pid::from_child(&child), |_| true).expect("it lives");
    gateway.signal(Signal::TERM).expect("it is ours");
    assert_eq!(child.wait().expect("it is ours").code(), Some(0));
}
