//! The commands of docs/guide/install.md that work without a published release, as they are written there.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::{env, fs};

use testkit::deps::Deps;
use testkit::scene::Scene;
use testkit::user::Who;

use super::dist::{check_demo, dist, succeed};

/// The first command makes the packages, which was done. `deb` and `image` install the last two.
const OTHERS: [&str; 3] = ["cargo xtask dist", "sudo apt install ", "podman load "];

/// The commands of the section, one a line.
fn commands() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/install.md");
    let page = fs::read_to_string(page).expect("the page exists");
    let section = page.split("\n## ").find(|section| section.starts_with("From a checkout")).expect("the section");
    section.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

#[test]
fn commands_for_a_checkout_install_the_packages() {
    let found = dist().and_then(|dist| Ok((dist, Deps::find()?)));
    let Some((dist, deps)) = found.inspect_err(|why| testkit::note(&format!("skipped: {why}"))).ok() else { return };
    let all = commands();
    let (others, ours): (Vec<_>, Vec<_>) =
        all.iter().partition(|line| OTHERS.iter().any(|start| line.starts_with(start)));
    assert_eq!((others.len(), ours.len()), (3, 3), "{all:#?}");
    for line in ours {
        let mut scene = Scene::set(Who::me()).expect("the user that runs the tests can");
        fs::create_dir(scene.dir().join("target")).expect("the scene is ours");
        symlink(&dist, scene.dir().join("target/dist")).expect("the scene is ours");
        let local = scene.dir().join(".local");
        let uv = deps.uv();
        let path = format!(
            "{}:{}",
            uv.parent().expect("it is in a directory").display(),
            env::var("PATH").unwrap_or_default()
        );
        // No registry can be asked.
        for (name, value) in [("npm_config_registry", "http://127.0.0.1:1"), ("UV_OFFLINE", "1"), ("PATH", &path)] {
            scene.set_env(name, value);
        }
        scene.set_env("npm_config_prefix", &local);
        succeed(scene.command("sh").args(["-c", line]));
        check_demo(&succeed(scene.command(local.join("bin/leash")).arg("demo")));
        scene.wait_gone(&[]).expect("nothing is left");
    }
}
