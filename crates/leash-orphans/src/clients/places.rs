//! Finding and reading the configuration files that exist.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::{CLIENTS, Client, ConfigPlace, Note, Root};

/// The directories to search. The library reads neither the environment nor the home directory by itself; the caller
/// passes them.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The home directory.
    pub home: PathBuf,
    /// `XDG_CONFIG_HOME`, else `~/.config`.
    pub config: PathBuf,
    /// Projects to read: usually the working directory and its ancestors.
    pub projects: Vec<PathBuf>,
    /// The directory that stands for the root of the file system.
    pub system: PathBuf,
    /// The variables of [`Root::Variable`] that are set. They move a client's directory.
    pub variables: Vec<(String, PathBuf)>,
}

impl Roots {
    /// The directories of a home directory, without variables.
    pub fn of_home(home: &Path) -> Roots {
        Roots {
            home: home.to_owned(),
            config: home.join(".config"),
            projects: Vec::new(),
            system: PathBuf::from("/"),
            variables: Vec::new(),
        }
    }

    /// The variables that the table of clients uses.
    pub fn variables_wanted() -> Vec<&'static str> {
        let mut wanted: Vec<&str> = CLIENTS
            .iter()
            .flat_map(|client| client.places)
            .filter_map(|place| if let Root::Variable(name, _) = place.root { Some(name) } else { None })
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    fn directories(&self, root: Root) -> Vec<PathBuf> {
        match root {
            Root::Home => vec![self.home.clone()],
            Root::Config => vec![self.config.clone()],
            Root::System => vec![self.system.clone()],
            Root::Project => self.projects.clone(),
            Root::Variable(name, otherwise) => {
                let set = self.variables.iter().find(|(variable, _)| variable == name);
                vec![set.map_or_else(|| self.home.join(otherwise), |(_, path)| path.clone())]
            }
        }
    }
}

/// A configuration file with its content.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The client that reads it.
    pub client: &'static Client,
    /// The place in the client's table.
    pub place: &'static ConfigPlace,
    /// The path as the client names it; it may be a symbolic link.
    pub path: PathBuf,
    /// The content.
    pub text: String,
}

impl ConfigFile {
    /// The directory of its project, if it belongs to one.
    pub fn project(&self) -> Option<String> {
        let up = Path::new(self.place.path).components().count();
        let dir = self.path.ancestors().nth(up).filter(|_| self.place.root == Root::Project)?;
        dir.to_str().map(str::to_owned)
    }
}

/// The largest file that is read. Claude Code keeps histories beside its servers and reaches tens of megabytes; no
/// client writes a larger file.
const LARGEST: u64 = 256 << 20;

/// The largest file that is read in a directory that the user did not name. Real ones have a few kilobytes.
const LARGEST_FOUND: u64 = 1 << 20;

/// Reads every existing configuration file. A file that can't be read gives a note.
pub fn configs(roots: &Roots) -> (Vec<ConfigFile>, Vec<Note>) {
    let mut found: Vec<ConfigFile> = Vec::new();
    let mut notes = Vec::new();
    for client in CLIENTS {
        for place in client.places {
            for path in roots.directories(place.root).iter().flat_map(|dir| matches(dir, place.path)) {
                // A home directory may also be a project, or be listed twice.
                if found.iter().any(|file| file.path == path && file.client == client) {
                    continue;
                }
                match read(&path) {
                    Ok(Some(text)) => found.push(ConfigFile { client, place, path, text }),
                    Ok(None) => {}
                    Err(error) => notes.push(Note { path, server: None, text: format!("it can't be read: {error}") }),
                }
            }
        }
    }
    (found, notes)
}

/// Reads the configuration files of the project in a directory. A file that can't be read is left out.
pub fn project_configs(dir: &Path) -> Vec<ConfigFile> {
    project_configs_if(dir, |_| true)
}

/// The same for a directory that the user did not name: small files of this user or of root only, because others can
/// write to a directory such as /tmp.
pub fn found_project_configs(dir: &Path, uid: u32) -> Vec<ConfigFile> {
    project_configs_if(dir, |meta| [uid, 0].contains(&meta.uid()) && meta.len() <= LARGEST_FOUND)
}

fn project_configs_if(dir: &Path, is_wanted: impl Fn(&Metadata) -> bool) -> Vec<ConfigFile> {
    let places = CLIENTS.iter().flat_map(|client| client.places.iter().map(move |place| (client, place)));
    let of_projects = places.filter(|(_, place)| place.root == Root::Project);
    let read = |(client, place): (&'static Client, &'static ConfigPlace)| {
        let path = dir.join(place.path);
        Some(ConfigFile { client, place, text: read_if(&path, &is_wanted).ok().flatten()?, path })
    };
    of_projects.filter_map(read).collect()
}

/// The text of a file, or `None` if it does not exist.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    read_if(path, |_| true)
}

/// The same; `None` as well if the file is not wanted.
fn read_if(path: &Path, is_wanted: impl Fn(&Metadata) -> bool) -> io::Result<Option<String>> {
    // Opening a FIFO without a writer would block, so open without blocking.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if !is_wanted(&meta) {
        return Ok(None);
    }
    if meta.len() > LARGEST {
        return Err(io::Error::other("it is too large for a configuration"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map(Some).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// The files below `dir` that match `pattern`, in a stable order.
fn matches(dir: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![dir.to_owned()];
    for part in pattern.split('/') {
        if part != "*" {
            paths.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        paths = paths.iter().flat_map(|path| directories_in(path)).collect();
    }
    paths
}

fn directories_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use testkit::Scratch;

    fn put(dir: &Path, path: &str, bytes: &[u8]) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }

    #[test]
    fn configuration_files_of_clients_are_found() {
        let home = Scratch::new();
        put(&home, ".claude.json", b"{}");
        put(&home, ".config/Code/User/profiles/abc/mcp.json", b"{}");
        put(&home, "elsewhere/config.toml", b"");
        put(&home, "p/.mcp.json", b"{}");
        put(&home, ".claude/plugins/cache/market/tool/1.0/.mcp.json", b"{}");
        let roots = Roots {
            projects: vec![home.join("p"), home.join("p")],
            system: home.join("none"),
            variables: vec![("CODEX_HOME".to_owned(), home.join("elsewhere"))],
            ..Roots::of_home(&home)
        };
        let (found, notes) = configs(&roots);
        let shown: Vec<_> = found
            .iter()
            .map(|file| (file.client.id, file.path.strip_prefix(&*home).expect("below").to_str().expect("text")))
            .collect();
        assert_eq!(
            shown,
            [
                ("claude-code", ".claude.json"),
                ("claude-code", "p/.mcp.json"),
                ("claude-code", ".claude/plugins/cache/market/tool/1.0/.mcp.json"),
                ("vscode", ".config/Code/User/profiles/abc/mcp.json"),
                ("codex", "elsewhere/config.toml"),
            ]
        );
        assert_eq!(notes, []);
    }

    #[test]
    fn an_unreadable_file_gives_a_note() {
        let home = Scratch::new();
        put(&home, ".claude.json", b"\xff\xfe");
        fs::create_dir_all(home.join(".cursor/mcp.json")).expect("a directory");
        fs::create_dir_all(home.join(".gemini")).expect("a directory");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let (pipe, fifo) = (home.join(".gemini/settings.json"), rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).expect("a pipe");
        let (found, notes) = configs(&Roots { system: home.join("none"), ..Roots::of_home(&home) });
        assert!(found.is_empty());
        let texts: Vec<_> = notes.iter().map(|note| note.text.as_str()).collect();
        let no_file = "it can't be read: it is not a regular file";
        assert_eq!(texts, ["it can't be read: it is not UTF-8", no_file, no_file]);
    }

    /// Others can write to a directory such as /tmp.
    #[test]
    fn found_projects_have_small_files_of_their_user_or_root() {
        let dir = Scratch::new();
        put(&dir, ".mcp.json", b"{}");
        put(&dir, ".cursor/mcp.json", &vec![b' '; 2 << 20]);
        let me = rustix::process::geteuid();
        let found = |uid: u32| found_project_configs(&dir, uid).iter().map(|file| file.client.id).collect::<Vec<_>>();
        assert_eq!(found(me.as_raw()), ["claude-code"]);
        if me.is_root() {
            std::os::unix::fs::chown(dir.join(".mcp.json"), Some(4242), None).expect("root may do that");
            assert_eq!(found(4242), ["claude-code"]);
        }
        assert_eq!(found(4243), Vec::<&str>::new());
        assert_eq!(found_project_configs(&dir.join("none"), me.as_raw()).len(), 0);
    }

    #[test]
    fn the_table_names_its_variables() {
        assert_eq!(Roots::variables_wanted(), ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"]);
    }
}
