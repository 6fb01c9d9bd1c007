//! `leash adopt` and `leash release`, as typed.

use std::path::PathBuf;

use clap::Args;

use super::values;

/// Put the servers of MCP clients on the leash, in their own configurations
///
/// Finds the configurations of Claude Code, Claude Desktop, Cursor, VS Code, Windsurf, Codex CLI, Gemini CLI, Copilot
/// CLI, opencode, Zed, goose and Cline, and shows what would change: stdio servers get `leash run` in front of their
/// command. Comments, order and layout stay. HTTP servers become `leash connect` where asked for. `leash release`
/// undoes it.
///
/// What is shown hides secrets (***); the files are written complete. Nothing is written without --yes or a yes at the
/// terminal. The exit code is 1 when a file could not be read or changed, and 2 when a client, a server, a directory or a
/// program that was named is not there.
#[derive(Debug, Args)]
pub(crate) struct Adopt {
    /// Only these clients, such as claude-code, cursor or codex [default: all that are found]
    #[arg(value_name = "CLIENT")]
    pub(crate) clients: Vec<String>,
    /// Only the server of this name, also if it is an HTTP server; may be repeated
    #[arg(long = "server", value_name = "NAME")]
    pub(crate) servers: Vec<String>,
    /// HTTP servers as well
    ///
    /// A client that signs in to an HTTP server by itself (OAuth) can't do so with leash in between.
    #[arg(long)]
    pub(crate) all: bool,
    /// Also the files of the project in this directory, which others may share; may be repeated
    #[arg(long = "project", value_name = "DIR")]
    pub(crate) projects: Vec<PathBuf>,
    /// The command with which clients start leash [default: its path; its name in the files of a project]
    #[arg(long, value_name = "PATH", value_parser = values::leash)]
    pub(crate) leash: Option<String>,
    /// Write the changes without asking
    #[arg(long, conflicts_with = "diff")]
    pub(crate) yes: bool,
    /// Only show the changes, and ask nothing
    #[arg(long)]
    pub(crate) diff: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Undo what `leash adopt` did
///
/// If a file was not changed since, leash restores it byte by byte. Otherwise leash restores each entry that it
/// changed and keeps everything else; it reports the entries that it can't restore safely and does not touch them.
///
/// What is shown hides secrets (***). Nothing is written without --yes or a yes at the terminal. The exit code is 1 when
/// something could not be undone, and 2 when a server that was named is not adopted.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Only these clients [default: all]
    #[arg(value_name = "CLIENT")]
    pub(crate) clients: Vec<String>,
    /// Only the server of this name; may be repeated
    #[arg(long = "server", value_name = "NAME")]
    pub(crate) servers: Vec<String>,
    /// Write the changes without asking
    #[arg(long, conflicts_with = "diff")]
    pub(crate) yes: bool,
    /// Only show the changes, and ask nothing
    #[arg(long)]
    pub(crate) diff: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
