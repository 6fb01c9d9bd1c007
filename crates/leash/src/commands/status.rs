//! `leash status`.

mod open;

use std::env;
use std::path::PathBuf;

use leash_gateway::config::Secret;
use leash_gateway::control_client::{self, ControlClientError};
use leash_model::client::GatewayClient;
use leash_model::clock;
use leash_model::error::with_causes;
use leash_model::status::{StatusServerView, StatusView};
use leash_model::view::{KindView, PageLinkView};
use schemars::JsonSchema;
use serde::Serialize;

use super::attach;
use crate::args::StatusArgs;
use crate::exit_code;
use crate::output::message::{self, counted};
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::{Column, table};
use crate::output::text::Text;

pub(crate) fn status(args: &StatusArgs) -> u8 {
    let printer = Printer::new(false);
    let gateway = match StatusTarget::of(args) {
        Ok(gateway) => gateway,
        Err(refused) => return refused.report(printer),
    };
    if args.open {
        return match gateway.page_link() {
            Ok(link) => open::show(printer, &link),
            Err(error) => failed(&error).report(printer),
        };
    }
    let found = match gateway.status() {
        Ok(found) => found,
        Err(error) => return failed(&error).report(printer),
    };
    if args.json {
        printer.json(StatusAnswer::new(&found));
    } else {
        printer.data(&text(&found, clock::unix_ms()));
    }
    exit_code::OK
}

/// The reason why there is no status.
struct NoStatus {
    text: String,
    hint: &'static str,
    code: u8,
}

impl NoStatus {
    fn report(&self, printer: Printer) -> u8 {
        printer.error_text(&self.text, Some(self.hint));
        self.code
    }
}

/// The gateway that is asked.
enum StatusTarget {
    /// The one behind this control socket.
    Socket(PathBuf),
    /// The one whose control API is at this address, with its token.
    Address(String, Secret),
}

impl StatusTarget {
    fn of(args: &StatusArgs) -> Result<StatusTarget, NoStatus> {
        let (Some(url), Some(variable)) = (&args.url, &args.token_env) else {
            return Ok(StatusTarget::Socket(attach::socket(args.control.as_deref())));
        };
        let usage = |text: String, hint| NoStatus { text, hint, code: exit_code::USAGE };
        let token = env::var(variable).ok().filter(|token| !token.is_empty()).ok_or_else(|| {
            usage(format!("the variable `{variable}` of --token-env is not set"), "export it, or name another variable")
        })?;
        let address = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        let is_address = |address: &&str| !address.contains('/') && address.contains(':');
        let address = address.filter(is_address).ok_or_else(|| {
            usage(format!("`{url}` is not the address of a control API"), "write it as in --url http://127.0.0.1:5328")
        })?;
        Ok(StatusTarget::Address(address.to_owned(), Secret::new(token)))
    }

    fn status(&self) -> Result<StatusView, ControlClientError> {
        match self {
            StatusTarget::Socket(socket) => control_client::status(socket),
            StatusTarget::Address(address, token) => control_client::status_at(address, token),
        }
    }

    fn page_link(&self) -> Result<PageLinkView, ControlClientError> {
        match self {
            StatusTarget::Socket(socket) => control_client::page_link(socket),
            StatusTarget::Address(address, token) => control_client::page_link_at(address, token),
        }
    }
}

fn failed(error: &ControlClientError) -> NoStatus {
    let (hint, code) = match error {
        ControlClientError::NoDaemon(_) => {
            ("start one: leash serve --name NAME -- COMMAND, or leash serve --config FILE", exit_code::NOT_ALL)
        }
        ControlClientError::Refused { problem, .. } if problem == "no-page" => {
            ("start it without `--no-page` and without `\"page\": false`", exit_code::NOT_ALL)
        }
        ControlClientError::Refused { status: 404, .. } => {
            ("this gateway is older than `leash status`: start it again with this leash", exit_code::LEASH_FAILED)
        }
        ControlClientError::Refused { .. } => {
            ("the token must be the one of --control-token-env", exit_code::LEASH_FAILED)
        }
        _ => ("check that `leash serve` works; `leash ps` lists what is alive", exit_code::LEASH_FAILED),
    };
    NoStatus { text: with_causes(error), hint, code }
}

const SERVERS: [Column; 5] = [
    Column::new("SERVER").cut(12),
    Column::new("KIND").left_out(1),
    Column::new("SESSIONS"),
    Column::new("TREES"),
    Column::new("MEMORY"),
];

const CLIENTS: [Column; 5] = [
    Column::new("CLIENT").cut(12),
    Column::new("PID"),
    Column::new("SERVER").cut(12),
    Column::new("SESSION").left_out(1),
    Column::new("AGE").left_out(2),
];

fn text(found: &StatusView, now_ms: u64) -> Text {
    let age = |since_ms: u64| span(now_ms.saturating_sub(since_ms));
    let mut text = Text::default();
    let StatusView { url, pid, version, .. } = found;
    text.line(format_args!("leash serve {version} (pid {pid}) listens on {url} for {}", age(found.started_at_ms)));
    for server in &found.servers {
        let url = if server.available { &*server.url } else { "not available; `leash serve --check` says why" };
        text.line(message::server_url(&server.name, url));
    }
    let row = |server: &StatusServerView| {
        let is_stdio = server.kind == KindView::Stdio;
        vec![
            server.name.clone(),
            kind(server.kind).to_owned(),
            server.sessions.len().to_string(),
            if is_stdio { server.trees.to_string() } else { "-".to_owned() },
            if is_stdio { bytes(server.memory_bytes) } else { "-".to_owned() },
        ]
    };
    if !found.servers.is_empty() {
        text.line("");
        text.append(table(&SERVERS, &found.servers.iter().map(row).collect::<Vec<_>>()));
    }
    let sessions = found.servers.iter().flat_map(|server| server.sessions.iter().map(move |session| (server, session)));
    let clients: Vec<Vec<String>> = sessions
        .map(|(server, session)| {
            let GatewayClient { pid, .. } = &session.client;
            let pid = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let name = session.client.name().to_owned();
            vec![name, pid, server.name.clone(), session.id.clone(), age(session.started_at_ms)]
        })
        .collect();
    if !clients.is_empty() {
        text.line("");
        text.append(table(&CLIENTS, &clients));
    }
    if found.control_sessions > 0 {
        let sessions = counted(found.control_sessions, "session");
        text.line("");
        text.line(format_args!("{sessions} of the control API; `leash ps` lists them"));
    }
    if !found.problems.is_empty() {
        text.line("");
        text.line("Last problems:");
        for problem in &found.problems {
            text.line(format_args!("  {} ago: {}", age(problem.at_ms), problem.text));
        }
    }
    text
}

fn kind(kind: KindView) -> &'static str {
    match kind {
        KindView::Stdio => "stdio",
        KindView::Http => "http",
    }
}

/// What `leash status --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct StatusAnswer<'a> {
    /// The version of the leash that serves.
    leash: &'a str,
    /// The pid of the gateway.
    pid: u32,
    /// The time at which it began, milliseconds since 1970.
    started_ms: u64,
    /// The address at which clients on this machine reach it.
    url: &'a str,
    /// The servers of its configuration, in the order of their names.
    servers: Vec<StatusServer<'a>>,
    /// The number of sessions of the control API; `leash ps` lists them.
    control_sessions: usize,
    /// The last problems, the newest last.
    problems: Vec<StatusProblem<'a>>,
}

/// A server of a gateway.
#[derive(Serialize, JsonSchema)]
struct StatusServer<'a> {
    /// Its name.
    name: &'a str,
    /// `stdio` or `http`.
    kind: &'static str,
    /// The URL for clients.
    url: &'a str,
    /// False if clients cannot use it, because its command or its settings are wrong.
    available: bool,
    /// Its client sessions, the oldest first.
    sessions: Vec<StatusSession<'a>>,
    /// The number of its process trees.
    trees: usize,
    /// The private memory of its trees when their keepers last measured it.
    memory_bytes: u64,
}

/// A client session of a gateway.
#[derive(Serialize, JsonSchema)]
struct StatusSession<'a> {
    /// The beginning of its id.
    id: &'a str,
    /// The time at which it began, milliseconds since 1970.
    started_ms: u64,
    /// Its client.
    client: &'a GatewayClient,
}

/// A problem of a gateway.
#[derive(Serialize, JsonSchema)]
struct StatusProblem<'a> {
    /// The time at which it happened last, milliseconds since 1970.
    at_ms: u64,
    /// The problem, for people.
    text: &'a str,
}

impl StatusAnswer<'_> {
    fn new(found: &StatusView) -> StatusAnswer<'_> {
        StatusAnswer {
            leash: &found.version,
            pid: found.pid,
            started_ms: found.started_at_ms,
            url: &found.url,
            servers: found.servers.iter().map(StatusServer::new).collect(),
            control_sessions: found.control_sessions,
            problems: found.problems.iter().map(|one| StatusProblem { at_ms: one.at_ms, text: &one.text }).collect(),
        }
    }
}

impl StatusServer<'_> {
    fn new(server: &StatusServerView) -> StatusServer<'_> {
        let sessions = server.sessions.iter().map(|session| StatusSession {
            id: &session.id,
            started_ms: session.started_at_ms,
            client: &session.client,
        });
        StatusServer {
            name: &server.name,
            kind: kind(server.kind),
            url: &server.url,
            available: server.available,
            sessions: sessions.collect(),
            trees: server.trees,
            memory_bytes: server.memory_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_of_a_gateway_is_shown_and_escaped() {
        let found = json!({
            "version": "0.1.0", "pid": 7, "startedAtMs": 1000, "url": "http://127.0.0.1:5327", "controlSessions": 1,
            "servers": [
                {"name": "files", "kind": "stdio", "url": "http://127.0.0.1:5327/files/mcp", "available": true,
                 "sessions": [{"id": "a1b2c3d4", "startedAtMs": 2000, "client": {"name": "cl\u{1b}aude", "pid": 26910}}],
                 "trees": 1, "memoryBytes": 2048},
                {"name": "web", "kind": "http", "url": "http://127.0.0.1:5327/web/mcp", "available": false, "sessions": [],
                 "trees": 0, "memoryBytes": 0},
            ],
            "problems": [{"atMs": 3000, "text": "`files` exited with code 3\n"}],
        });
        let found: StatusView = serde_json::from_value(found).expect("a status");
        let expected = "\
leash serve 0.1.0 (pid 7) listens on http://127.0.0.1:5327 for 9.0s
  files: http://127.0.0.1:5327/files/mcp
  web: not available; `leash serve --check` says why

SERVER  KIND   SESSIONS  TREES  MEMORY
files   stdio  1         1      2.0 KiB
web     http   0         -      -

CLIENT        PID    SERVER  SESSION   AGE
cl\\u{1b}aude  26910  files   a1b2c3d4  8.0s

1 session of the control API; `leash ps` lists them

Last problems:
  7.0s ago: `files` exited with code 3\\n
";
        assert_eq!(text(&found, 10_000).shown(true).replace("\u{1b}[1m", "").replace("\u{1b}[0m", ""), expected);
        let answer = serde_json::to_value(StatusAnswer::new(&found)).expect("it is JSON");
        assert_eq!(answer["servers"][0]["sessions"][0]["client"]["pid"], 26910);
        assert_eq!(answer["problems"][0]["text"], "`files` exited with code 3\n", "programs get it exactly");
    }
}
