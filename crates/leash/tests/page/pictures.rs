//! The pictures of `leash top` and of the page in the documents, of the same servers at the same time.
//! `cargo xtask pictures` sets `LEASH_PICTURES` to the directory in which they are kept.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::json;
use testkit::deps::Deps;
use testkit::gateway::Gateway;
use testkit::scene::Scene;
use testkit::terminal_picture;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};
use testkit::{note, or_skip};

use super::browser::Browser;
use super::link;

/// A larger picture is too much for a document.
const MOST_BYTES: u64 = 150_000;

/// The size of the terminal.
const SCREEN: (usize, usize) = (118, 24);

/// A host with a name that people know, which runs servers under leash. Dropping it kills it.
struct NamedHost(Child);

impl NamedHost {
    fn start(scene: &Scene, name: &str, servers: &[(&str, &[OsString])]) -> NamedHost {
        let program = scene.dir().join(name);
        if !program.exists() {
            fs::copy("/bin/sh", &program).expect("it can be copied");
        }
        let quoted = |word: &OsString| format!("'{}' ", word.to_string_lossy());
        let run = |(name, server): &(&str, &[OsString])| {
            let words = scene.run_words(["--grace", "0", "--name", name], server);
            words.iter().map(quoted).collect::<String>() + "<&3 &\n"
        };
        let script = format!("exec 3<&0\n{}wait", servers.iter().map(run).collect::<String>());
        let mut command = scene.command(&program);
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        NamedHost(command.spawn().expect("the host starts"))
    }
}

impl Drop for NamedHost {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tmux(scene: &Scene, words: &[&str]) -> Option<String> {
    let mut command = scene.command("tmux");
    command.env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh").arg("-S").arg(scene.dir().join("tmux")).args(words);
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A server that no process holds, in the configuration of a client.
fn orphan(scene: &Scene) {
    let words: Vec<String> =
        scene.tree("mixed", ["--size", "3"]).iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let config = json!({"mcpServers": {"playwright": {"command": words[0], "args": words[1..]}}});
    fs::write(scene.dir().join(".claude.json"), config.to_string()).expect("it can be written");
    let mut shell = scene.command("sh");
    shell.args(["-c", "true | \"$@\" | true &", "sh"]).args(&words).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(shell.status().expect("the shell starts").success());
}

#[test]
fn pictures_show_the_same_servers() {
    let deps = or_skip!(Deps::find());
    let mut scene = or_skip!(Scene::set(Who::User));
    if tmux(&scene, &["-V"]).is_none() {
        return note("skipped: there is no tmux");
    }
    let everything: Vec<OsString> = vec!["node".into(), deps.everything().into(), "stdio".into()];
    let notes = scene.tree("setsid", ["--mcp"]);
    let gateway =
        Gateway::start(&scene, ["--grace", "0", "--name", "notes", "--"].map(OsString::from).into_iter().chain(notes));
    let mut browser = or_skip!(Browser::start(&scene));
    // The views read the configurations of clients when they begin.
    orphan(&scene);
    browser.size(1180, 900, "light");
    assert_eq!(browser.open(&link(&scene)), 200);
    let leash = scene.leash_path();
    let size = [SCREEN.0.to_string(), SCREEN.1.to_string()];
    let window = ["-f", "/dev/null", "-u", "new-session", "-d", "-x", &size[0], "-y", &size[1]];
    tmux(&scene, &[&window[..], &["env", "TERM=xterm-256color", &leash.to_string_lossy(), "top"]].concat());
    let browsing = scene.tree("mixed", ["--size", "4"]);
    let hosts = [
        NamedHost::start(&scene, "claude", &[("files", &everything), ("browser", &browsing)]),
        NamedHost::start(&scene, "cursor", &[("github", &everything)]),
    ];
    let client = Client::open(&gateway, "vscode");
    // Some sessions have ended, because their host was killed.
    let host = NamedHost::start(&scene, "claude", &[("mail", &everything), ("calendar", &everything)]);
    ["files", "browser", "github", "mail", "calendar"].iter().for_each(|name| wait_running(&scene, name));
    browser.wait("state.totals.trees === 6");
    drop(host);
    // The charts of a few seconds.
    browser.wait("state.samples.length >= 20 && state.totals.orphans === 1 && state.totals.trees === 4");
    browser.wait("state.receipts.length >= 2 && [...state.rows.values()].some(row => row.calls === 5)");
    let dir = std::env::var_os("LEASH_PICTURES").map_or_else(|| scene.dir().to_owned(), PathBuf::from);
    let files = ["page.png", "page-phone.png", "top.svg"].map(|name| dir.join(name));
    browser.picture(&shot(&scene, &files[0]));
    browser.size(390, 844, "dark");
    browser.picture(&shot(&scene, &files[1]));
    let screen = wait::until("the rows of top", || {
        let screen = tmux(&scene, &["capture-pane", "-p", "-e"])?;
        ["files", "github", "playwright", "orphan"].iter().all(|word| screen.contains(word)).then_some(screen)
    });
    fs::write(&files[2], terminal_picture::svg(&screen, SCREEN.0, "leash top")).expect("it can be written");
    for file in &files {
        keep(&scene, file);
        let length = fs::metadata(file).expect("a picture").len();
        assert!((1000..MOST_BYTES).contains(&length), "{}: {length} bytes", file.display());
    }

    // The orphan is reaped through the page.
    browser.size(1180, 900, "light");
    let pid = browser.read("[...state.rows.values()].find(row => row.name === 'playwright').root.pid");
    browser.click("button", &format!("Reap playwright (pid {pid})"));
    browser.click("button", "Reap it");
    let receipt = browser.wait("document.querySelector('#confirm[open] .receipt-line')?.textContent");
    assert!(receipt.as_str().is_some_and(|line| line.contains("by leash reap")), "{receipt}");
    browser.wait("state.totals.orphans === 0");
    assert_eq!(browser.problems(), json!([]), "errors on the console");
    tmux(&scene, &["kill-server"]);
    drop((client, hosts, browser));
    gateway.stop();
    scene.census().wait_gone(LIMIT).expect("nothing is left");
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The user of the scene may not be able to write to the directory of the pictures.
fn shot(scene: &Scene, file: &Path) -> PathBuf {
    scene.dir().join(file.file_name().expect("a name"))
}

fn keep(scene: &Scene, file: &Path) {
    let made = shot(scene, file);
    if made != file && made.exists() {
        fs::copy(made, file).expect("it can be copied");
    }
}

fn wait_running(scene: &Scene, name: &str) {
    wait::until("the server", || {
        scene
            .answer(["ps", "--leashed"])
            .stdout
            .lines()
            .find(|line| line.contains(&format!(" {name} ")) && line.contains("running"))
            .map(drop)
    });
}

/// A client of the gateway that has called tools. Dropping it closes its connection.
struct Client {
    _connection: testkit::http::Connection,
}

impl Client {
    fn open(gateway: &Gateway, name: &str) -> Client {
        let mut connection = gateway.connect();
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}});
        let reply = testkit::gateway::post(&mut connection, "notes", None, &hello.to_string());
        let session = reply.header("mcp-session-id").expect("a session").to_owned();
        for number in 0..5 {
            let call = json!({"jsonrpc": "2.0", "id": number + 2, "method": "tools/list"}).to_string();
            assert_eq!(testkit::gateway::post(&mut connection, "notes", Some(&session), &call).status, 200);
        }
        Client { _connection: connection }
    }
}
