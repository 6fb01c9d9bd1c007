//! Other gateways, measured next to leash. They are installed by the bench alone, in pinned versions, into
//! `target/bench-deps`; one that cannot be installed is shown as missing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::scene::Scene;

use super::gateway::Behind;
use crate::setup;
use crate::step::{Failure, Outcome, Step, Workspace, path_with, say};

/// Without its default features it is the same proxy, and builds in a third of the time.
const CRATE: &str = "mcp-proxy@0.6.0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Rust, many threads.
    Crate,
    Supergateway,
    NpmMcpProxy,
    PypiMcpProxy,
}

impl Peer {
    pub(super) const ALL: [Self; 4] = [Self::Crate, Self::Supergateway, Self::NpmMcpProxy, Self::PypiMcpProxy];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Crate => "crate mcp-proxy 0.6.0",
            Self::Supergateway => "npm supergateway 4.0.0",
            Self::NpmMcpProxy => "npm mcp-proxy 6.7.19",
            Self::PypiMcpProxy => "PyPI mcp-proxy 0.13.0",
        }
    }

    /// Whether it can stand in front of this.
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

/// How a peer is started.
pub(super) struct Order<'a> {
    pub(super) scene: &'a Scene,
    /// Where peers are installed.
    pub(super) deps: &'a Path,
    pub(super) port: u16,
    /// The server on stdio.
    pub(super) server: &'a [OsString],
    /// The server on HTTP, if it shall be that one.
    pub(super) url: Option<&'a str>,
}

impl Order<'_> {
    pub(super) fn command(&self, peer: Peer) -> Outcome<Command> {
        let program = peer.program(self.deps);
        if !program.exists() {
            return Err(Failure::new("not installed"));
        }
        let mut command = self.scene.command(program);
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

/// Where peers are installed.
pub(super) fn dir(workspace: &Workspace) -> PathBuf {
    workspace.target.join("bench-deps")
}

/// Installs what can be installed. What cannot is missing in the report.
pub(crate) fn install(workspace: &Workspace) {
    let deps = dir(workspace);
    let recipes = workspace.root.join("xtask/peers");
    let parts: [(&str, &dyn Fn() -> Outcome); 3] = [
        ("npm", &|| setup::npm(&deps.join("npm"), &recipes, &path(&deps))),
        ("PyPI", &|| setup::python(&deps.join("py"), &recipes.join("requirements.txt"))),
        ("crates.io", &|| {
            let dir = deps.join("cargo");
            let words = ["install", "--locked", "--no-default-features", CRATE, "--root"];
            setup::once(&dir, CRATE, || Step::cargo().args(words).args([&dir]).run())
        }),
    ];
    for (from, install) in parts {
        if let Err(why) = install() {
            say("Missing", format!("peers from {from}: {why}"));
        }
    }
}

/// The node of the machine, or the one that `cargo xtask setup` installed for want of it.
fn path(deps: &Path) -> OsString {
    path_with(&[deps.with_file_name("deps").join("node/bin")])
}
