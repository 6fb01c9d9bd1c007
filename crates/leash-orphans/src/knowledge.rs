//! The knowledge that a scan starts with: the servers that clients declare, patterns of the clients' own programs,
//! known server packages, and the ledger's entries. The caller reads homes and ledgers; this module only holds the
//! result.

use std::fs;

pub mod identify;

use crate::clients::{self, Client};
use leash_model::identity::Identity;
use leash_model::receipt::Receipt;
use leash_model::record::Record;
use leash_tree::tree::spec;

/// Everything that is known before a scan.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// The stdio servers in the clients' configurations.
    pub declared: Vec<DeclaredCommand>,
    /// Patterns of the clients' own programs.
    pub hosts: Vec<HostPattern>,
    /// Packages that are MCP servers.
    pub packages: Vec<ServerPackage>,
    /// Environment variables that show which client a process comes from.
    pub marks: Vec<HostMark>,
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
}

/// The pattern of a client's program. A match of one of the two is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The client's name.
    pub client: String,
    /// Its short name, or the last part of its first argument.
    pub names: Vec<String>,
    /// A part of the path of the script that node or python runs.
    pub scripts: Vec<String>,
}

/// A package that is an MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPackage {
    /// Its name; `*` at the end matches any text.
    pub name: String,
    /// The programs it installs, where they are not named like the package's last part.
    pub programs: Vec<String>,
}

/// An environment variable that only one client sets for the processes that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMark {
    /// The variable.
    pub variable: String,
    /// The client's name.
    pub client: String,
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
    /// Supervisor, keeper, the server and its recorded members.
    pub processes: Vec<Identity>,
}

impl LeashedRun {
    /// Converts a record for the judge.
    pub fn of(record: &Record, attended: bool) -> LeashedRun {
        let own = record.supervisor.iter().chain(&record.keeper).chain(&record.leader);
        LeashedRun {
            session: record.session.clone(),
            name: record.name.clone(),
            attended,
            processes: own.chain(&record.members).copied().collect(),
        }
    }
}

/// Server packages and the programs they install. Only names of known servers, never a pattern with `mcp` alone:
/// clients, inspectors and proxies have it in their names too.
const PACKAGES: [(&str, &[&str]); 44] = [
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
];

impl Knowledge {
    /// The built-in knowledge.
    pub fn builtin() -> Knowledge {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let host = |client: &Client| HostPattern {
            client: client.name.to_owned(),
            names: owned(&[client.host.comms, client.host.programs].concat()),
            scripts: owned(client.host.scripts),
        };
        let package =
            |(name, programs): &(&str, &[&str])| ServerPackage { name: (*name).to_owned(), programs: owned(programs) };
        let further =
            clients::table::PACKAGES.iter().filter(|known| PACKAGES.iter().all(|(name, _)| *name != known.name));
        let further = further.map(|known| ServerPackage { name: known.name.to_owned(), programs: Vec::new() });
        let marks = clients::CLIENTS.iter().flat_map(|client| client.marks.iter().map(move |mark| (mark, client)));
        Knowledge {
            hosts: clients::CLIENTS.iter().map(host).collect(),
            packages: PACKAGES.iter().map(package).chain(further).collect(),
            marks: marks
                .map(|(mark, client)| HostMark { variable: mark.variable.to_owned(), client: client.name.to_owned() })
                .collect(),
            ..Knowledge::default()
        }
    }

    /// Adds the stdio servers that clients declare.
    pub fn declare(&mut self, servers: impl IntoIterator<Item = clients::DeclaredServer>) {
        for server in servers {
            if let clients::ServerLaunch::Stdio { command, args, .. } = server.launch {
                let command = std::iter::once(command).chain(args).collect();
                // The kernel reports directories without symbolic links.
                let real = |dir: String| {
                    fs::canonicalize(&dir).ok().and_then(|dir| dir.to_str().map(str::to_owned)).unwrap_or(dir)
                };
                self.declared.push(DeclaredCommand {
                    client: server.client.name.to_owned(),
                    name: server.name,
                    command,
                    cwd: server.cwd.map(real),
                    project: server.project.map(real),
                });
            }
        }
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
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.marks.iter().map(|mark| mark.variable.as_str()).chain([spec::MARK])
    }
}
