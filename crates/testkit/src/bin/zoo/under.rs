//! `zoo` in the place of leash: whatever it is executed as, it executes leash as that, under a tool. `/proc/self/exe` and a first
//! argument that is not the program's name, by which leash executes itself, are lost on tools that load programs themselves.

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

/// Executes the words in `file`, and then what it was executed as. A tool finds it on the PATH, which is the first word.
pub(crate) fn run(file: PathBuf) -> io::Result<()> {
    let words = fs::read(file)?;
    let mut words = words.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let (path, tool) = words.next().zip(words.next()).ok_or_else(|| super::wrong("no words to execute"))?;
    Err(Command::new(tool).env("PATH", path).args(words).args(std::env::args_os()).exec())
}
