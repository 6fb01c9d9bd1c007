//! The table of clients. Every entry names its source; no entry is guessed from a name.

use super::Root::{self, Config, Home, Variable};
use super::text::Format::{self, Json, Toml, Yaml};
use super::{Client, ConfigPlace, ProgramPattern, Scope, Shape};

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
    ConfigPlace { scope, root, path, format: Json, maps: MCP_SERVERS }
}

const fn user(root: Root, path: &'static str) -> ConfigPlace {
    place(Scope::User, root, path)
}

const fn project(path: &'static str) -> ConfigPlace {
    place(Scope::Project, Root::Project, path)
}

const fn system(path: &'static str) -> ConfigPlace {
    place(Scope::System, Root::System, path)
}

impl ConfigPlace {
    /// The same place, with other maps.
    const fn with(self, maps: &'static [&'static [&'static str]]) -> ConfigPlace {
        ConfigPlace { maps, ..self }
    }

    /// The same place, in another format.
    const fn written_in(self, format: Format) -> ConfigPlace {
        ConfigPlace { format, ..self }
    }
}

/// The marks whose value is the client's own session.
pub(super) const SESSION_VARIABLES: &[&str] = &["CLAUDE_CODE_SESSION_ID"];

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
        user(Variable("CLAUDE_CONFIG_DIR", ""), ".claude.json")
            .with(&[&["mcpServers"], &["projects", "*", "mcpServers"]]),
        project(".mcp.json"),
        // An older format has the servers at the top level, without `mcpServers`.
        place(Scope::Plugin, CLAUDE_DIR, "plugins/cache/*/*/*/.mcp.json").with(&[&["mcpServers"], &[]]),
        place(Scope::Plugin, CLAUDE_DIR, "plugins/cache/*/*/*/.claude-plugin/plugin.json"),
        system("etc/claude-code/managed-mcp.json"),
    ],
    shape: PLAIN,
    host: ProgramPattern { names: &["claude"], scripts: &["/@anthropic-ai/claude-code/"] },
    marks: &["CLAUDE_CODE_SESSION_ID", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_PROJECT_DIR"],
};
const CLAUDE_DIR: Root = Variable("CLAUDE_CONFIG_DIR", ".claude");

// modelcontextprotocol.io/docs/develop/connect-local-servers; the Linux builds keep Electron's `~/.config/Claude`.
// It expands no variables, and its file has no HTTP servers.
const CLAUDE_DESKTOP: Client = Client {
    id: "claude-desktop",
    name: "Claude Desktop",
    places: &[
        user(Config, "Claude/claude_desktop_config.json"),
        user(Home, "Library/Application Support/Claude/claude_desktop_config.json"),
    ],
    shape: Shape { stdio_type: None, env_expands: false, ..PLAIN },
    host: ProgramPattern { names: &["claude-desktop"], scripts: &["/claude-desktop/"] },
    marks: &[],
};

// cursor.com/docs/context/mcp: both files, and `${env:NAME}` in command, args, env, url and headers.
const CURSOR: Client = Client {
    id: "cursor",
    name: "Cursor",
    places: &[user(Home, ".cursor/mcp.json"), project(".cursor/mcp.json")],
    shape: PLAIN,
    host: ProgramPattern { names: &["cursor", "Cursor", "cursor-agent"], scripts: &["/cursor-agent/"] },
    marks: &["CURSOR_TRACE_ID", "CURSOR_AGENT"],
};

// code.visualstudio.com/docs/copilot/customization/mcp-servers: `mcp.json` of the profile and of the workspace,
// `servers`, `inputs`, `${input:id}` and `${env:NAME}`. Profiles are in `User/profiles/ID`. VSCODE_PID and
// VSCODE_IPC_HOOK are set by the main process.
const VS_CODE: Client = Client {
    id: "vscode",
    name: "VS Code",
    places: &[
        user(Config, "Code/User/mcp.json").with(SERVERS),
        user(Config, "Code/User/profiles/*/mcp.json").with(SERVERS),
        user(Config, "Code/User/settings.json").with(SETTINGS),
        user(Home, "Library/Application Support/Code/User/mcp.json").with(SERVERS),
        // The file of a remote window's server.
        user(Home, ".vscode-server/data/User/mcp.json").with(SERVERS),
        project(".vscode/mcp.json").with(SERVERS),
        project(".vscode/settings.json").with(SETTINGS),
    ],
    shape: PLAIN,
    host: ProgramPattern { names: &["code"], scripts: &["/.vscode-server/"] },
    marks: VS_CODE_MARKS,
};

const VS_CODE_INSIDERS: Client = Client {
    id: "vscode-insiders",
    name: "VS Code Insiders",
    places: &[
        user(Config, "Code - Insiders/User/mcp.json").with(SERVERS),
        user(Config, "Code - Insiders/User/profiles/*/mcp.json").with(SERVERS),
        user(Config, "Code - Insiders/User/settings.json").with(SETTINGS),
        user(Home, "Library/Application Support/Code - Insiders/User/mcp.json").with(SERVERS),
        user(Home, ".vscode-server-insiders/data/User/mcp.json").with(SERVERS),
    ],
    shape: PLAIN,
    host: ProgramPattern { names: &["code-insiders"], scripts: &["/.vscode-server-insiders/"] },
    marks: VS_CODE_MARKS,
};

const VS_CODE_MARKS: &[&str] = &["VSCODE_PID", "VSCODE_IPC_HOOK", "VSCODE_CWD"];

// docs.windsurf.com/windsurf/cascade/mcp: one file, `serverUrl` or `url`, `disabled`, `${env:NAME}` in command, args,
// env, urls and headers.
const WINDSURF: Client = Client {
    id: "windsurf",
    name: "Windsurf",
    places: &[user(Home, ".codeium/windsurf/mcp_config.json"), user(Home, ".codeium/windsurf-next/mcp_config.json")],
    shape: Shape { urls: &["serverUrl", "url"], stdio_type: None, ..PLAIN },
    host: ProgramPattern { names: &["windsurf", "windsurf-next"], scripts: &["/.windsurf-server/"] },
    marks: &[],
};

// developers.openai.com/codex/mcp and codex-rs/config/src/mcp_types.rs: `[mcp_servers.NAME]`; CODEX_HOME moves the
// file; Codex reads a project's own file if the project is trusted. It expands no variables; `env_vars` lists the
// variables that it passes on.
const CODEX: Client = Client {
    id: "codex",
    name: "Codex CLI",
    places: &[
        user(Variable("CODEX_HOME", ".codex"), "config.toml").with(CODEX_MAPS).written_in(Toml),
        project(".codex/config.toml").with(CODEX_MAPS).written_in(Toml),
        system("etc/codex/config.toml").with(CODEX_MAPS).written_in(Toml),
    ],
    shape: Shape { headers: "http_headers", stdio_type: None, env_expands: false, ..PLAIN },
    host: ProgramPattern { names: &["codex"], scripts: &["/@openai/codex/"] },
    marks: &[],
};
const CODEX_MAPS: &[&[&str]] = &[&["mcp_servers"]];

// google-gemini/gemini-cli docs/tools/mcp-server.md and docs/cli/configuration.md: `command` (stdio), `url` (SSE) or
// `httpUrl`; `$VAR` and `${VAR}` in every value of settings.json; GEMINI_CLI=1 is set for programs that its shell tool
// runs.
const GEMINI: Client = Client {
    id: "gemini",
    name: "Gemini CLI",
    places: &[
        user(Home, ".gemini/settings.json"),
        project(".gemini/settings.json"),
        system("etc/gemini-cli/settings.json"),
    ],
    shape: Shape { urls: &["httpUrl", "url"], stdio_type: None, ..PLAIN },
    host: ProgramPattern { names: &["gemini"], scripts: &["/@google/gemini-cli/", "/bin/gemini"] },
    marks: &["GEMINI_CLI"],
};

// docs.github.com/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers: one file, `type` is `local` or
// `stdio`, `http` or `sse`.
const COPILOT: Client = Client {
    id: "copilot",
    name: "Copilot CLI",
    places: &[user(Variable("COPILOT_HOME", ".copilot"), "mcp-config.json")],
    shape: Shape { stdio_type: Some("local"), ..PLAIN },
    host: ProgramPattern { names: &["copilot"], scripts: &["/@github/copilot/", "/bin/copilot"] },
    marks: &[],
};

// opencode.ai/docs/mcp-servers (names directly below `mcp`, `enabled`) and opencode.ai/v2/docs/mcp-servers
// (`mcp.servers`, `disabled`); `command` is a list; `{env:NAME}` is replaced in the text of the file.
const OPENCODE: Client = Client {
    id: "opencode",
    name: "opencode",
    places: &[
        user(Config, "opencode/opencode.json").with(OPENCODE_MAPS),
        user(Config, "opencode/opencode.jsonc").with(OPENCODE_MAPS),
        project("opencode.json").with(OPENCODE_MAPS),
        project("opencode.jsonc").with(OPENCODE_MAPS),
    ],
    shape: Shape { env: "environment", stdio_type: Some("local"), ..PLAIN },
    host: ProgramPattern { names: &["opencode"], scripts: &["/opencode-ai/"] },
    marks: &["OPENCODE"],
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
        user(Config, "zed/settings.json").with(&[&["context_servers"]]),
        project(".zed/settings.json").with(&[&["context_servers"]]),
    ],
    shape: Shape { stdio_type: None, env_expands: false, ..PLAIN },
    host: ProgramPattern { names: &["zed", "zed-editor", "zeditor"], scripts: &[] },
    marks: &["ZED_TERM"],
};

// block.github.io/goose/docs/guides/config-files: `extensions` in config.yaml; `type` is stdio, streamable_http or
// sse, or a part of goose itself (builtin, platform, frontend, inline_python).
const GOOSE: Client = Client {
    id: "goose",
    name: "goose",
    places: &[user(Config, "goose/config.yaml").with(&[&["extensions"]]).written_in(Yaml)],
    shape: Shape { command: "cmd", env: "envs", urls: &["uri"], env_expands: false, ..PLAIN },
    host: ProgramPattern { names: &["goose", "goosed"], scripts: &[] },
    marks: &["GOOSE_TERMINAL"],
};

// docs.cline.bot/getting-started/config (`~/.cline/data/settings`) and, before that, the extension's storage; `type`
// is stdio, sse or streamableHttp; `disabled`.
const CLINE: Client = Client {
    id: "cline",
    name: "Cline",
    places: &[
        user(Home, ".cline/data/settings/cline_mcp_settings.json"),
        user(Config, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        user(Config, "Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        user(Config, "Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        user(Home, ".vscode-server/data/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    ],
    shape: Shape { env_expands: false, ..PLAIN },
    host: ProgramPattern { names: &["cline"], scripts: &["/node_modules/cline/"] },
    marks: &[],
};
