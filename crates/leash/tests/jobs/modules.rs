//! The modules' own tests, on a scene: nothing is left after them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use testkit::or_skip;
use testkit::process::Handle;
use testkit::wait::LIMIT;

use super::stage::{Stage, source};

#[test]
fn typescript() {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command("node");
    command.args(["--test", "test/link.test.mjs", "test/sessions.test.mjs", "test/types.test.mjs"]);
    command.current_dir(source("clients/typescript"));
    check(stage, command, "# fail 0");
}

#[test]
fn python() {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command("python3");
    command.args(["-W", "error", "-m", "unittest", "discover", "--start-directory", "tests", "--verbose"]);
    command.env("PYTHONPATH", "src").current_dir(source("clients/python"));
    check(stage, command, "OK");
}

/// A project of a user with strict settings and no `skipLibCheck`. The libraries of es2022 have no `Symbol.asyncDispose`.
#[test]
fn typescript_types_are_strict() {
    let stage = or_skip!(Stage::set());
    let dir = stage.scene.dir().join("project");
    fs::create_dir_all(dir.join("node_modules")).expect("a directory");
    symlink(source("clients/typescript"), dir.join("node_modules/mcp-leash")).expect("a link");
    fs::write(dir.join("package.json"), r#"{"type": "module"}"#).expect("a file");
    fs::write(dir.join("plain.ts"), PLAIN).expect("a file");
    fs::write(dir.join("using.ts"), USING).expect("a file");
    let compile = |options: &[&str]| {
        let mut command = stage.scene.command("node");
        command.arg(stage.deps.npm().join("node_modules/typescript/bin/tsc")).args(["--noEmit", "--strict"]);
        command.args(["--target", "es2022", "--module", "nodenext"]).args(options).current_dir(&dir);
        let output = command.output().expect("cannot start the compiler");
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stdout));
    };
    compile(&["plain.ts"]);
    compile(&["--lib", "es2022,dom,esnext.disposable", "plain.ts", "using.ts"]);
}

const PLAIN: &str = r#"
import { Leash, LeashError, allGone, type Receipt } from "mcp-leash";
import { LeashedStdioClientTransport } from "mcp-leash/sdk";
const transport = new LeashedStdioClientTransport({ command: "npx", leash: { grace: "5s" } });
const leash = await Leash.connect();
const session = await leash.session({ mcpServers: { files: { command: "npx", args: ["-y", "x"] } }, owner: { pid: 1 } });
const receipt: Receipt = await session.end();
if (!allGone(receipt)) throw new LeashError("something is left");
for await (const event of await leash.events()) console.log(event.type, event.session);
"#;

const USING: &str = r#"
import { Leash } from "mcp-leash";
await using leash = await Leash.connect();
await using session: AsyncDisposable = await leash.session({ mcpServers: {} });
"#;

/// `pip install` of a directory builds inside it.
#[test]
fn pip_install_leaves_no_files_in_the_tree() {
    let stage = or_skip!(Stage::set());
    let (tree, target) = (stage.scene.dir().join("python"), stage.scene.dir().join("installed"));
    let copied = stage.scene.command("cp").arg("-r").args([&source("clients/python"), &tree]).status();
    assert!(copied.expect("cannot start cp").success());
    let before = files(&tree);
    let mut pip = stage.scene.command(stage.deps.python());
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
    ]);
    pip.args(["--no-index", "--no-deps", "--no-build-isolation", "--target"]).args([&target, &tree]);
    let output = pip.output().expect("cannot start pip");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(files(&tree), before);
    assert!(target.join("mcp_leash/py.typed").exists(), "{:?}", files(&target));
}

/// All files below a directory.
fn files(dir: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { BTreeSet::from([path]) }).collect()
}

/// Runs them. `verdict` is a line that they print at the end.
pub(crate) fn check(stage: Stage, mut command: Command, verdict: &str) {
    let path = stage.scene.dir().join("said");
    let said = std::fs::File::create(&path).expect("cannot make a file");
    // A file instead of a pipe: a process that inherited a pipe would block the test.
    command.stdout(said.try_clone().expect("a file can be shared")).stderr(Stdio::from(said));
    let mut child = command.spawn().expect("cannot start the tests");
    let handle = Handle::open(Pid::from_child(&child), |_| true).expect("it is our child");
    let is_over = handle.wait_gone(3 * LIMIT);
    if !is_over {
        handle.signal(Signal::KILL).expect("cannot signal the tests");
    }
    let status = child.wait().expect("it is our child");
    let text = std::fs::read_to_string(&path).expect("it was just written");
    assert!(is_over && status.success(), "{text}");
    assert!(text.lines().any(|line| line == verdict), "no test ran: {text}");
    stage.check_end();
}
