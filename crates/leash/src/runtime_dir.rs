//! Finds the runtime directory: one of our own that all commands of a user agree on, whatever their environment.
//!
//! Any user can create `/tmp/leash-UID` first. That must not keep leash from starting, so there is a fallback: a private
//! directory with a random name. A file in the state directory tells later commands its name.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use leash_tree::platform::private_file;
use rustix::fs::Access;

/// The file in the state directory that contains the path of the private runtime directory.
const POINTER: &str = "runtime-directory";

/// The number of attempts to read a file that another start of leash is replacing.
const TRIES: usize = 3;

/// The directory that logind makes for a user with a session, the usual value of XDG_RUNTIME_DIR.
pub(crate) fn of_session(me: u32) -> PathBuf {
    PathBuf::from(format!("/run/user/{me}"))
}

/// The runtime directories that need no variable, the best first. For root it is `/run/leash`: services of root run
/// without a session, and logind removes the directory of a session at its end.
pub(crate) fn candidates(me: u32) -> Vec<PathBuf> {
    let (session, temporary) = (of_session(me).join("leash"), PathBuf::from(format!("/tmp/leash-{me}")));
    if me == 0 { vec![PathBuf::from("/run/leash"), temporary, session] } else { vec![session, temporary] }
}

/// The first candidate that can be used: every command of the user finds it.
pub(crate) fn common(me: u32) -> Option<PathBuf> {
    candidates(me).into_iter().find(|dir| is_usable(dir, me))
}

/// The runtime directory of user `me` when no variable names another. `state` is the directory with the pointer to the
/// private one. If all fails, it returns the first candidate, and its use will report the error.
pub(crate) fn find(me: u32, state: Option<&Path>) -> PathBuf {
    let is_temporary = |dir: &PathBuf| dir.starts_with("/tmp");
    let common = common(me);
    let best = common.clone().filter(|dir| !is_temporary(dir));
    // An existing private directory stays in use, because runs may be recorded in it.
    let found = best.or_else(|| private(state?, me)).or(common);
    let found = found.or_else(|| make_private(state?, me).ok());
    found.unwrap_or_else(|| candidates(me).into_iter().next().unwrap_or_default())
}

/// True if a directory is ours, or can be created where no other user can replace it.
fn is_usable(dir: &Path, me: u32) -> bool {
    match fs::symlink_metadata(dir) {
        Ok(meta) => meta.is_dir() && meta.uid() == me,
        Err(error) if error.kind() == io::ErrorKind::NotFound => dir.parent().is_some_and(|parent| {
            let safe = |meta: &fs::Metadata| meta.is_dir() && (meta.uid() == me || meta.mode() & 0o1000 != 0);
            fs::metadata(parent).is_ok_and(|meta| safe(&meta))
                && rustix::fs::access(parent, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        }),
        Err(_) => false,
    }
}

/// The private directory that the state directory names, if it exists and no other user can read it.
pub(crate) fn private(state: &Path, me: u32) -> Option<PathBuf> {
    let file = private_file::read(&state.join(POINTER)).ok()?;
    if file.metadata().ok()?.uid() != me {
        return None;
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    let dir = PathBuf::from(text.trim_end());
    // Accept only paths that `make_private` writes: the file must not lead to another directory of this user.
    let stem = format!("leash-{me}-");
    let fits = dir.parent() == Some(Path::new("/tmp")) && dir.file_name()?.to_str()?.starts_with(&stem);
    let private = |meta: fs::Metadata| meta.is_dir() && meta.uid() == me && meta.mode() & 0o7777 == 0o700;
    (fits && fs::symlink_metadata(&dir).is_ok_and(private)).then_some(dir)
}

/// Creates a private directory and records it in the state directory. If two commands start at the same time, one
/// creates it and both use it.
fn make_private(state: &Path, me: u32) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    let name = format!("leash-{me}-{}", leash_model::id::random());
    let dir = Path::new("/tmp").join(&name);
    DirBuilder::new().mode(0o700).create(&dir)?;
    let draft = state.join(format!(".{name}"));
    let settled = write_new(&draft, &dir).and_then(|()| settle(&draft, state, &dir, me));
    let _ = fs::remove_file(&draft);
    if settled.as_ref().ok() != Some(&dir) {
        let _ = fs::remove_dir(&dir);
    }
    settled
}

fn write_new(draft: &Path, dir: &Path) -> io::Result<()> {
    let mut file = private_file::open(File::options().write(true).create_new(true), draft)?;
    writeln!(file, "{}", dir.display())
}

/// Renames the draft, unless another start was faster: then that one's directory is used.
fn settle(draft: &Path, state: &Path, dir: &Path, me: u32) -> io::Result<PathBuf> {
    let pointer = state.join(POINTER);
    for _ in 0..TRIES {
        match fs::hard_link(draft, &pointer) {
            Ok(()) => return Ok(dir.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if let Some(other) = private(state, me) {
            return Ok(other);
        }
        // It names a directory that no longer exists.
        fs::remove_file(&pointer)?;
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_tried_in_order() {
        let names = |me| candidates(me).iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>();
        assert_eq!(names(0), ["/run/leash", "/tmp/leash-0", "/run/user/0/leash"]);
        assert_eq!(names(1000), ["/run/user/1000/leash", "/tmp/leash-1000"]);
    }
}
