//! Hosts with the official SDKs and with the Copilot SDK: the tests of `mcp-leash/sdk` and `mcp_leash.sdk`, their types,
//! and the examples for host authors.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::or_skip;

use super::modules::check;
use super::stage::{Stage, source};

/// A project of a host: the tests of the module, and the packages that `npm install` would bring.
fn project(stage: &Stage) -> PathBuf {
    let dir = stage.scene.dir().join("project");
    let modules = dir.join("node_modules");
    fs::create_dir_all(&modules).expect("cannot make a directory");
    let link = |from: PathBuf, name: &str| symlink(from, modules.join(name)).expect("cannot make a link");
    link(stage.deps.npm().join("node_modules/@modelcontextprotocol"), "@modelcontextprotocol");
    link(stage.deps.sdk().join("node_modules/@github"), "@github");
    link(stage.deps.sdk().join("node_modules/@types"), "@types");
    link(source("clients/typescript"), "mcp-leash");
    fs::write(dir.join("package.json"), r#"{"type": "module"}"#).expect("cannot write");
    // Node resolves packages from the real place of a file, so that the tests are copied.
    let copied = stage.scene.command("cp").arg("-r").args([&source("clients/typescript/test"), &dir]).status();
    assert!(copied.expect("cannot start cp").success());
    dir
}

fn typescript(file: &str) {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command("node");
    command.args(["--test", &format!("test/sdk/{file}")]).current_dir(project(&stage));
    check(stage, command, "# fail 0");
}

#[test]
fn typescript_stdio_transport() {
    typescript("stdio.test.mjs");
}

#[test]
fn typescript_http_transport() {
    typescript("http.test.mjs");
}

#[test]
fn copilot_sdk_session() {
    typescript("copilot.test.mjs");
}

/// The tests under one SDK and one event loop. Warnings of the older SDK about its own streams are no failures.
fn python(program: fn(&Stage) -> PathBuf, case: &str) {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command(program(&stage));
    command.args(["tests/sdk/test_sdk.py", case]).env("PYTHONPATH", "src").current_dir(source("clients/python"));
    check(stage, command, "OK");
}

#[test]
fn python_sdk_2_asyncio() {
    python(|stage| stage.deps.python(), "AsyncioTest");
}

#[test]
fn python_sdk_2_trio() {
    python(|stage| stage.deps.python(), "TrioTest");
}

#[test]
fn python_sdk_1_asyncio() {
    python(|stage| stage.deps.old_python(), "AsyncioTest");
}

#[test]
fn python_sdk_1_trio() {
    python(|stage| stage.deps.old_python(), "TrioTest");
}

/// A host with strict settings, as its author may have them. The types of the SDKs themselves need `skipLibCheck`; those of
/// this module are checked without it in `modules`.
#[test]
fn typescript_types_fit_the_sdks() {
    let stage = or_skip!(Stage::set());
    let dir = project(&stage);
    let files = ["host.ts", "copilot.ts"];
    for file in files {
        fs::copy(source("crates/leash/tests/jobs/types").join(file), dir.join(file)).expect("cannot copy a file");
    }
    for options in [&["--module", "nodenext"][..], &["--module", "es2022", "--moduleResolution", "bundler"]] {
        let mut command = stage.scene.command("node");
        command.arg(stage.deps.npm().join("node_modules/typescript/bin/tsc")).args(["--noEmit", "--strict"]);
        command.args(["--target", "es2022", "--skipLibCheck"]).args(options).args(files).current_dir(&dir);
        succeed(command);
    }
}

/// The module and a host that uses it, with both lines of the SDK.
#[test]
fn python_types_are_strict() {
    let stage = or_skip!(Stage::set());
    let host = source("crates/leash/tests/jobs/types/host.py");
    let dir = stage.scene.dir().join("types");
    fs::create_dir_all(&dir).expect("cannot make a directory");
    fs::copy(&host, dir.join("host.py")).expect("cannot copy a file");
    let config =
        json!({"typeCheckingMode": "strict", "include": ["host.py"], "extraPaths": [source("clients/python/src")]});
    fs::write(dir.join("pyrightconfig.json"), config.to_string()).expect("cannot write");
    for python in [stage.deps.python(), stage.deps.old_python()] {
        for checked in [&["-p", "mcp_leash"][..], &[path(&host)]] {
            let mut mypy = stage.scene.command(stage.deps.python());
            mypy.args(["-m", "mypy", "--strict", "--python-executable"]).arg(&python);
            mypy.arg("--cache-dir").arg(stage.scene.dir().join("mypy")).args(checked);
            mypy.env("MYPYPATH", source("clients/python/src")).current_dir(stage.scene.dir());
            succeed(mypy);
        }
        let mut pyright = stage.scene.command("node");
        pyright.arg(stage.deps.sdk().join("node_modules/pyright/index.js")).arg("--pythonpath").arg(&python);
        pyright.arg("--project").arg(&dir);
        succeed(pyright);
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("the path of a test is text")
}

fn succeed(mut command: Command) {
    let output = command.output().expect("cannot start the checker");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn typescript_example() {
    let stage = or_skip!(Stage::set());
    let dir = project(&stage);
    fs::copy(source("examples/host.mjs"), dir.join("host.mjs")).expect("cannot copy the example");
    let mut command = stage.scene.command("node");
    command.arg(dir.join("host.mjs"));
    check_example(stage, command);
}

#[test]
fn python_example() {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command(stage.deps.python());
    command.arg(source("examples/host.py")).env("PYTHONPATH", source("clients/python/src"));
    check_example(stage, command);
}

/// Runs an example in the directory where npx finds its package.
fn check_example(stage: Stage, mut command: Command) {
    command.current_dir(stage.deps.npm()).stderr(stage.stderr());
    let output = command.output().expect("cannot start the example");
    assert!(output.status.success(), "{}", stage.scene.stderr());
    let said: Value = serde_json::from_slice(&output.stdout).expect("it prints a line of JSON");
    assert_eq!((&said["answer"], &said["fate"]), (&json!("Echo: hello"), &json!("gone")), "{said}");
    // npx, a shell and the server.
    assert!(said["members"].as_u64() > Some(1), "{said}");
    stage.check_end();
}
