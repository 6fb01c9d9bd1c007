//! Other gateways, measured next to leash. Only the bench installs them, in pinned versions, into `target/bench-deps`.
//! One that cannot be installed is shown as missing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::scene::Scene;

use super::gateway::Behind;
use crate::setup;
use crate::step::{Failure, Outcome, Step, Workspace, path_with, say};

/// The pinned versions: they are defined nowhere else.
const NPM: &str = include_str!("../../../peers/package.json");
const PYPI: &str = include_str!("../../../peers/requirements.txt");
const CRATES: &str = include_str!("../../../peers/crates.txt");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Rust, many threads.
    Crate,
    Supergateway,
    NpmMcpProxy,
    PypiMcpProxy,
}

impl Peer {
    const ALL: [Self; 4] = [Self::Crate, Self::Supergateway, Self::NpmMcpProxy, Self::PypiMcpProxy];

    /// The peers that are measured. The crate only on request: it takes minutes to compile.
    pub(super) fn chosen(all: bool) -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(move |peer| all || *peer != Self::Crate)
    }

    /// The name with the measured version.
    pub(super) fn name(self) -> String {
        format!("{} {}", self.origin(), self.version().unwrap_or("of no version"))
    }

    fn origin(self) -> &'static str {
        match self {
            Self::Crate => "crate mcp-proxy",
            Self::Supergateway => "npm supergateway",
            Self::NpmMcpProxy => "npm mcp-proxy",
            Self::PypiMcpProxy => "PyPI mcp-proxy",
        }
    }

    /// The pinned version.
    fn version(self) -> Option<&'static str> {
        let after = |text: &'static str, start: &str, end: char| {
            text.lines().find_map(|line| line.trim().strip_prefix(start)?.split(end).next())
        };
        match self {
            Self::Crate => after(CRATES, "mcp-proxy@", ' '),
            Self::Supergateway => after(NPM, "\"supergateway\": \"", '"'),
            Self::NpmMcpProxy => after(NPM, "\"mcp-proxy\": \"", '"'),
            Self::PypiMcpProxy => after(PYPI, "mcp-proxy==", ' '),
        }
    }

    /// The installed version, according to the files of its package manager.
    fn installed(self, deps: &Path) -> Option<String> {
        let npm = |name: &str| {
            let text = fs::read_to_string(deps.join("npm/node_modules").join(name).join("package.json")).ok()?;
            let package: serde_json::Value = serde_json::from_str(&text).ok()?;
            package["version"].as_str().map(str::to_owned)
        };
        match self {
            Self::Crate => {
                let text = fs::read_to_string(deps.join("cargo/.crates.toml")).ok()?;
                let line = text.lines().find_map(|line| line.strip_prefix("\"mcp-proxy "));
                line?.split(' ').next().map(str::to_owned)
            }
            Self::Supergateway => npm("supergateway"),
            Self::NpmMcpProxy => npm("mcp-proxy"),
            Self::PypiMcpProxy => {
                let libraries = fs::read_dir(deps.join("py/lib")).ok()?;
                let packages =
                    libraries.filter_map(|python| fs::read_dir(python.ok()?.path().join("site-packages")).ok());
                let names = packages.flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
                let version =
                    |name: String| Some(name.strip_prefix("mcp_proxy-")?.strip_suffix(".dist-info")?.to_owned());
                names.filter_map(version).next()
            }
        }
    }

    /// Checks that the installed version is the pinned one.
    fn check(self, deps: &Path) -> Outcome {
        match (self.installed(deps), self.version()) {
            (Some(found), Some(wanted)) if found == wanted && self.program(deps).exists() => Ok(()),
            (Some(found), Some(wanted)) if found != wanted => Err(Failure::new(format!("{found} is installed"))),
            _ => Err(Failure::new("not installed")),
        }
    }

    /// True if it can be placed in front of this kind of server.
    pub(super) fn can(self, behind: Behind) -> bool {
        match behind {
            Behind::Stdio => true,
            Behind::Http => self == Self::Crate,
        }
    }

    /// The path of its endpoint.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Crate => "/",
            Self::Supergateway | Self::NpmMcpProxy | Self::PypiMcpProxy => "/mcp",
        }
    }

    /// Its name for the tool `echo`.
    pub(super) fn tool(self) -> &'static str {
        match self {
            Self::Crate => "bench/echo",
            Self::Supergateway | Self::NpmMcpProxy | Self::PypiMcpProxy => "echo",
        }
    }

    fn program(self, deps: &Path) -> PathBuf {
        deps.join(match self {
            Self::Crate => "cargo/bin/mcp-proxy",
            Self::Supergateway => "npm/node_modules/.bin/supergateway",
            Self::NpmMcpProxy => "npm/node_modules/.bin/mcp-proxy",
            Self::PypiMcpProxy => "py/bin/mcp-proxy",
        })
    }
}

/// The parameters for starting a peer.
pub(super) struct Order<'a> {
    pub(super) scene: &'a Scene,
    /// The directory of installed peers.
    pub(super) deps: &'a Path,
    pub(super) port: u16,
    /// The server on stdio.
    pub(super) server: &'a [OsString],
    /// The URL of the server on HTTP, if that one is used.
    pub(super) url: Option<&'a str>,
}

impl Order<'_> {
    pub(super) fn command(&self, peer: Peer) -> Outcome<Command> {
        peer.check(self.deps)?;
        let mut command = self.scene.command(peer.program(self.deps));
        command.env("PATH", path(self.deps));
        let port = self.port.to_string();
        match peer {
            Peer::Crate => {
                command.arg("--config").arg(self.config()?).env("RUST_LOG", "error");
            }
            Peer::Supergateway => {
                command.args(["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]);
                command.args(["--port", &port]).arg("--stdio").arg(self.server.join(" ".as_ref()));
            }
            Peer::NpmMcpProxy => {
                command.args(["--host", "127.0.0.1", "--server", "stream", "--port", &port, "--"]).args(self.server);
            }
            Peer::PypiMcpProxy => {
                command.args(["--log-level", "ERROR", "--port", &port, "--"]).args(self.server);
            }
        }
        Ok(command)
    }

    fn config(&self) -> Outcome<PathBuf> {
        let file = self.scene.dir().join("mcp-proxy.toml");
        let backend = match (self.url, self.server) {
            (Some(url), _) => format!("transport = \"http\"\nurl = {url:?}\n"),
            (None, [program, words @ ..]) => {
                format!("transport = \"stdio\"\ncommand = {program:?}\nargs = {words:?}\n")
            }
            (None, []) => return Err(Failure::new("there is no server")),
        };
        let text = format!(
            "[proxy]\nname = \"bench\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {}\n[[backends]]\nname = \"bench\"\n{backend}",
            self.port
        );
        fs::write(&file, text).map_err(Failure::at(&file))?;
        Ok(file)
    }
}

/// The directory of installed peers.
pub(super) fn dir(workspace: &Workspace) -> PathBuf {
    workspace.target.join("bench-deps")
}

/// The installed version of each peer that is measured.
pub(crate) fn installed(workspace: &Workspace, all: bool) -> Vec<(&'static str, String)> {
    let deps = dir(workspace);
    let found = |peer: Peer| match peer.check(&deps) {
        Ok(()) => peer.version().unwrap_or_default().to_owned(),
        Err(why) => why.to_string(),
    };
    Peer::chosen(all).map(|peer| (peer.origin(), found(peer))).collect()
}

/// Installs the peers as far as possible. The report shows the others as missing.
pub(crate) fn install(workspace: &Workspace, all: bool) {
    let deps = dir(workspace);
    let recipes = workspace.root.join("xtask/peers");
    let try_to = |from: &str, installed: Outcome| {
        if let Err(why) = installed {
            say("Missing", format!("peers from {from}: {why}"));
        }
    };
    try_to("npm", setup::npm(&deps.join("npm"), &recipes, &path(&deps)));
    try_to("PyPI", setup::python(&deps.join("py"), &recipes.join("requirements.txt")));
    if all {
        let dir = deps.join("cargo");
        // Without its default features it is the same proxy, and builds in a third of the time.
        let words = ["install", "--locked", "--no-default-features", CRATES.trim(), "--root"];
        let install = || Step::cargo().args(words).args([&dir]).run();
        try_to("crates.io", setup::once(&dir, CRATES, install));
    }
}

/// PATH with the node of the machine, or the one that `cargo xtask setup` installed because the machine has none.
fn path(deps: &Path) -> OsString {
    path_with(&[deps.with_file_name("deps").join("node/bin")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_one_version() {
        for peer in Peer::ALL {
            let version = peer.version().unwrap_or_default();
            assert!(
                version.split('.').count() == 3 && version.starts_with(|first: char| first.is_ascii_digit()),
                "{peer:?}"
            );
            assert!(peer.name().ends_with(version), "{}", peer.name());
        }
        let lock = include_str!("../../../peers/package-lock.json");
        for (peer, name) in [(Peer::Supergateway, "supergateway"), (Peer::NpmMcpProxy, "mcp-proxy")] {
            let entry =
                format!("\"node_modules/{name}\": {{\n      \"version\": \"{}\"", peer.version().unwrap_or_default());
            assert!(lock.contains(&entry), "{entry}");
        }
    }

    #[test]
    fn compiled_peer_is_only_measured_on_request() {
        assert!(Peer::chosen(true).any(|peer| peer == Peer::Crate));
        assert!(Peer::chosen(false).all(|peer| peer != Peer::Crate) && Peer::chosen(false).count() == 3);
    }

    #[test]
    fn other_version_is_refused() {
        let deps = std::env::temp_dir().join(testkit::unique("leash-peers"));
        let place = |peer: Peer, version: &str| {
            let (path, text) = match peer {
                Peer::Crate => (
                    "cargo/.crates.toml".into(),
                    format!("[v1]\n\"mcp-proxy {version} (registry+x)\" = [\"mcp-proxy\"]"),
                ),
                Peer::Supergateway => {
                    ("npm/node_modules/supergateway/package.json".into(), format!("{{\"version\":\"{version}\"}}"))
                }
                Peer::NpmMcpProxy => {
                    ("npm/node_modules/mcp-proxy/package.json".into(), format!("{{\"version\":\"{version}\"}}"))
                }
                Peer::PypiMcpProxy => {
                    (format!("py/lib/python3.11/site-packages/mcp_proxy-{version}.dist-info/METADATA"), String::new())
                }
            };
            for (file, text) in [(deps.join(path), text), (peer.program(&deps), String::new())] {
                fs::create_dir_all(file.parent().expect("it is in a directory")).expect("the directory is ours");
                fs::write(file, text).expect("the directory is ours");
            }
        };
        for peer in Peer::ALL {
            let told = |outcome: Outcome| outcome.err().map(|why| why.to_string());
            assert_eq!(told(peer.check(&deps)).as_deref(), Some("not installed"), "{peer:?}");
            place(peer, "0.0.1");
            assert_eq!(told(peer.check(&deps)).as_deref(), Some("0.0.1 is installed"), "{peer:?}");
            fs::remove_dir_all(&deps).expect("the directory is ours");
            place(peer, peer.version().unwrap_or_default());
            assert_eq!(told(peer.check(&deps)), None, "{peer:?}");
            fs::remove_dir_all(&deps).expect("the directory is ours");
        }
    }
}
