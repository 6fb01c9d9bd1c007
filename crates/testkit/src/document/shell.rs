//! One shell that plays all commands of a page, as a reader would.

use std::fs;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::wait::{self, Deadline};

/// The time for a whole page, far beyond what it takes: the shell waits for servers to come up, and `leash` for them to
/// exit.
const LIMIT: Duration = Duration::from_mins(3);

/// The commands of a page, and what the shell does around them.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// Before the first command.
    pub before: &'a str,
    /// The commands.
    pub commands: &'a [&'a str],
    /// After each command.
    pub between: &'a str,
    /// After the last command.
    pub after: &'a str,
}

/// Plays the commands in `shell`, which is a `sh` without arguments, and returns what each of them printed to stdout and
/// stderr. The variable CENSUS names the FIFO that every process of the page holds. Returns fewer if the shell exited
/// early.
///
/// # Panics
/// If a process of the page still has its output open after three minutes.
pub fn play(mut shell: Command, file: &Path, script: &Script<'_>) -> Vec<String> {
    let end = crate::unique("end of command");
    fs::write(file, text(script, &end)).expect("the script can be written");
    let (reader, writer) = io::pipe().expect("a pipe");
    shell.arg(file).stdout(writer.try_clone().expect("a copy of the pipe")).stderr(writer);
    let mut child = shell.spawn().expect("cannot start sh");
    // It holds the pipe as well.
    drop(shell);
    let (text, is_over) = read(reader);
    if !is_over {
        let _ = child.kill();
    }
    child.wait().expect("cannot wait for sh");
    assert!(is_over, "the page is not over after {LIMIT:?}:\n{text}");
    let mut printed: Vec<String> = text.split(&format!("{end}\n")).map(str::to_owned).collect();
    // The last part is the output of `after`; the first one, that of `before`.
    printed.pop();
    printed.drain(..1.min(printed.len()));
    printed
}

/// The commands as a script that says when each of them is over.
fn text(script: &Script<'_>, end: &str) -> String {
    let Script { before, commands, between, after } = script;
    let parts: String = commands.iter().map(|command| format!("{command}\necho '{end}'\n{between}\n")).collect();
    format!("exec 9> \"$CENSUS\"\n{before}\necho '{end}'\n{parts}{after}\n")
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
