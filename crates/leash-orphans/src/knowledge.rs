//! The knowledge that a scan starts with: the servers that clients declare, known server packages, and the ledger's
//! entries. The caller reads homes and ledgers; this module only holds the result.

use std::collections::BTreeSet;
use std::fs;

pub mod identify;
pub mod projects;

use crate::clients::entry::{EntryKind, entries};
use crate::clients::text::Node;
use crate::clients::{CLIENTS, ConfigFile, ServerLaunch};
use leash_model::alive::{MemberKind, SessionMember};
use leash_model::identity::Identity;
use leash_model::launch::program_name;
use leash_model::owner::Owner;
use leash_model::receipt::Receipt;
use leash_model::record::IdleStop;
use leash_tree::tree::spec;

/// Everything that is known before a scan.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// The stdio servers in the clients' configurations.
    pub declared: Vec<DeclaredCommand>,
    /// The runs in the ledger.
    pub leashed: Vec<LeashedRun>,
    /// Sessions of leash that have ended, by their receipts.
    pub ended: Vec<String>,
    /// Processes that these sessions left running as configured, by session and PID.
    pub spared: Vec<(String, i32)>,
}

/// A stdio server in a client's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCommand {
    /// The client's name.
    pub client: String,
    /// The server's name there.
    pub name: String,
    /// The program and its arguments, as written there.
    pub command: Vec<String>,
    /// The directory in which the entry says to start it.
    pub cwd: Option<String>,
    /// The directory of the project that the configuration belongs to.
    pub project: Option<String>,
    /// True if it is certain only for processes in that directory: leash found the project by itself.
    pub inside_only: bool,
}

/// A run in the ledger.
#[derive(Clone, Debug)]
pub struct LeashedRun {
    /// Its session.
    pub session: String,
    /// The server's name.
    pub name: String,
    /// True if a supervisor or a keeper of leash still runs.
    pub attended: bool,
    /// Supervisor and keeper.
    pub attendants: Vec<Identity>,
    /// The server and its recorded members, the server first.
    pub processes: Vec<Identity>,
    /// What it lives for.
    pub owners: Vec<Owner>,
    /// Permission to end it while its owners live.
    pub idle_stop: Option<IdleStop>,
}

impl LeashedRun {
    /// Converts a member of a session for the judge.
    pub fn of(member: &SessionMember) -> LeashedRun {
        let record = match &member.kind {
            MemberKind::Tree { record, .. } => Some(record),
            MemberKind::Connection { .. } | MemberKind::Upstream { .. } => None,
        };
        let recorded = record.map(|record| record.leader.iter().chain(&record.members));
        LeashedRun {
            session: member.session.clone(),
            name: member.name.clone(),
            attended: !member.abandoned,
            attendants: member.attendants.clone(),
            processes: recorded.into_iter().flatten().copied().collect(),
            owners: member.owners.clone(),
            idle_stop: record.and_then(|record| record.idle_stop),
        }
    }
}

/// A package that is an MCP server: its name, where `*` at the end matches any text, and the programs it installs, where
/// they are not named like the package's last part.
type ServerPackage = (&'static str, &'static [&'static str]);

/// Known server packages, by the names that npx, uvx, node and python have in their command lines. Only names of known
/// servers, never a pattern with `mcp` alone: clients, inspectors and proxies have it in their names too.
const PACKAGES: [ServerPackage; 48] = [
    ("@modelcontextprotocol/server-everything", &["mcp-server-everything"]),
    ("@modelcontextprotocol/server-filesystem", &["mcp-server-filesystem"]),
    ("@modelcontextprotocol/server-memory", &["mcp-server-memory"]),
    ("@modelcontextprotocol/server-sequential-thinking", &["mcp-server-sequential-thinking"]),
    ("@modelcontextprotocol/server-*", &[]),
    ("@playwright/mcp", &["mcp-server-playwright", "playwright-mcp"]),
    ("@executeautomation/playwright-mcp-server", &["playwright-mcp-server"]),
    ("@upstash/context7-mcp", &["context7-mcp"]),
    ("@browsermcp/mcp", &["mcp-server-browsermcp"]),
    ("@notionhq/notion-mcp-server", &["notion-mcp-server"]),
    ("@supabase/mcp-server-supabase", &["mcp-server-supabase"]),
    ("@sentry/mcp-server", &[]),
    ("@azure-devops/mcp", &["mcp-server-azuredevops"]),
    ("@azure/mcp", &["azmcp"]),
    ("@cloudflare/mcp-server-cloudflare", &["mcp-server-cloudflare"]),
    ("@heroku/mcp-server", &["heroku-mcp-server"]),
    ("@wonderwhy-er/desktop-commander", &["desktop-commander"]),
    ("@stripe/mcp", &[]),
    ("@brave/brave-search-mcp-server", &["brave-search-mcp-server"]),
    ("@apify/actors-mcp-server", &["actors-mcp-server"]),
    ("chrome-devtools-mcp", &[]),
    ("firecrawl-mcp", &[]),
    ("tavily-mcp", &[]),
    ("exa-mcp-server", &[]),
    ("figma-developer-mcp", &[]),
    ("obsidian-mcp-server", &[]),
    ("mcp-searxng", &[]),
    ("mcp-remote", &[]),
    ("supergateway", &[]),
    ("kubernetes-mcp-server", &[]),
    ("mcp-server-kubernetes", &[]),
    ("mcp-server-git", &[]),
    ("mcp-server-fetch", &[]),
    ("mcp-server-time", &[]),
    ("mcp-server-sqlite", &[]),
    ("mcp-server-qdrant", &[]),
    ("mcp-server-docker", &[]),
    ("mcp-server-postgres", &[]),
    ("mcp-atlassian", &[]),
    ("mcp-proxy", &[]),
    ("basic-memory", &[]),
    ("awslabs.core-mcp-server", &[]),
    ("awslabs.aws-documentation-mcp-server", &[]),
    ("awslabs.aws-api-mcp-server", &[]),
    ("awslabs.*", &[]),
    ("task-master-ai", &[]),
    ("serena-mcp-server", &[]),
    ("blender-mcp", &[]),
];

impl Knowledge {
    /// Adds the stdio servers that a client's file declares. A file or an entry that leash does not understand declares
    /// none.
    pub fn declare(&mut self, file: &ConfigFile) {
        self.add(file, false);
    }

    /// The same for a project that the user did not name, but in which a process works. A file in such a directory may
    /// be someone else's idea of a server: it is certain only for processes that work in the project, too.
    pub fn declare_found(&mut self, file: &ConfigFile) {
        self.add(file, true);
    }

    fn add(&mut self, file: &ConfigFile, inside_only: bool) {
        // The kernel reports directories without symbolic links.
        let real =
            |dir: String| fs::canonicalize(&dir).ok().and_then(|dir| dir.to_str().map(str::to_owned)).unwrap_or(dir);
        for entry in entries(file).unwrap_or_default() {
            let EntryKind::Server { launch: ServerLaunch::Stdio { command, args, .. }, .. } = &entry.kind else {
                continue;
            };
            let project = entry.project().map(str::to_owned).or_else(|| file.project());
            let cwd = entry.node.get("cwd").and_then(Node::text).map(str::to_owned);
            self.declared.push(DeclaredCommand {
                client: file.client.name.to_owned(),
                name: entry.name().to_owned(),
                command: std::iter::once(command).chain(args).cloned().collect(),
                cwd: cwd.map(real),
                project: project.map(real),
                inside_only,
            });
        }
    }

    /// The clients that start a server with leash, each once.
    pub fn adopted_clients(&self) -> BTreeSet<&str> {
        let is_leash = |command: &[String]| matches!(command, [program, run, ..] if program_name(program) == "leash" && run == "run");
        let adopted = self.declared.iter().filter(|declared| is_leash(&declared.command));
        adopted.map(|declared| declared.client.as_str()).collect()
    }

    /// Adds sessions that have ended.
    pub fn note_ended<'a>(&mut self, receipts: impl IntoIterator<Item = &'a Receipt>) {
        for receipt in receipts {
            let spared = receipt.trees().flat_map(|tree| &tree.spared);
            self.spared.extend(spared.map(|left| (receipt.session.clone(), left.pid)));
            self.ended.push(receipt.session.clone());
        }
    }

    /// The environment variables that declared commands name, and PATH, in which their programs are looked up.
    pub fn declared_variables(&self) -> impl Iterator<Item = &str> {
        let words = self.declared.iter().flat_map(|declared| declared.command.iter().chain(&declared.cwd));
        words.flat_map(|word| identify::named_variables(word)).chain(["PATH"])
    }

    /// The environment variables that are read for every relevant process. For a process that may be a declared
    /// server, [`Knowledge::declared_variables`] are read too. No other variable is ever read.
    pub fn variables() -> impl Iterator<Item = &'static str> {
        CLIENTS.iter().flat_map(|client| client.marks).copied().chain([spec::MARK])
    }
}
