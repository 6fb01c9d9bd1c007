//! Finds the program to execute as execvp does, so that leash can explain a failure before it starts anything.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use rustix::fs::Access;
use rustix::io::Errno;

use leash_model::error::{Cause, shown};
use leash_model::start_failure::StartFailure;

/// Finds `command`. `path` is the PATH that the server will have, `cwd` the directory it will be started in, which is
/// checked first.
pub fn resolve(command: &OsStr, path: Option<&OsStr>, cwd: Option<&Path>) -> Result<PathBuf, StartFailure> {
    if let Some(cwd) = cwd {
        check_directory(cwd)
            .map_err(|error| StartFailure::WorkingDirectory { dir: shown(cwd), cause: Cause::new(error) })?;
    }
    let here = |candidate: &Path| cwd.map_or_else(|| candidate.to_owned(), |cwd| cwd.join(candidate));
    if command.as_bytes().contains(&b'/') {
        let file = Path::new(command);
        return match judge(&here(file)) {
            FileCheck::Fine => Ok(file.to_owned()),
            FileCheck::Directory => Err(StartFailure::IsDirectory { path: shown(file) }),
            FileCheck::Denied => Err(StartFailure::NotExecutable { path: shown(file) }),
            FileCheck::Missing => Err(StartFailure::NotFound { command: shown(command), path: None }),
        };
    }
    // glibc uses this value if there is no PATH.
    let path = path.unwrap_or_else(|| OsStr::new("/bin:/usr/bin"));
    let mut refused = None;
    for dir in env::split_paths(path).filter(|_| !command.is_empty()) {
        // An empty entry is the current directory.
        let file = if dir.as_os_str().is_empty() { Path::new(".").join(command) } else { dir.join(command) };
        match judge(&here(&file)) {
            FileCheck::Fine => return Ok(file),
            FileCheck::Directory => refused = refused.or(Some(StartFailure::IsDirectory { path: shown(file) })),
            FileCheck::Denied => refused = refused.or(Some(StartFailure::NotExecutable { path: shown(file) })),
            FileCheck::Missing => {}
        }
    }
    Err(refused.unwrap_or_else(|| StartFailure::NotFound { command: shown(command), path: Some(shown(path)) }))
}

enum FileCheck {
    Fine,
    Directory,
    Denied,
    Missing,
}

fn judge(file: &Path) -> FileCheck {
    let Ok(meta) = fs::metadata(file) else { return FileCheck::Missing };
    if meta.is_dir() {
        return FileCheck::Directory;
    }
    match rustix::fs::access(file, Access::EXEC_OK) {
        Ok(()) => FileCheck::Fine,
        Err(_) => FileCheck::Denied,
    }
}

/// Checks that the server can change to a directory.
fn check_directory(dir: &Path) -> io::Result<()> {
    if !fs::metadata(dir)?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    Ok(rustix::fs::access(dir, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_model::limits;

    #[test]
    fn found_in_path_or_by_slash() {
        assert_eq!(resolve(OsStr::new("sh"), Some(OsStr::new("/nowhere:/bin")), None), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(resolve(OsStr::new("/bin/sh"), None, None), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(resolve(OsStr::new("./sh"), None, Some(Path::new("/bin"))), Ok(PathBuf::from("./sh")));
    }

    #[test]
    fn failures_tell_missing_from_refused() {
        let check = |command: &str, path: Option<&str>, expected| {
            assert_eq!(resolve(OsStr::new(command), path.map(OsStr::new), None), Err(expected), "{command}");
        };
        let not_found = |command: &str, path: Option<&str>| StartFailure::NotFound {
            command: command.to_owned(),
            path: path.map(str::to_owned),
        };
        check("no-such-program", Some("/bin"), not_found("no-such-program", Some("/bin")));
        check("no-such-program", None, not_found("no-such-program", Some("/bin:/usr/bin")));
        check("", Some("/bin"), not_found("", Some("/bin")));
        check("/no/such/program", Some("/bin"), not_found("/no/such/program", None));
        check("/etc/passwd", None, StartFailure::NotExecutable { path: "/etc/passwd".to_owned() });
        check("passwd", Some("/etc"), StartFailure::NotExecutable { path: "/etc/passwd".to_owned() });
        check("/bin/", None, StartFailure::IsDirectory { path: "/bin/".to_owned() });
        check("bin", Some("/usr"), StartFailure::IsDirectory { path: "/usr/bin".to_owned() });
    }

    #[test]
    fn the_directory_is_checked_first() {
        for (dir, why) in [("/no/such/place", "No such file"), ("/etc/passwd", "Not a directory")] {
            let failed = resolve(OsStr::new("no-such-program"), None, Some(Path::new(dir)));
            let Err(StartFailure::WorkingDirectory { dir: named, cause }) = failed else { panic!("{failed:?}") };
            assert_eq!(named, dir);
            assert!(cause.to_string().contains(why), "{cause}");
        }
    }

    /// A PATH may be longer than a message between processes.
    #[test]
    fn a_long_path_is_cut() {
        let path = format!("/{}:", "x".repeat(1000)).repeat(300);
        let failed = resolve(OsStr::new("no-such-program"), Some(OsStr::new(&path)), None);
        let Err(StartFailure::NotFound { path: Some(searched), .. }) = failed else { panic!("{failed:?}") };
        assert_eq!(searched.len(), limits::FAILURE_TEXT);
    }
}
