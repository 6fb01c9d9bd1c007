//! What is known beforehand: which servers the clients declare, what the clients' own programs look like, which packages are
//! servers, and what the ledger says. Filled by whoever may read homes and ledgers; this module only holds it.

use crate::ledger::record::Record;
use crate::tree::identity::Identity;
use crate::tree::spec;

/// Everything that is known beforehand.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// The stdio servers in the clients' configurations.
    pub declared: Vec<Declared>,
    /// What the clients' own programs look like.
    pub hosts: Vec<HostPattern>,
    /// Packages that are MCP servers.
    pub packages: Vec<Package>,
    /// Environment variables that tell which client a process comes from.
    pub marks: Vec<Mark>,
    /// The runs in the ledger.
    pub leashed: Vec<Leashed>,
    /// Sessions of leash that are over, by their receipts.
    pub ended: Vec<String>,
}

/// A stdio server in a client's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The client's name.
    pub client: String,
    /// The server's name there.
    pub name: String,
    /// The program and its arguments, as written there.
    pub command: Vec<String>,
}

/// What a client's program looks like. One of the two is enough.
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
pub struct Package {
    /// Its name; `*` at the end stands for anything.
    pub name: String,
    /// The programs it installs, where they are not named like the package's last part.
    pub programs: Vec<String>,
}

/// An environment variable that only one client sets for what it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The variable.
    pub variable: String,
    /// The client's name.
    pub client: String,
}

/// A run in the ledger.
#[derive(Clone, Debug)]
pub struct Leashed {
    /// Its session.
    pub session: String,
    /// The server's name.
    pub name: String,
    /// Somebody of leash looks after it.
    pub attended: bool,
    /// leash, its keeper, the server and its recorded members.
    pub processes: Vec<Identity>,
}

impl Leashed {
    /// A run as the judge needs it.
    pub fn of(record: &Record, attended: bool) -> Leashed {
        let own = record.supervisor.iter().chain(&record.keeper).chain(&record.leader);
        Leashed {
            session: record.session.clone(),
            name: record.name.clone(),
            attended,
            processes: own.chain(&record.members).copied().collect(),
        }
    }
}

/// Programs of clients: the short name, or the script that node runs. Names as the programs are installed; a name that other
/// programs use as well (`code` is fine, `goose` is not only a client) does no harm: a host is never ended without being asked
/// for, and it keeps its servers alive by holding their ends, not by its name.
const HOSTS: [(&str, &[&str], &[&str]); 12] = [
    // npm package @anthropic-ai/claude-code; the native build sets its name as well.
    ("Claude Code", &["claude"], &["/@anthropic-ai/claude-code/"]),
    ("Claude Desktop", &["claude-desktop", "Claude"], &[]),
    ("Cursor", &["cursor", "cursor-agent", "Cursor"], &["/cursor-agent/"]),
    ("VS Code", &["code", "Code", "codium"], &["/.vscode-server/"]),
    ("VS Code Insiders", &["code-insiders", "Code - Insiders"], &["/.vscode-server-insiders/"]),
    ("Windsurf", &["windsurf", "Windsurf"], &["/.windsurf-server/"]),
    ("Codex CLI", &["codex"], &["/@openai/codex/"]),
    ("Gemini CLI", &["gemini"], &["/@google/gemini-cli/"]),
    ("Copilot CLI", &["copilot"], &["/@github/copilot/"]),
    ("opencode", &["opencode"], &["/opencode-ai/"]),
    ("Zed", &["zed", "zed-editor"], &[]),
    ("goose", &["goose", "goosed"], &[]),
];

/// What the clients put into the environment of what they start.
const MARKS: [(&str, &str); 8] = [
    ("CLAUDECODE", "Claude Code"),
    ("CLAUDE_CODE_ENTRYPOINT", "Claude Code"),
    ("CLAUDE_CODE_SESSION_ID", "Claude Code"),
    ("CURSOR_TRACE_ID", "Cursor"),
    ("CURSOR_AGENT", "Cursor"),
    ("CODEX_SANDBOX", "Codex CLI"),
    ("GEMINI_CLI", "Gemini CLI"),
    ("GOOSE_TERMINAL", "goose"),
];

/// Server packages and the programs they install. Only names that are known to be servers, never a pattern with `mcp` alone:
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
    /// What leash knows without having read anything.
    pub fn builtin() -> Knowledge {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let host = |(client, names, scripts): &(&str, &[&str], &[&str])| HostPattern {
            client: (*client).to_owned(),
            names: owned(names),
            scripts: owned(scripts),
        };
        let package =
            |(name, programs): &(&str, &[&str])| Package { name: (*name).to_owned(), programs: owned(programs) };
        let mark =
            |(variable, client): &(&str, &str)| Mark { variable: (*variable).to_owned(), client: (*client).to_owned() };
        Knowledge {
            hosts: HOSTS.iter().map(host).collect(),
            packages: PACKAGES.iter().map(package).collect(),
            marks: MARKS.iter().map(mark).collect(),
            ..Knowledge::default()
        }
    }

    /// The environment variables that are read of a process; no other ever is.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.marks.iter().map(|mark| mark.variable.as_str()).chain([spec::MARK])
    }
}
