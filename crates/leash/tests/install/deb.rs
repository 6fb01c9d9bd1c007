//! The Debian package, installed by apt into a directory that is the root of a system without anything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::{User, Who};

use super::dist::{check_demo, check_killed_host, everything_below, package, succeed};

/// An empty system. apt and dpkg of this machine act on it.
struct System(PathBuf);

impl System {
    fn empty(root: PathBuf) -> Result<System, &'static str> {
        let version = Command::new("apt-get").arg("--version").output();
        if !version.is_ok_and(|output| output.status.success()) {
            return Err("there is no apt-get");
        }
        for dir in [
            "dev",
            "proc",
            "tmp",
            "var/cache/apt/archives/partial",
            "var/lib/apt/lists/partial",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/log/apt",
        ] {
            fs::create_dir_all(root.join(dir)).expect("a directory can be made");
        }
        for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
            fs::write(root.join(file), "").expect("a file can be written");
        }
        Ok(System(root))
    }

    /// An `apt-get` that reads and writes nothing outside of the system, and has no archives to ask.
    fn apt(&self, words: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        let root = self.0.display();
        for option in [
            format!("Dir::State={root}/var/lib/apt"),
            format!("Dir::State::status={root}/var/lib/dpkg/status"),
            format!("Dir::Cache={root}/var/cache/apt"),
            format!("Dir::Log={root}/var/log/apt"),
            "Dir::Etc=/nonexistent".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
            format!("DPkg::Options::=--root={root}"),
            "DPkg::Options::=--log=/dev/null".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command.args(["-y", "-q"]).args(words).env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command
    }

    /// All files but those of apt and dpkg.
    fn files(&self) -> BTreeSet<PathBuf> {
        everything_below(&self.0).into_iter().filter(|path| !path.starts_with("var")).collect()
    }

    /// A command with this directory as its root, in a mount namespace of its own.
    fn inside(&self, words: &[&str]) -> Command {
        let script = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&self.0).args(words);
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }
}

#[test]
fn apt_installs_and_removes_without_a_trace() {
    or_skip!(User::find(Who::Root));
    let package = or_skip!(package(".deb"));
    let mut scene = or_skip!(Scene::set(Who::Root));
    let system = or_skip!(System::empty(scene.dir().join("system")));
    let before = system.files();
    let package = package.to_str().expect("a path in UTF-8").to_owned();
    succeed(&mut system.apt(&["install", &package]));

    let installed = system.files();
    for file in [
        "usr/bin/leash",
        "usr/lib/systemd/user/leash-watch.service",
        "usr/share/man/man1/leash.1.gz",
        "usr/share/man/man1/leash-run.1.gz",
        "usr/share/bash-completion/completions/leash",
        "usr/share/zsh/vendor-completions/_leash",
        "usr/share/fish/vendor_completions.d/leash.fish",
        "usr/share/doc/mcp-leash/copyright",
        "usr/share/doc/mcp-leash/THIRD-PARTY.txt",
    ] {
        assert!(installed.contains(Path::new(file)), "{file} is missing: {installed:#?}");
    }
    // Outside of /usr there is nothing: the unit is not enabled.
    let outside = installed.difference(&before).find(|path| !path.starts_with("usr"));
    assert_eq!(outside, None);

    // The root has no libraries and no shell: the program is static.
    check_demo(&succeed(&mut system.inside(&["/usr/bin/leash", "demo"])));
    let doctor = succeed(&mut system.inside(&["/usr/bin/leash", "doctor", "--json"])).json();
    assert_eq!(doctor["installed"]["by"], "deb", "{doctor:#}");
    check_killed_host(&mut scene, &system.0.join("usr/bin/leash"));
    // leash itself has written here, not the package.
    let written = ["run/leash", "tmp/leash-0", "root"];
    for dir in written {
        let _ = fs::remove_dir_all(system.0.join(dir));
    }
    let _ = fs::remove_dir(system.0.join("run"));

    succeed(&mut system.apt(&["purge", "mcp-leash"]));
    assert_eq!(system.files(), before);
    let status = fs::read_to_string(system.0.join("var/lib/dpkg/status")).expect("it can be read");
    assert!(!status.contains("mcp-leash"), "{status}");
}

/// The unit of the package does what the one that `leash watch --install` writes does.
#[test]
fn unit_is_that_of_watch() {
    let package = or_skip!(package(".deb"));
    let scene = or_skip!(Scene::set(Who::User));
    let unpacked = scene.dir().join("unpacked");
    succeed(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&unpacked));
    let packed = fs::read_to_string(unpacked.join("usr/lib/systemd/user/leash-watch.service")).expect("the unit");

    let mut watch = scene.leash(["watch", "--install"]);
    succeed(
        watch
            .env("XDG_CONFIG_HOME", scene.dir().join("config"))
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent"),
    );
    let written = scene.dir().join("config/systemd/user/leash-watch.service");
    let written = fs::read_to_string(written).expect("the unit was written");
    // The comments, the path of the program and the directories of the user differ.
    let lines = |unit: &str| -> Vec<String> {
        let differs = |line: &&str| ["#", "Environment=", "ExecStart="].iter().any(|start| line.starts_with(start));
        unit.lines().filter(|line| !differs(line)).map(str::to_owned).collect()
    };
    assert_eq!(lines(&packed), lines(&written));
    assert!(packed.contains("\nExecStart=\"/usr/bin/leash\" watch\n"), "{packed}");
}
