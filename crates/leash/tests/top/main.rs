//! `leash top` in a real terminal, and `leash ps --watch`.

mod screen;
mod tmux;
mod watch;

use std::ffi::OsString;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::wait::LIMIT;

/// A `leash run` that is held by its stdin. Dropping it kills leash; the scene kills its tree.
struct Run(Child);

impl Run {
    fn start(scene: &Scene, name: &str, server: &[OsString]) -> Run {
        let words = scene.run_words(["--grace", "0", "--name", name], server);
        let mut command = scene.command(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Run(command.spawn().expect("leash starts"))
    }

    /// Waits until leash itself has exited.
    fn wait(&mut self) {
        wait_exit(&mut self.0);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn handle(child: &Child) -> Handle {
    let pid = Pid::from_raw(child.id() as i32).expect("a child has a number");
    Handle::open(pid, |_| true).expect("a child that was not waited for has its number")
}

/// Waits until a child has exited; its exit code.
fn wait_exit(child: &mut Child) -> Option<i32> {
    assert!(handle(child).wait_gone(LIMIT), "it does not end");
    child.wait().expect("it was not waited for").code()
}

/// A locale with UTF-8, in which the screen has its usual marks.
fn in_utf8(command: &mut Command) -> &mut Command {
    command.env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color")
}
