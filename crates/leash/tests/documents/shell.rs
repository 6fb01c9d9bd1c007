//! One shell that plays all commands of a page, as a reader would.

use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::unix::fs::symlink;
use std::time::Duration;

use rustix::event::PollFlags;
use testkit::scene::Scene;
use testkit::wait::{self, Deadline};

/// The time for a whole page, far beyond what it takes: the shell waits for servers to come up, and `leash` for them to
/// exit.
const LIMIT: Duration = Duration::from_secs(120);

/// Plays the commands in an empty home directory, with `leash` first on PATH, and returns what each of them printed to
/// stdout and stderr. Returns fewer if the shell exited early.
///
/// # Panics
/// If a process of the page still has its output open after [`LIMIT`].
pub(crate) fn play(scene: &Scene, before: &str, commands: &[&str], after: &str) -> Vec<String> {
    let [bin, home, temporary] = ["bin", "home", "tmp"].map(|name| scene.dir().join(name));
    for dir in [&bin, &home, &temporary] {
        fs::create_dir(dir).expect("a directory");
        scene.user().own(dir).expect("it can be given away");
    }
    symlink(scene.leash_path(), bin.join("leash")).expect("a link to leash");
    let end = testkit::unique("end of command");
    let script = scene.dir().join("page.sh");
    fs::write(&script, self::script(before, commands, after, &end)).expect("the script can be written");

    let (reader, writer) = io::pipe().expect("a pipe");
    let path = std::env::var("PATH").unwrap_or_default();
    // The scene sets no variable that tells where the files of a client are.
    let mut command = scene.command("sh");
    command.arg(script).current_dir(&home).env("HOME", &home).env("TMPDIR", &temporary);
    command.env("COLUMNS", "80").env("PATH", format!("{}:{path}", bin.display())).env("CENSUS", scene.witness().path());
    command.stdout(writer.try_clone().expect("a copy of the pipe")).stderr(writer);
    let mut shell = command.spawn().expect("cannot start sh");
    // It holds the pipe as well.
    drop(command);
    let (text, is_over) = read(reader);
    if !is_over {
        let _ = shell.kill();
    }
    shell.wait().expect("cannot wait for sh");
    assert!(is_over, "the page is not over after {LIMIT:?}:\n{text}");
    let mut printed: Vec<String> = text.split(&format!("{end}\n")).map(str::to_owned).collect();
    // The last part is the output of `after`; the first one, that of `before`.
    printed.pop();
    printed.drain(..1.min(printed.len()));
    printed
}

/// The commands as a script that says when each of them is over. Every process that it starts holds the census.
fn script(before: &str, commands: &[&str], after: &str, end: &str) -> String {
    let parts = [&[before][..], commands].concat();
    let parts: String = parts.iter().map(|command| format!("{command}\necho '{end}'\n")).collect();
    format!("exec 9> \"$CENSUS\"\n{parts}{after}\n")
}

/// Reads until no process holds the other end. Returns false as well if one still does after [`LIMIT`].
fn read(mut pipe: PipeReader) -> (String, bool) {
    let deadline = Deadline::after(LIMIT);
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    let is_over = loop {
        if !wait::ready(&pipe, PollFlags::IN, deadline.left()) {
            break false;
        }
        match pipe.read(&mut buffer).expect("a pipe can be read") {
            0 => break true,
            got => text.extend_from_slice(&buffer[..got]),
        }
    };
    (String::from_utf8_lossy(&text).into_owned(), is_over)
}
