//! A new user of this machine, with an empty home directory and the programs that a page needs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, mount, mount_bind};
use serde_json::Value;
use testkit::deps::Deps;
use testkit::scene::Scene;
use testkit::user::Who;

use crate::normal::Facts;

/// A file system of our own covers this directory: every path on a page is the same on every machine.
const GROUND: &str = "/mnt";

/// Copies the receipts: a page may remove them.
pub(crate) const REMEMBER: &str =
    r#"cat "${XDG_STATE_HOME:-$HOME/.local/state}/leash/receipts.jsonl" >> "$RECEIPTS" 2> /dev/null"#;

/// Installs leash, for a page that takes it for granted.
pub(crate) const INSTALL: &str = "install -D -m 755 target/release/leash ~/.local/bin/leash; cd";

/// The programs of the system. The PATH of the test may have directories that the user may not search.
const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";

/// The environment of the user's shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// As logind and PAM set it.
    Login,
    /// Without XDG_RUNTIME_DIR, and without the directory: `su`, cron, containers.
    Bare,
}

pub(crate) struct Newcomer {
    scene: Scene,
    session: Session,
    home: PathBuf,
}

impl Newcomer {
    /// Makes the user and its surroundings, in the mount namespace of this test.
    pub(crate) fn arrive(deps: &Deps, session: Session) -> Result<Newcomer, String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        if here.starts_with(GROUND) || !Path::new(GROUND).is_dir() {
            return Err(format!("{GROUND} cannot be covered"));
        }
        let scene = Scene::set(Who::User)?;
        for dir in [GROUND, "/run"] {
            mount("none", dir, "tmpfs", MountFlags::empty(), Some(c"mode=0755")).expect("a file system");
        }
        let ground = Path::new(GROUND);
        let home = ground.join("ada");
        own(&scene, &home, 0o700);
        let uid = scene.user().uid();
        let users = format!("root:x:0:0::/root:/bin/sh\nada:x:{uid}:{uid}::{}:/bin/sh\n", home.display());
        fs::write(ground.join("passwd"), users).expect("a list of users");
        mount_bind(ground.join("passwd"), "/etc/passwd").expect("it covers the real list");
        if session == Session::Login {
            own(&scene, &PathBuf::from(format!("/run/user/{uid}")), 0o700);
        }
        fs::write(scene.dir().join("receipts"), "").expect("a file");
        scene.user().own(&scene.dir().join("receipts")).expect("it can be given away");
        // Process numbers have five digits, as on most machines: columns are as wide in every run, and no other number
        // looks like them.
        fs::write("/proc/sys/kernel/ns_last_pid", "20000").expect("root can write it");
        let user = Newcomer { scene, session, home };
        user.programs(ground, deps);
        Ok(user)
    }

    /// The checkout with the built program, and the clients.
    fn programs(&self, ground: &Path, deps: &Deps) {
        let release = ground.join("checkout/target/release");
        fs::create_dir_all(&release).expect("a directory");
        fs::copy(self.scene.leash_path(), release.join("leash")).expect("a copy of leash");
        let bin = ground.join("bin");
        fs::create_dir(&bin).expect("a directory");
        fs::copy("/bin/sh", bin.join("st")).expect("a copy of the shell");
        // Node 22, which the clients want.
        symlink(share("node", &deps.node_22()), bin.join("node")).expect("a link");
        for (name, program) in [("claude", deps.claude()), ("codex", deps.codex()), ("gemini", deps.gemini())] {
            symlink(share("clients", &program), bin.join(name)).expect("a link");
        }
        for (name, script) in [("mcp-inspector", deps.inspector().expect("it was there")), ("npx", npx())] {
            let text = format!("#!/bin/sh\nexec node {} \"$@\"\n", share(name, &script).display());
            fs::write(bin.join(name), text).expect("a script");
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        // `npx` finds packages in the directories above: there is no network.
        let packages = share("servers", &deps.npm().join("node_modules"));
        symlink(packages, ground.join("node_modules")).expect("a link");
    }

    pub(crate) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The shell of the user, in a checkout of leash.
    pub(crate) fn shell(&self) -> Command {
        // A shell of another name starts it, as a terminal does. Without `exit` that shell would become the other one.
        let mut shell = self.scene.command(Path::new(GROUND).join("bin/st"));
        shell.args(["-c", "sh \"$0\"; exit"]);
        let ground = Path::new(GROUND);
        let local = self.home.join(".local/bin");
        shell.current_dir(ground.join("checkout")).env_clear();
        shell.env("PATH", format!("{}:{}:{SYSTEM}", local.display(), ground.join("bin").display()));
        shell.env("HOME", &self.home).env("USER", "ada").env("LOGNAME", "ada").env("SHELL", "/bin/sh");
        shell.env("LANG", "C.UTF-8").env("TERM", "xterm-256color").env("COLUMNS", "80").env("NO_COLOR", "1");
        if self.session == Session::Login {
            shell.env("XDG_RUNTIME_DIR", format!("/run/user/{}", self.scene.user().uid()));
        }
        // No client should look for the network, or be impatient on a busy machine.
        shell.env("DISABLE_AUTOUPDATER", "1").env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        shell.env("MCP_TIMEOUT", "120000").env("GEMINI_CLI_TRUST_WORKSPACE", "true").env("NO_UPDATE_NOTIFIER", "1");
        shell.env("CENSUS", self.scene.witness().path()).env("RECEIPTS", self.scene.dir().join("receipts"));
        shell
    }

    /// What differs from run to run, as the receipts say it.
    pub(crate) fn facts(&self) -> Facts {
        let text = fs::read_to_string(self.scene.dir().join("receipts")).expect("the receipts");
        let receipts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ids = receipts.flat_map(|receipt| ["session", "run"].map(|key| receipt[key].as_str().map(str::to_owned)));
        Facts { ids: ids.flatten().collect(), uid: self.scene.user().uid().to_string() }
    }
}

/// The path of a file of a package for all users: the package may be in a directory that only root can search, but a
/// mount of it is not.
fn share(name: &str, file: &Path) -> PathBuf {
    let is_package = |dir: &&Path| dir.join("package.json").exists() && dir.join("node_modules").exists();
    let dir = file.ancestors().find(is_package).expect("a directory of packages");
    let there = Path::new(GROUND).join("packages").join(name);
    if !there.exists() {
        fs::create_dir_all(&there).expect("a directory");
        mount_bind(dir, &there).expect("the packages");
    }
    there.join(file.strip_prefix(dir).expect("it is below"))
}

/// The script behind `npx` on the PATH of this test.
fn npx() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("npx")).find(|file| file.exists());
    fs::canonicalize(found.expect("`cargo xtask setup` needs it")).expect("a script")
}

fn own(scene: &Scene, dir: &Path, mode: u32) {
    fs::create_dir_all(dir).expect("a directory");
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).expect("a mode");
    scene.user().own(dir).expect("it can be given away");
}
