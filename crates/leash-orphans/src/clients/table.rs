//! The table of clients. Every entry names its source; no entry is guessed from a name.

use super::text::Format::{self, Json, Jsonc, Toml, Yaml};
use super::{Client, ConfigPlace, Mark, MarkMeaning, Package, PackageRegistry, ProgramPattern, Root, Scope, Shape};

/// `{"mcpServers": {NAME: ...}}`, the map that most clients have.
const MCP_SERVERS: &[&[&str]] = &[&["mcpServers"]];
/// The key that VS Code uses for it.
const SERVERS: &[&[&str]] = &[&["servers"]];
/// VS Code before `mcp.json`, and workspaces that still keep servers in their settings.
const SETTINGS: &[&[&str]] = &[&["mcp", "servers"], &["mcp.servers"]];

/// The entry format of Claude Desktop, from which the other formats derive.
const PLAIN: Shape = Shape {
    command: "command",
    args: "args",
    env: "env",
    urls: &["url"],
    headers: "headers",
    stdio_type: Some("stdio"),
    env_expands: true,
};

const fn place(scope: Scope, root: Root, path: &'static str) -> ConfigPlace {
    ConfigPlace { scope, root, path, format: Json, maps: MCP_SERVERS, ours_to_edit: true }
}

/// The same place, in another format and with other maps.
const fn written(format: Format, maps: &'static [&'static [&'static str]], place: ConfigPlace) -> ConfigPlace {
    ConfigPlace { format, maps, ..place }
}

/// All known clients.
pub const CLIENTS: &[Client] = &[
    CLAUDE_CODE,
    CLAUDE_DESKTOP,
    CURSOR,
    VS_CODE,
    VS_CODE_INSIDERS,
    WINDSURF,
    CODEX,
    GEMINI,
    COPILOT,
    OPENCODE,
    ZED,
    GOOSE,
    CLINE,
];

// code.claude.com/docs/en/mcp: scopes and files; `${VAR}` and `${VAR:-default}` in command, args, env, url and headers.
// .../plugins-reference: `.mcp.json` of a plugin, or `mcpServers` in its plugin.json; installed ones are in
// `plugins/cache/MARKETPLACE/PLUGIN/VERSION`. CLAUDE_CONFIG_DIR moves `.claude.json` as well.
// Marks: .../env-vars, and the changelog of 2.1.154: since then stdio servers get CLAUDECODE and
// CLAUDE_CODE_SESSION_ID (claude-code#63305).
const CLAUDE_CODE: Client = Client {
    id: "claude-code",
    name: "Claude Code",
    places: &[
        ConfigPlace {
            maps: &[&["mcpServers"], &["projects", "*", "mcpServers"]],
            ..place(Scope::User, Root::Variable("CLAUDE_CONFIG_DIR", ""), ".claude.json")
        },
        place(Scope::Project, Root::Project, ".mcp.json"),
        ConfigPlace {
            ours_to_edit: false,
            // An older format has the servers at the top level, without `mcpServers`.
            maps: &[&["mcpServers"], &[]],
            ..place(Scope::Plugin, Root::Variable("CLAUDE_CONFIG_DIR", ".claude"), "plugins/cache/*/*/*/.mcp.json")
        },
        ConfigPlace {
            ours_to_edit: false,
            ..place(
                Scope::Plugin,
                Root::Variable("CLAUDE_CONFIG_DIR", ".claude"),
                "plugins/cache/*/*/*/.claude-plugin/plugin.json",
            )
        },
        ConfigPlace { ours_to_edit: false, ..place(Scope::System, Root::System, "etc/claude-code/managed-mcp.json") },
    ],
    shape: PLAIN,
    host: ProgramPattern { comms: &["claude"], programs: &["claude"], scripts: &["/@anthropic-ai/claude-code/"] },
    marks: &[
        Mark { variable: "CLAUDE_CODE_SESSION_ID", meaning: MarkMeaning::Session },
        Mark { variable: "CLAUDECODE", meaning: MarkMeaning::Presence },
        Mark { variable: "CLAUDE_CODE_ENTRYPOINT", meaning: MarkMeaning::Presence },
        Mark { variable: "CLAUDE_PROJECT_DIR", meaning: MarkMeaning::Presence },
    ],
};

// modelcontextprotocol.io/docs/develop/connect-local-servers; the Linux builds keep Electron's `~/.config/Claude`.
// It expands no variables, and its file has no HTTP servers.
const CLAUDE_DESKTOP: Client = Client {
    id: "claude-desktop",
    name: "Claude Desktop",
    places: &[
        place(Scope::User, Root::Config, "Claude/claude_desktop_config.json"),
        place(Scope::User, Root::Home, "Library/Application Support/Claude/claude_desktop_config.json"),
    ],
    shape: Shape { stdio_type: None, env_expands: false, ..PLAIN },
    host: ProgramPattern { comms: &["claude-desktop"], programs: &["claude-desktop"], scripts: &["/claude-desktop/"] },
    marks: &[],
};

// cursor.com/docs/context/mcp: both files, and `${env:NAME}` in command, args, env, url and headers.
const CURSOR: Client = Client {
    id: "cursor",
    name: "Cursor",
    places: &[
        ConfigPlace { format: Jsonc, ..place(Scope::User, Root::Home, ".cursor/mcp.json") },
        ConfigPlace { format: Jsonc, ..place(Scope::Project, Root::Project, ".cursor/mcp.json") },
    ],
    shape: PLAIN,
    host: ProgramPattern {
        comms: &["cursor", "Cursor", "cursor-agent"],
        programs: &["cursor", "cursor-agent"],
        scripts: &["/cursor-agent/"],
    },
    marks: &[
        Mark { variable: "CURSOR_TRACE_ID", meaning: MarkMeaning::Presence },
        Mark { variable: "CURSOR_AGENT", meaning: MarkMeaning::Presence },
    ],
};

// code.visualstudio.com/docs/copilot/customization/mcp-servers: `mcp.json` of the profile and of the workspace,
// `servers`, `inputs`, `${input:id}` and `${env:NAME}`. Profiles are in `User/profiles/ID`. VSCODE_PID and
// VSCODE_IPC_HOOK are set by the main process.
const VS_CODE: Client = Client {
    id: "vscode",
    name: "VS Code",
    places: &[
        written(Jsonc, SERVERS, place(Scope::User, Root::Config, "Code/User/mcp.json")),
        written(Jsonc, SERVERS, place(Scope::User, Root::Config, "Code/User/profiles/*/mcp.json")),
        written(Jsonc, SETTINGS, place(Scope::User, Root::Config, "Code/User/settings.json")),
        written(Jsonc, SERVERS, place(Scope::User, Root::Home, "Library/Application Support/Code/User/mcp.json")),
        // The file of a remote window's server.
        written(Jsonc, SERVERS, place(Scope::User, Root::Home, ".vscode-server/data/User/mcp.json")),
        written(Jsonc, SERVERS, place(Scope::Project, Root::Project, ".vscode/mcp.json")),
        written(Jsonc, SETTINGS, place(Scope::Project, Root::Project, ".vscode/settings.json")),
    ],
    shape: PLAIN,
    host: ProgramPattern { comms: &["code"], programs: &["code"], scripts: &["/.vscode-server/"] },
    marks: VS_CODE_MARKS,
};

const VS_CODE_INSIDERS: Client = Client {
    id: "vscode-insiders",
    name: "VS Code Insiders",
    places: &[
        written(Jsonc, SERVERS, place(Scope::User, Root::Config, "Code - Insiders/User/mcp.json")),
        written(Jsonc, SERVERS, place(Scope::User, Root::Config, "Code - Insiders/User/profiles/*/mcp.json")),
        written(Jsonc, SETTINGS, place(Scope::User, Root::Config, "Code - Insiders/User/settings.json")),
        written(
            Jsonc,
            SERVERS,
            place(Scope::User, Root::Home, "Library/Application Support/Code - Insiders/User/mcp.json"),
        ),
        written(Jsonc, SERVERS, place(Scope::User, Root::Home, ".vscode-server-insiders/data/User/mcp.json")),
    ],
    shape: PLAIN,
    host: ProgramPattern {
        comms: &["code-insiders"],
        programs: &["code-insiders"],
        scripts: &["/.vscode-server-insiders/"],
    },
    marks: VS_CODE_MARKS,
};

const VS_CODE_MARKS: &[Mark] = &[
    Mark { variable: "VSCODE_PID", meaning: MarkMeaning::Pid },
    Mark { variable: "VSCODE_IPC_HOOK", meaning: MarkMeaning::Presence },
    Mark { variable: "VSCODE_CWD", meaning: MarkMeaning::Presence },
];

// docs.windsurf.com/windsurf/cascade/mcp: one file, `serverUrl` or `url`, `disabled`, `${env:NAME}` in command, args,
// env, urls and headers.
const WINDSURF: Client = Client {
    id: "windsurf",
    name: "Windsurf",
    places: &[
        place(Scope::User, Root::Home, ".codeium/windsurf/mcp_config.json"),
        place(Scope::User, Root::Home, ".codeium/windsurf-next/mcp_config.json"),
    ],
    shape: Shape { urls: &["serverUrl", "url"], stdio_type: None, ..PLAIN },
    host: ProgramPattern {
        comms: &["windsurf", "windsurf-next"],
        programs: &["windsurf", "windsurf-next"],
        scripts: &["/.windsurf-server/"],
    },
    marks: &[],
};

// developers.openai.com/codex/mcp and codex-rs/config/src/mcp_types.rs: `[mcp_servers.NAME]`; CODEX_HOME moves the
// file; Codex reads a project's own file if the project is trusted. It expands no variables; `env_vars` lists the
// variables that it passes on.
const CODEX: Client = Client {
    id: "codex",
    name: "Codex CLI",
    places: &[
        written(Toml, &[&["mcp_servers"]], place(Scope::User, Root::Variable("CODEX_HOME", ".codex"), "config.toml")),
        written(Toml, &[&["mcp_servers"]], place(Scope::Project, Root::Project, ".codex/config.toml")),
        ConfigPlace {
            format: Toml,
            maps: &[&["mcp_servers"]],
            ours_to_edit: false,
            ..place(Scope::System, Root::System, "etc/codex/config.toml")
        },
    ],
    shape: Shape { headers: "http_headers", stdio_type: None, env_expands: false, ..PLAIN },
    host: ProgramPattern { comms: &["codex"], programs: &["codex"], scripts: &["/@openai/codex/"] },
    marks: &[],
};

// google-gemini/gemini-cli docs/tools/mcp-server.md and docs/cli/configuration.md: `command` (stdio), `url` (SSE) or
// `httpUrl`; `$VAR` and `${VAR}` in every value of settings.json; GEMINI_CLI=1 is set for programs that its shell tool
// runs.
const GEMINI: Client = Client {
    id: "gemini",
    name: "Gemini CLI",
    places: &[
        ConfigPlace { format: Jsonc, ..place(Scope::User, Root::Home, ".gemini/settings.json") },
        ConfigPlace { format: Jsonc, ..place(Scope::Project, Root::Project, ".gemini/settings.json") },
        ConfigPlace {
            format: Jsonc,
            ours_to_edit: false,
            ..place(Scope::System, Root::System, "etc/gemini-cli/settings.json")
        },
    ],
    shape: Shape { urls: &["httpUrl", "url"], stdio_type: None, ..PLAIN },
    host: ProgramPattern {
        comms: &["gemini"],
        programs: &["gemini"],
        scripts: &["/@google/gemini-cli/", "/bin/gemini"],
    },
    marks: &[Mark { variable: "GEMINI_CLI", meaning: MarkMeaning::Presence }],
};

// docs.github.com/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers: one file, `type` is `local` or
// `stdio`, `http` or `sse`.
const COPILOT: Client = Client {
    id: "copilot",
    name: "Copilot CLI",
    places: &[place(Scope::User, Root::Variable("COPILOT_HOME", ".copilot"), "mcp-config.json")],
    shape: Shape { stdio_type: Some("local"), ..PLAIN },
    host: ProgramPattern {
        comms: &["copilot"],
        programs: &["copilot"],
        scripts: &["/@github/copilot/", "/bin/copilot"],
    },
    marks: &[],
};

// opencode.ai/docs/mcp-servers (names directly below `mcp`, `enabled`) and opencode.ai/v2/docs/mcp-servers
// (`mcp.servers`, `disabled`); `command` is a list; `{env:NAME}` is replaced in the text of the file.
const OPENCODE: Client = Client {
    id: "opencode",
    name: "opencode",
    places: &[
        written(Jsonc, OPENCODE_MAPS, place(Scope::User, Root::Config, "opencode/opencode.json")),
        written(Jsonc, OPENCODE_MAPS, place(Scope::User, Root::Config, "opencode/opencode.jsonc")),
        written(Jsonc, OPENCODE_MAPS, place(Scope::Project, Root::Project, "opencode.json")),
        written(Jsonc, OPENCODE_MAPS, place(Scope::Project, Root::Project, "opencode.jsonc")),
    ],
    shape: Shape { env: "environment", stdio_type: Some("local"), ..PLAIN },
    host: ProgramPattern { comms: &["opencode"], programs: &["opencode"], scripts: &["/opencode-ai/"] },
    marks: &[Mark { variable: "OPENCODE", meaning: MarkMeaning::Presence }],
};
/// The newer format first: in a file of that format, `servers` is not a server.
const OPENCODE_MAPS: &[&[&str]] = &[&["mcp", "servers"], &["mcp"]];

// zed.dev/docs/ai/mcp and zed: crates/settings/src/settings_content/project.rs: `context_servers`; `command` is the
// program or, in older files, a map of `path`, `args` and `env`; `source` is `custom` or `extension`. Zed expands no
// variables.
const ZED: Client = Client {
    id: "zed",
    name: "Zed",
    places: &[
        written(Jsonc, &[&["context_servers"]], place(Scope::User, Root::Config, "zed/settings.json")),
        written(Jsonc, &[&["context_servers"]], place(Scope::Project, Root::Project, ".zed/settings.json")),
    ],
    shape: Shape { stdio_type: None, env_expands: false, ..PLAIN },
    host: ProgramPattern { comms: &["zed", "zed-editor"], programs: &["zed", "zed-editor", "zeditor"], scripts: &[] },
    marks: &[Mark { variable: "ZED_TERM", meaning: MarkMeaning::Presence }],
};

// block.github.io/goose/docs/guides/config-files: `extensions` in config.yaml; `type` is stdio, streamable_http or
// sse, or a part of goose itself (builtin, platform, frontend, inline_python).
const GOOSE: Client = Client {
    id: "goose",
    name: "goose",
    places: &[written(Yaml, &[&["extensions"]], place(Scope::User, Root::Config, "goose/config.yaml"))],
    shape: Shape { command: "cmd", env: "envs", urls: &["uri"], env_expands: false, ..PLAIN },
    host: ProgramPattern { comms: &["goose", "goosed"], programs: &["goose", "goosed"], scripts: &[] },
    marks: &[Mark { variable: "GOOSE_TERMINAL", meaning: MarkMeaning::Presence }],
};

// docs.cline.bot/getting-started/config (`~/.cline/data/settings`) and, before that, the extension's storage; `type`
// is stdio, sse or streamableHttp; `disabled`.
const CLINE: Client = Client {
    id: "cline",
    name: "Cline",
    places: &[
        place(Scope::User, Root::Home, ".cline/data/settings/cline_mcp_settings.json"),
        place(
            Scope::User,
            Root::Config,
            "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
        place(
            Scope::User,
            Root::Config,
            "Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
        place(
            Scope::User,
            Root::Config,
            "Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
        place(
            Scope::User,
            Root::Home,
            ".vscode-server/data/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
    ],
    shape: Shape { env_expands: false, ..PLAIN },
    host: ProgramPattern { comms: &["cline"], programs: &["cline"], scripts: &["/node_modules/cline/"] },
    marks: &[],
};

/// Packages that are published as MCP servers. The list is short: arguments equal to a declared server are better
/// evidence. It only helps with servers that no file declares any more.
pub const PACKAGES: &[Package] = &[
    // github.com/modelcontextprotocol/servers, the reference servers.
    npm("@modelcontextprotocol/server-*"),
    pypi("mcp-server-fetch"),
    pypi("mcp-server-git"),
    pypi("mcp-server-time"),
    pypi("mcp-server-sqlite"),
    // The README of each package says `npx` or `uvx` and this name.
    npm("@playwright/mcp"),
    npm("@upstash/context7-mcp"),
    npm("chrome-devtools-mcp"),
    npm("@wonderwhy-er/desktop-commander"),
    npm("@browsermcp/mcp"),
    npm("mcp-remote"),
    npm("firecrawl-mcp"),
    npm("tavily-mcp"),
    npm("exa-mcp-server"),
    npm("@notionhq/notion-mcp-server"),
    npm("@supabase/mcp-server-supabase"),
    npm("@sentry/mcp-server"),
    npm("@azure/mcp"),
    npm("figma-developer-mcp"),
    npm("task-master-ai"),
    pypi("mcp-proxy"),
    pypi("mcp-atlassian"),
    pypi("serena-mcp-server"),
    pypi("blender-mcp"),
    pypi("awslabs.*"),
];

const fn npm(name: &'static str) -> Package {
    Package { name, registry: PackageRegistry::Npm }
}

const fn pypi(name: &'static str) -> Package {
    Package { name, registry: PackageRegistry::PyPi }
}
