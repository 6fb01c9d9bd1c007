//! Files in leash's own directories. A process of the same user can replace them with anything: a pipe that blocks the
//! process that opens it, or a link to another file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a regular file that belongs to us (for root: to any user), and never waits. Only we can read files that it
/// makes.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let irregular = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    let file =
        options.mode(0o600).custom_flags(flags).open(path).map_err(|error| match Errno::from_io_error(&error) {
            // A link, or a pipe that no process reads.
            Some(Errno::LOOP | Errno::NXIO) => irregular(),
            _ => error,
        })?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(irregular());
    }
    let me = rustix::process::geteuid();
    if meta.uid() != me.as_raw() && !me.is_root() {
        let text = format!("it belongs to uid {}; expected our own, {}", meta.uid(), me.as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(file)
}

/// Opens a file to read it; see [`open`].
pub fn read(path: &Path) -> io::Result<File> {
    open(File::options().read(true), path)
}

/// Makes a new file and removes an old one of that name; see [`open`].
pub(crate) fn replace(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    open(File::options().write(true).create_new(true), path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use testkit::Scratch;

    /// Opening one of these neither waits nor succeeds.
    #[test]
    fn only_regular_files_are_opened() {
        let dir = Scratch::new();
        let (pipe, link, file) = (dir.join("pipe"), dir.join("link"), dir.join("file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&pipe, &link, &dir.to_path_buf()] {
            assert_eq!(read(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        for path in [&pipe, &link] {
            let write = open(File::options().create(true).append(true), path);
            assert_eq!(write.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert!(read(&file).is_ok());
        assert_eq!(read(&dir.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        replace(&pipe).unwrap();
        assert!(read(&pipe).is_ok());
    }
}
