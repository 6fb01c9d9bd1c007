//! The name of a server that was given none.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use leash_model::launch::server_name_in;
use rustix::fs::OFlags;

/// The largest `package.json` that is read. Real ones have a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// The name of the server that a command starts in a directory, or in that of this process: its package, script, module,
/// image or program. `None` if there is no command.
pub fn default_name(command: &[OsString], directory: Option<&Path>) -> Option<String> {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let here = std::env::current_dir().unwrap_or_default();
    server_name_in(&words, Some(&directory.map_or_else(|| here.clone(), |directory| here.join(directory))), &package_in)
}

/// The name in the `package.json` of a directory. A file without a name or that can't be read has none.
fn package_in(directory: &Path) -> Option<String> {
    // Opening a FIFO without a writer would block, so open without blocking.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let path = directory.join("package.json");
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    let package: serde_json::Value = serde_json::from_str(&text).ok()?;
    package["name"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use testkit::Scratch;

    #[test]
    fn a_package_json_near_the_script_names_the_server() {
        let dir = Scratch::new();
        let project = dir.join("project");
        fs::create_dir_all(project.join("dist")).unwrap();
        let name = || default_name(&["node".into(), "dist/index.js".into()], Some(&project)).unwrap();
        assert_eq!(name(), "project");
        fs::write(project.join("dist/package.json"), r#"{"type": "module"}"#).unwrap();
        for (text, expected) in [("", "project"), ("{}", "project"), (r#"{"name": "@acme/weather"}"#, "weather")] {
            fs::write(project.join("package.json"), text).unwrap();
            assert_eq!(name(), expected, "{text}");
        }
        fs::remove_file(project.join("package.json")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, project.join("package.json"), fifo, mode, 0).unwrap();
        assert_eq!(name(), "project");
    }
}
