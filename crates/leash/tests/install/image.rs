//! The container image, in podman: leash is the first process of the container, or runs beside others.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::{User, Who};
use testkit::wait;

use super::dist::{check_demo, package, succeed};

/// A podman with a storage of its own, in which the image is loaded.
struct Podman {
    dir: PathBuf,
    image: String,
}

impl Podman {
    fn load(scene: &Scene) -> Result<Podman, String> {
        User::find(Who::Root)?;
        let archive = package(".oci.tar")?;
        for program in ["podman", "runc"] {
            let found = Command::new(program).arg("--version").output();
            if !found.is_ok_and(|output| output.status.success()) {
                return Err(format!("there is no {program}"));
            }
        }
        let mut podman = Podman { dir: scene.dir().join("podman"), image: String::new() };
        let loaded = succeed(podman.command(["load", "--input"]).arg(archive));
        let image = loaded.stdout.lines().find_map(|line| line.split_once("Loaded image").map(|(_, rest)| rest));
        let image = image.and_then(|rest| rest.rsplit_once(' ')).unwrap_or_else(|| panic!("{loaded:?}"));
        podman.image = image.1.trim().to_owned();
        Ok(podman)
    }

    fn command<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.dir.join("root")).arg("--runroot").arg(self.dir.join("run"));
        command.arg("--tmpdir").arg(self.dir.join("tmp"));
        command.args(["--storage-driver=vfs", "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file"]);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// A container that is removed when it ends.
    fn run(&self, name: &str, words: &[&str]) -> Command {
        let mut command = self.command(["run", "--rm", "-i", "--network=none", "--name", name]);
        command.args(["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]).arg(&self.image).args(words);
        command
    }

    /// The names of all containers, ended ones included.
    fn containers(&self) -> String {
        succeed(&mut self.command(["ps", "--all", "--format={{.Names}}"])).stdout
    }
}

impl Drop for Podman {
    /// Removes the containers and the storage.
    fn drop(&mut self) {
        let _ = self.command(["rm", "--all", "--force", "--time=0"]).output();
        let _ = self.command(["system", "reset", "--force"]).output();
    }
}

#[test]
fn image_plays_the_demonstration() {
    let scene = or_skip!(Scene::set(Who::Root));
    let podman = or_skip!(Podman::load(&scene));
    check_demo(&succeed(&mut podman.run("demo", &["demo"])));
    let doctor = succeed(&mut podman.run("doctor", &["doctor", "--json"])).json();
    assert_eq!(doctor["installed"]["by"], "image", "{doctor:#}");
    assert_eq!(podman.containers(), "");
}

/// leash is PID 1 and runs a server. The end of its stdin ends the container; so does SIGTERM, which the kernel does not
/// deliver to a PID 1 without a handler for it.
#[test]
fn leash_is_the_first_process_of_a_container() {
    let scene = or_skip!(Scene::set(Who::Root));
    let podman = or_skip!(Podman::load(&scene));
    let server = ["run", "--name", "first", "--grace", "200ms", "--", "/leash", "watch"];
    for by_signal in [false, true] {
        let mut container = podman.run("first", &server).stdin(Stdio::piped()).spawn().expect("podman runs");
        let listed = wait::until("the server in the listing", || {
            let listed = podman.command(["exec", "first", "/leash", "ps", "--leashed", "--json"]).output().ok()?;
            Some(String::from_utf8_lossy(&listed.stdout).into_owned()).filter(|text| text.contains("\"first\""))
        });
        assert!(listed.contains("\"sessions\""), "{listed}");
        if by_signal {
            succeed(&mut podman.command(["kill", "--signal=TERM", "first"]));
        } else {
            container.stdin.take().expect("it is a pipe").flush().expect("it is open");
        }
        container.wait().expect("podman ends");
        wait::until("the container is removed", || podman.containers().is_empty().then_some(()));
    }
}
