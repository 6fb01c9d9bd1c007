//! The keys of `leash top`, pressed in a real terminal emulator.

use std::ffi::OsString;
use std::process::Output;

use testkit::deps::Deps;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::Run;

/// A tmux of its own. Dropping it ends it.
struct Tmux<'s> {
    scene: &'s Scene,
}

impl<'s> Tmux<'s> {
    /// Starts a window with a command.
    fn start(scene: &'s Scene, words: &[&str]) -> Result<Tmux<'s>, String> {
        let tmux = Tmux { scene };
        tmux.try_run(&["-V"]).map_err(|why| format!("there is no tmux: {why}"))?;
        let window = ["-f", "/dev/null", "-u", "new-session", "-d", "-x", "80", "-y", "24"];
        tmux.run(&[&window[..], words].concat());
        Ok(tmux)
    }

    fn try_run(&self, words: &[&str]) -> std::io::Result<Output> {
        let mut command = self.scene.command("tmux");
        command.env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh");
        command.arg("-S").arg(self.scene.dir().join("tmux")).args(words).output()
    }

    fn run(&self, words: &[&str]) -> String {
        let output = self.try_run(words).expect("tmux starts");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen is as wanted; the screen.
    fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let found = wait::within(LIMIT, || {
            last = self.run(&["capture-pane", "-p"]);
            wanted(&last).then_some(())
        });
        assert!(found.is_some(), "{what} is not on the screen:\n{last}");
        last
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.try_run(&["kill-server"]);
    }
}

/// The part of the screen above the events.
fn list(screen: &str) -> &str {
    screen.split("-- events").next().unwrap_or_default()
}

#[test]
fn session_of_a_real_server_ends_after_the_question() {
    let deps = or_skip!(Deps::find());
    let mut scene = or_skip!(Scene::set(Who::me()));
    let everything: Vec<OsString> = vec!["node".into(), deps.everything().into(), "stdio".into()];
    let mut real = Run::start(&scene, "everything", &everything);
    let mut mail = Run::start(&scene, "mail", &scene.tree("polite", [""; 0]));
    scene.census().wait_all_ready(1, LIMIT).expect("the tree did not come up");
    let leash = scene.leash_path();
    let script = format!("{} top --leashed; stty -a; echo terminal returned; exec cat", leash.display());
    let tmux = or_skip!(Tmux::start(&scene, &["sh", "-c", &script]));

    tmux.wait("both servers", |screen| list(screen).contains("everything") && list(screen).contains("mail"));
    // Typing a filter runs nothing, although it has the letters of commands.
    tmux.press(&["/", "e", "v", "e", "r", "y"]);
    tmux.wait("the filter", |screen| screen.contains("/every_") && !list(screen).contains("mail"));
    tmux.press(&["Enter", "e"]);
    let question = tmux.wait("the question", |screen| screen.contains("End the server everything"));
    assert!(question.contains("and frees") && question.contains("node "), "{question}");
    tmux.press(&["n"]);
    tmux.wait("the list", |screen| !screen.contains("End the server") && list(screen).contains("everything"));
    assert!(real.0.try_wait().expect("it can be waited for").is_none(), "it was not ended");
    tmux.press(&["e"]);
    tmux.wait("the question", |screen| screen.contains("End the server everything"));
    tmux.press(&["y"]);
    tmux.wait("the receipt", |screen| screen.contains("leash end; ") && !list(screen).contains("everything ["));
    real.wait();
    tmux.press(&["Escape"]);
    tmux.wait("the other server", |screen| list(screen).contains("mail"));
    assert!(scene.witness().is_populated(), "the other server was ended as well");

    tmux.run(&["resize-window", "-x", "160", "-y", "50"]);
    tmux.wait("the wide list", |screen| screen.contains("CONTAINMENT") && screen.lines().count() >= 40);
    tmux.press(&["q"]);
    let after = tmux.wait("the terminal", |screen| screen.contains("terminal returned"));
    assert!(after.contains(" icanon") && after.contains(" echo ") && !after.contains("-- events"), "{after}");

    drop(tmux);
    drop(mail.0.stdin.take());
    mail.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}
