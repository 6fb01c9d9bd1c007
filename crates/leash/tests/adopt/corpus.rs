//! Configuration files in the format of each client, and the ways in which such files differ.

/// A file of a client.
pub(crate) struct Sample {
    pub(crate) client: &'static str,
    /// Relative to the home directory.
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
    /// The number of servers that are put on the leash, without and with `--all`.
    pub(crate) servers: (usize, usize),
}

macro_rules! samples {
    ($($client:literal, $path:literal, $file:literal, $servers:expr;)*) => {
        &[$(Sample { client: $client, path: $path, text: include_str!(concat!("corpus/", $file)), servers: $servers }),*]
    };
}

pub(crate) const SAMPLES: &[Sample] = samples![
    "claude-code", ".claude.json", "claude-code-user.json", (4, 6);
    "claude-code", "p/.mcp.json", "claude-code-project.json", (1, 1);
    "claude-desktop", ".config/Claude/claude_desktop_config.json", "claude-desktop.json", (3, 3);
    "cursor", ".cursor/mcp.json", "cursor.jsonc", (4, 5);
    "vscode", ".config/Code/User/mcp.json", "vscode.jsonc", (2, 3);
    "vscode", ".config/Code/User/settings.json", "vscode-settings.jsonc", (1, 1);
    "vscode-insiders", ".config/Code - Insiders/User/mcp.json", "vscode.jsonc", (2, 3);
    "windsurf", ".codeium/windsurf/mcp_config.json", "windsurf.json", (1, 2);
    "codex", ".codex/config.toml", "codex.toml", (4, 5);
    "codex", "p/.codex/config.toml", "codex-inline.toml", (3, 3);
    "gemini", ".gemini/settings.json", "gemini.jsonc", (1, 3);
    "copilot", ".copilot/mcp-config.json", "copilot.json", (1, 2);
    "opencode", ".config/opencode/opencode.json", "opencode.jsonc", (2, 3);
    "opencode", ".config/opencode/opencode.jsonc", "opencode-2.jsonc", (1, 1);
    "zed", ".config/zed/settings.json", "zed.jsonc", (3, 4);
    "goose", ".config/goose/config.yaml", "goose.yaml", (6, 7);
    "cline", ".cline/data/settings/cline_mcp_settings.json", "cline.json", (1, 2);
];

impl Sample {
    fn is(&self, ending: &str) -> bool {
        self.path.ends_with(ending)
    }

    /// The file as another editor would write it.
    pub(crate) fn written(&self, way: Way) -> String {
        let text = self.text;
        match way {
            Way::Plain => text.to_owned(),
            Way::Crlf => text.replace('\n', "\r\n"),
            // YAML allows no tabs here.
            Way::Tabs if self.is(".yaml") => text.to_owned(),
            Way::Tabs => text.lines().map(|line| format!("{}\n", tabs(line))).collect(),
            Way::NoLastNewline => text.trim_end().to_owned(),
            Way::Mark => format!("\u{feff}{text}"),
            Way::Blank => format!("\n\n{}\n\n\n", text.replace('\n', "\n\n")),
        }
    }
}

fn tabs(line: &str) -> String {
    let rest = line.trim_start_matches(' ');
    let blanks = line.len() - rest.len();
    format!("{}{}{rest}", "\t".repeat(blanks / 2), " ".repeat(blanks % 2))
}

/// The style in which a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Plain,
    Crlf,
    Tabs,
    NoLastNewline,
    /// With a byte order mark in front.
    Mark,
    /// With an empty line after every line.
    Blank,
}

pub(crate) const WAYS: [Way; 6] = [Way::Plain, Way::Crlf, Way::Tabs, Way::NoLastNewline, Way::Mark, Way::Blank];
