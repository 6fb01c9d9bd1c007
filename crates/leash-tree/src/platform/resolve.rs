//! Finds the program to execute as execvp does, so that leash can explain a failure before it starts anything.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use rustix::fs::Access;
use thiserror::Error;

/// The reason why a program can't be executed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ResolveError {
    /// The program does not exist.
    #[error("command `{}` was not found", command.to_string_lossy())]
    NotFound {
        /// The command that was looked for.
        command: OsString,
        /// The PATH that was searched; `None` if the command has a slash and PATH does not matter.
        path: Option<OsString>,
    },
    /// The file exists and may not be executed.
    #[error("`{}` cannot be executed: permission denied", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// It is a directory.
    #[error("`{}` is a directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
}

/// Finds `command`. `path` is the PATH that the server will have, `cwd` the directory it will be started in.
pub fn resolve(command: &OsStr, path: Option<&OsStr>, cwd: Option<&Path>) -> Result<PathBuf, ResolveError> {
    let here = |candidate: &Path| cwd.map_or_else(|| candidate.to_owned(), |cwd| cwd.join(candidate));
    if command.as_bytes().contains(&b'/') {
        let file = Path::new(command);
        return match judge(&here(file)) {
            Verdict::Fine => Ok(file.to_owned()),
            Verdict::Refused => Err(ResolveError::NotExecutable { path: file.to_owned() }),
            Verdict::Directory => Err(ResolveError::Directory { path: file.to_owned() }),
            Verdict::Missing => Err(ResolveError::NotFound { command: command.to_owned(), path: None }),
        };
    }
    // glibc uses this value if there is no PATH.
    let path = path.unwrap_or_else(|| OsStr::new("/bin:/usr/bin"));
    let mut refused = None;
    for dir in env::split_paths(path).filter(|_| !command.is_empty()) {
        // An empty entry is the current directory.
        let file = if dir.as_os_str().is_empty() { Path::new(".").join(command) } else { dir.join(command) };
        match judge(&here(&file)) {
            Verdict::Fine => return Ok(file),
            Verdict::Refused => refused = refused.or(Some(ResolveError::NotExecutable { path: file })),
            Verdict::Directory | Verdict::Missing => {}
        }
    }
    Err(refused.unwrap_or_else(|| ResolveError::NotFound { command: command.to_owned(), path: Some(path.to_owned()) }))
}

enum Verdict {
    Fine,
    Refused,
    Directory,
    Missing,
}

fn judge(file: &Path) -> Verdict {
    let Ok(meta) = fs::metadata(file) else { return Verdict::Missing };
    if meta.is_dir() {
        return Verdict::Directory;
    }
    match rustix::fs::access(file, Access::EXEC_OK) {
        Ok(()) => Verdict::Fine,
        Err(_) => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_in_path_or_by_slash() {
        assert_eq!(resolve(OsStr::new("sh"), Some(OsStr::new("/nowhere:/bin")), None), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(resolve(OsStr::new("/bin/sh"), None, None), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(resolve(OsStr::new("./sh"), None, Some(Path::new("/bin"))), Ok(PathBuf::from("./sh")));
    }

    #[test]
    fn failures_tell_missing_from_refused() {
        let missing = resolve(OsStr::new("no-such-program"), Some(OsStr::new("/bin")), None);
        assert!(matches!(missing, Err(ResolveError::NotFound { path: Some(_), .. })));
        assert!(matches!(resolve(OsStr::new("/etc/passwd"), None, None), Err(ResolveError::NotExecutable { .. })));
        assert!(matches!(resolve(OsStr::new("/bin/"), None, None), Err(ResolveError::Directory { .. })));
        // In PATH a directory of that name is no program, so the search goes on.
        let local = resolve(OsStr::new("local"), Some(OsStr::new("/usr")), None);
        assert!(matches!(local, Err(ResolveError::NotFound { path: Some(_), .. })));
        assert!(matches!(resolve(OsStr::new(""), Some(OsStr::new("/bin")), None), Err(ResolveError::NotFound { .. })));
    }
}
