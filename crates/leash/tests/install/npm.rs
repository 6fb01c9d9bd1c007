//! The npm packages, by npm, pnpm and yarn, from a registry on this machine.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::deps::Deps;
use testkit::leash::Answer;
use testkit::lines::Lines;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use crate::dist::{check_demo, check_killed_host, dist, everything_below, refuse, succeed};
use crate::real_host::{check_each_killed, check_killed};

/// A configuration of a client, with one server.
const CONFIG: &str = "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}\n";

/// A script that uses the library and no variable.
const USES_LIBRARY: &str = "import { Leash } from 'mcp-leash';
const leash = await Leash.connect();
console.log((await leash.version()).version);
await leash.close();
";

/// A scene with a registry.
struct Shop {
    deps: Deps,
    // Dropped before the scene, which must find no process then.
    registry: Registry,
    scene: Scene,
}

impl Shop {
    /// `None`, with a note, if there are no packages.
    fn open() -> Option<Shop> {
        let found = dist().and_then(|dist| Ok((dist, Deps::find()?)));
        let (dist, deps) = found.inspect_err(|why| testkit::note(&format!("skipped: {why}"))).ok()?;
        let mut scene = Scene::set(Who::me()).expect("the user that runs the tests can");
        let registry = Registry::start(&dist);
        for (name, value) in [
            ("npm_config_registry", registry.address.as_str()),
            ("npm_config_ignore_scripts", "true"),
            ("npm_config_audit", "false"),
            ("npm_config_fund", "false"),
            ("npm_config_update_notifier", "false"),
            ("YARN_NPM_REGISTRY_SERVER", &registry.address),
            ("YARN_UNSAFE_HTTP_WHITELIST", "127.0.0.1"),
            ("YARN_ENABLE_SCRIPTS", "false"),
            ("YARN_ENABLE_TELEMETRY", "0"),
            ("YARN_ENABLE_GLOBAL_CACHE", "false"),
        ] {
            scene.set_env(name, value);
        }
        Some(Shop { deps, registry, scene })
    }

    /// An empty project.
    fn project(&self) -> PathBuf {
        let dir = self.scene.dir().join("project");
        fs::create_dir(&dir).expect("the scene is ours");
        fs::write(dir.join("package.json"), r#"{"name": "project", "private": true}"#).expect("the scene is ours");
        // Without it, yarn looks for a project further up.
        fs::write(dir.join("yarn.lock"), "").expect("the scene is ours");
        dir
    }

    fn run(&self, program: impl AsRef<std::ffi::OsStr>, words: &[&str], dir: &Path) -> Command {
        let mut command = self.scene.command(program);
        command.args(words).current_dir(dir);
        command
    }

    fn answer(&self, program: impl AsRef<std::ffi::OsStr>, words: &[&str], dir: &Path) -> Answer {
        succeed(&mut self.run(program, words, dir))
    }

    /// The command in the configuration of a client after `adopt` by this leash.
    fn adopted(&self, leash: &Path) -> String {
        let config = self.scene.dir().join(".cursor/mcp.json");
        fs::create_dir_all(config.parent().expect("it has a parent")).expect("the scene is ours");
        fs::write(&config, CONFIG).expect("the scene is ours");
        self.answer(leash, &["adopt", "--yes"], self.scene.dir());
        let text = fs::read_to_string(&config).expect("it is there");
        let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        self.answer(leash, &["release", "--yes"], self.scene.dir());
        assert_eq!(fs::read_to_string(&config).expect("it is there"), CONFIG);
        json["mcpServers"]["a"]["command"].as_str().expect("a word").to_owned()
    }

    fn close(self) {
        drop(self.registry);
        self.scene.wait_gone(&[]).expect("nothing is left");
    }
}

/// A registry on the loopback device. It ends when its stdin closes.
struct Registry {
    child: Child,
    address: String,
}

impl Registry {
    fn start(dist: &Path) -> Registry {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install/registry.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(dist).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("cannot start the registry");
        let address = Lines::new(child.stdout.take().expect("a pipe")).next(LIMIT).expect("the registry prints it");
        Registry { child, address }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The program in the package of the platform.
fn native(path: &str) -> bool {
    path.ends_with("/@mcp-leash/linux-x64/bin/leash") || path.ends_with("/@mcp-leash/linux-arm64/bin/leash")
}

/// The files below a directory. npm leaves an empty directory for the scope of a package.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    everything_below(dir).into_iter().filter(|path| !dir.join(path).is_dir()).collect()
}

fn words(words: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

#[test]
fn npm_installs_for_all_projects_and_leaves_nothing() {
    let Some(mut shop) = Shop::open() else { return };
    let prefix = shop.scene.dir().join("prefix");
    let place = prefix.to_string_lossy().into_owned();
    let dir = shop.scene.dir().to_owned();
    shop.answer("npm", &["install", "--global", "--prefix", &place, "mcp-leash"], &dir);
    let leash = prefix.join("bin/leash");
    check_demo(&shop.answer(&leash, &["demo"], &dir));
    assert_eq!(
        shop.answer(&leash, &["--version"], &dir),
        shop.answer(prefix.join("bin/mcp-leash"), &["--version"], &dir)
    );
    let adopted = shop.adopted(&leash);
    assert!(native(&adopted), "{adopted}");
    // No node is between the host and leash.
    check_each_killed(&mut shop.scene, &shop.deps, &words(&[&leash]), &["node", "leash", "leash"]);
    shop.answer("npm", &["uninstall", "--global", "--prefix", &place, "mcp-leash"], &dir);
    assert_eq!(files_below(&prefix), Vec::<PathBuf>::new());
    shop.close();
}

#[test]
fn npm_installs_for_a_project_and_the_library_finds_the_program() {
    let Some(mut shop) = Shop::open() else { return };
    let project = shop.project();
    fs::write(project.join("job.mjs"), USES_LIBRARY).expect("the scene is ours");
    shop.answer("npm", &["install", "mcp-leash"], &project);
    let version = shop.answer(project.join("node_modules/.bin/leash"), &["--version"], &project).stdout;
    assert_eq!(format!("leash {}", shop.answer("node", &["job.mjs"], &project).stdout), version);
    check_killed_host(&mut shop.scene, &project.join("node_modules/.bin/leash"));
    // npx has no project here, so it uses its cache, where leash does not stay.
    fs::create_dir_all(shop.scene.dir().join(".cursor")).expect("the scene is ours");
    fs::write(shop.scene.dir().join(".cursor/mcp.json"), CONFIG).expect("the scene is ours");
    let said = refuse(&mut shop.run("npx", &["--yes", "mcp-leash", "adopt", "--yes"], shop.scene.dir())).stderr;
    assert!(said.contains("in a cache of npx") && said.contains("npm install --global mcp-leash"), "{said}");
    shop.answer("npm", &["uninstall", "mcp-leash"], &project);
    let left = files_below(&project);
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("leash")), "{left:?}");
    shop.close();
}

#[test]
fn without_the_package_of_the_platform_the_launcher_says_what_to_do() {
    let Some(shop) = Shop::open() else { return };
    let project = shop.project();
    shop.answer("npm", &["install", "--omit=optional", "mcp-leash"], &project);
    let answer = refuse(&mut shop.run(project.join("node_modules/.bin/leash"), &["demo"], &project));
    assert_eq!((answer.code, answer.stdout.as_str()), (125, ""), "{answer:?}");
    assert!(answer.stderr.contains("is not installed") && answer.stderr.contains("hint: "), "{answer:?}");
    shop.close();
}

#[test]
fn pnpm_installs_and_removes() {
    let Some(mut shop) = Shop::open() else { return };
    let project = shop.project();
    let pnpm = shop.deps.pnpm().to_string_lossy().into_owned();
    shop.answer("node", &[&pnpm, "add", "mcp-leash"], &project);
    let leash = project.join("node_modules/.bin/leash");
    check_demo(&shop.answer(&leash, &["demo"], &project));
    let adopted = shop.adopted(&leash);
    assert!(native(&adopted) && adopted.contains("/.pnpm/node_modules/"), "{adopted}");
    check_killed(&mut shop.scene, &shop.deps, &words(&[&leash]), &["node", "leash", "leash"], 0);
    shop.answer("node", &[&pnpm, "remove", "mcp-leash"], &project);
    assert!(!leash.exists() && !project.join("node_modules/mcp-leash").exists());
    shop.close();
}

#[test]
fn yarn_with_pnp_has_no_launcher_in_front_where_node_can_replace_itself() {
    // The host and yarn; the test of npm kills leash and its keeper.
    check_yarn(|deps| deps.node_22().into(), &["node", "node", "leash", "leash"], 0..2);
}

/// The host, yarn, the launcher, leash and its keeper.
#[test]
fn yarn_with_pnp_and_an_older_node_leaves_nothing() {
    let old = Command::new("node").args(["-p", "process.execve === undefined"]).output();
    if old.is_ok_and(|output| output.stdout != b"true\n") {
        return testkit::note("skipped: this node has process.execve");
    }
    check_yarn(|_| "node".into(), &["node", "node", "node", "leash", "leash"], 0..5);
}

fn check_yarn(node: impl Fn(&Deps) -> OsString, names: &[&str], victims: Range<usize>) {
    let Some(mut shop) = Shop::open() else { return };
    let project = shop.project();
    let (node, yarn) = (node(&shop.deps), shop.deps.yarn().to_string_lossy().into_owned());
    shop.answer(&node, &[&yarn, "add", "mcp-leash"], &project);
    assert!(project.join(".pnp.cjs").exists());
    check_demo(&shop.answer(&node, &[&yarn, "leash", "demo"], &project));
    let leash = words(&[&node, &yarn, &"--cwd", &project, &"leash"]);
    for victim in victims {
        check_killed(&mut shop.scene, &shop.deps, &leash, names, victim);
    }
    shop.answer(&node, &[&yarn, "remove", "mcp-leash"], &project);
    assert!(!everything_below(&project.join(".yarn/unplugged")).iter().any(|path| path.ends_with("bin/leash")));
    shop.close();
}
