//! `zoo` in the place of leash: it executes leash under a tool, with the same `argv[0]` that it was executed with.
//! leash executes itself through `/proc/self/exe` and a first argument that is not the program's name; tools that load
//! programs themselves lose both.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The file that makes a copy of the zoo take the place of leash.
pub(crate) fn words() -> Option<PathBuf> {
    let mut file = std::env::current_exe().ok()?.into_os_string();
    file.push(".words");
    Some(PathBuf::from(file)).filter(|file| file.exists())
}

/// Executes the words in `file`, followed by its own arguments. The first word is the tool, which is found on the PATH.
pub(crate) fn run(file: PathBuf) -> io::Result<()> {
    let words = fs::read(file)?;
    let mut words = words.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let (path, tool) = words.next().zip(words.next()).ok_or_else(|| super::wrong("no words to execute"))?;
    Err(Command::new(tool).env("PATH", path).args(words).args(std::env::args_os()).exec())
}
