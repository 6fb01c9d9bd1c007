//! The wheel, by pip and uv.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::deps::Deps;
use testkit::scene::Scene;
use testkit::user::Who;

use crate::dist::{check_demo, everything_below, package, refuse, succeed};
use crate::real_host::{check_each_killed, check_killed};

/// A script that uses the module and no variable.
const USES_MODULE: &str = "from mcp_leash import Leash
with Leash() as leash:
    print(leash.version()['version'])
";

fn set() -> Option<(PathBuf, Deps, Scene)> {
    let found = package(".whl").and_then(|wheel| Ok((wheel, Deps::find()?)));
    let (wheel, deps) = found.inspect_err(|why| testkit::note(&format!("skipped: {why}"))).ok()?;
    let mut scene = Scene::set(Who::me()).expect("the user that runs the tests can");
    for (name, value) in [("UV_OFFLINE", "1"), ("UV_PYTHON_DOWNLOADS", "never"), ("PYTHONDONTWRITEBYTECODE", "1")] {
        scene.set_env(name, value);
    }
    Some((wheel, deps, scene))
}

/// The paths below a directory that belong to the package.
fn left(dir: &Path) -> Vec<PathBuf> {
    everything_below(dir).into_iter().filter(|path| path.to_string_lossy().contains("leash")).collect()
}

#[test]
fn pip_installs_the_program_and_the_module() {
    let Some((wheel, deps, mut scene)) = set() else { return };
    let venv = scene.dir().join("venv");
    succeed(scene.command("python3").args(["-m", "venv", "--without-pip"]).arg(&venv));
    let pip = |scene: &Scene, words: &[&str]| {
        let mut command = scene.command(deps.python());
        command.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(&venv).args(words);
        command
    };
    succeed(pip(&scene, &["install", "--no-index"]).arg(&wheel));
    let leash = venv.join("bin/leash");
    assert_eq!(fs::read(&leash).expect("it is there")[..4], *b"\x7fELF");
    check_demo(&succeed(scene.command(&leash).arg("demo")));
    let version = succeed(scene.command(&leash).arg("--version")).stdout;
    assert_eq!(succeed(scene.command(venv.join("bin/mcp-leash")).arg("--version")).stdout, version);
    let module = succeed(scene.command(venv.join("bin/python")).args(["-c", USES_MODULE])).stdout;
    assert_eq!(format!("leash {module}"), version);
    check_killed(&mut scene, &deps, &[leash.into()], &["node", "leash", "leash"], 1);
    succeed(&mut pip(&scene, &["uninstall", "--yes", "mcp-leash"]));
    assert_eq!(left(&venv), Vec::<PathBuf>::new());
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn uv_installs_the_program_as_a_tool() {
    let Some((wheel, deps, mut scene)) = set() else { return };
    succeed(scene.command(deps.uv()).args(["tool", "install"]).arg(&wheel));
    let leash = scene.dir().join(".local/bin/leash");
    check_demo(&succeed(scene.command(&leash).arg("demo")));
    succeed(scene.command(scene.dir().join(".local/bin/mcp-leash")).arg("--version"));
    check_killed(&mut scene, &deps, &[leash.into()], &["node", "leash", "leash"], 0);
    succeed(scene.command(deps.uv()).args(["tool", "uninstall", "mcp-leash"]));
    assert_eq!(left(&scene.dir().join(".local")), Vec::<PathBuf>::new());
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn uvx_runs_the_program_that_is_named_like_the_package() {
    let Some((wheel, deps, mut scene)) = set() else { return };
    let uvx: Vec<OsString> = vec![deps.uv().into(), "tool".into(), "run".into(), "--from".into(), wheel.into()];
    let run = |words: &[&str]| {
        let mut command = scene.command(&uvx[0]);
        command.args(&uvx[1..]).arg("mcp-leash").args(words);
        command
    };
    check_demo(&succeed(&mut run(&["demo"])));
    fs::create_dir(scene.dir().join(".cursor")).expect("the scene is ours");
    let config = "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}\n";
    fs::write(scene.dir().join(".cursor/mcp.json"), config).expect("the scene is ours");
    let said = refuse(&mut run(&["adopt", "--yes"])).stderr;
    assert!(said.contains("in a cache of uvx") && said.contains("uv tool install mcp-leash"), "{said}");
    let leash: Vec<OsString> = uvx.iter().cloned().chain(["mcp-leash".into()]).collect();
    check_each_killed(&mut scene, &deps, &leash, &["node", "uv", "leash", "leash"]);
    succeed(scene.command(deps.uv()).args(["cache", "clean", "mcp-leash"]));
    scene.wait_gone(&[]).expect("nothing is left");
}
