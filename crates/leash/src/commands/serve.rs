//! `leash serve`.

mod file;
mod page;

use std::env;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use leash_gateway::config::{
    self, ConfigMistake, ConfigMistakes, KeepAlive, LocalUsers, OwnerPolicy, Secret, ServerCommand, ServerTarget,
    SessionPolicy, Settings,
};
use leash_gateway::{ConfigSource, ControlError, ControlListen, ControlSocket, GatewayInputs, ServeError, Starter};
use leash_orphans::clients::translate::name_for;
use leash_tree::tree::default_name::default_name;
use leash_tree::tree::first_look::FirstLook;
use leash_upstream::address::{self, HttpTransport};
use leash_upstream::notice::Notice;

use super::{attach, budget};
use crate::args::{ControlArgs, HttpTransportArg, LocalUsersArg, Serve, SessionOwnerArg, SingleServer};
use crate::output::ids::short;
use crate::output::message;
use crate::output::printer::Printer;
use crate::{exit_code, places};

pub(crate) fn serve(args: Serve, first: FirstLook) -> u8 {
    let printer = Printer::new(args.verbose);
    let terminal = first.terminal();
    let read = settings(&args).and_then(|(settings, file)| Ok((settings, file, control(&args.control, first)?)));
    let (settings, file, control) = match read {
        Ok(read) => read,
        Err(ServeRefusal::Mistakes(mistakes)) => return report(printer, &mistakes),
        Err(ServeRefusal::Text(text, hint)) => {
            printer.error_text(text, Some(&hint));
            return exit_code::USAGE;
        }
    };
    if args.check {
        printer.say(format_args!("{} and no mistakes", message::counted(settings.servers.len(), "server")));
        return exit_code::OK;
    }
    let on_demand = args.control.on_demand;
    if let Some(file) = &file {
        file.notes.iter().for_each(|note| if on_demand { printer.progress("Read", note) } else { printer.note(note) });
    }
    if on_demand {
        // An on-demand daemon serves many programs: Ctrl-C in its starter's terminal must not reach it. If this fails,
        // the process already leads a group, so it is separate.
        let _ = rustix::process::setsid();
    }
    let source =
        file.map(|file| ConfigSource { file: file.path.clone(), read: Box::new(move || reread(&args, &file.path)) });
    let page = page::source(match &control.socket {
        ControlSocket::At(path) => path.clone(),
        ControlSocket::Runtime | ControlSocket::None => attach::socket(None),
    });
    let serving = GatewayInputs {
        settings,
        places: places::announced(),
        source,
        control,
        terminal: terminal.filter(|_| !on_demand),
        tell: Box::new(move |notice| match notice {
            // Print these lines only with `-v`: the program that started the daemon has its own output.
            Notice::Listening(address) if on_demand => printer.progress("Listening", format!("http://{address}")),
            Notice::Serves { server, url } if on_demand => printer.progress("Serves", format!("{server}: {url}")),
            Notice::Draining(sessions) if on_demand => {
                printer.progress("Stopping", message::counted(sessions, "session"))
            }
            notice => tell(printer, &notice),
        }),
        server_log: Box::new(move |server, line| printer.server_line(server, line)),
        page: Some(page),
    };
    match leash_gateway::serve(serving) {
        Ok(()) => exit_code::OK,
        Err(error) => {
            printer.error(&error, Some(advice(&error)));
            exit_code::LEASH_FAILED
        }
    }
}

/// The reason why nothing is served.
enum ServeRefusal {
    Mistakes(ConfigMistakes),
    Text(String, String),
}

impl From<ConfigMistakes> for ServeRefusal {
    fn from(mistakes: ConfigMistakes) -> ServeRefusal {
        ServeRefusal::Mistakes(mistakes)
    }
}

/// A file from which the settings were read.
struct ReadFile {
    path: PathBuf,
    /// Notes for the user.
    notes: Vec<String>,
}

/// The settings, and the file from which they were read.
fn settings(args: &Serve) -> Result<(Settings, Option<ReadFile>), ServeRefusal> {
    let is_single = args.single.name.is_some() || args.single.url.is_some() || !args.single.command.is_empty();
    let (mut settings, file) = if is_single {
        (single(&args.single)?, None)
    } else if args.control.on_demand && args.config.is_none() {
        // An on-demand daemon ignores a file that happens to be in the directory.
        (Settings::default(), None)
    } else {
        let path = file::find(args.config.as_deref())?;
        let (settings, notes) = file::read(args, &path)?;
        (settings, Some(ReadFile { path, notes }))
    };
    override_by(args, &mut settings)?;
    Ok((settings, file))
}

/// Options override the file.
fn override_by(args: &Serve, settings: &mut Settings) -> Result<(), ServeRefusal> {
    if let Some(listen) = listen(args) {
        settings.listen = listen;
    } else if args.control.on_demand && settings.listen == Settings::default().listen {
        // Clients learn the port from their sessions; the default port is left to a gateway with servers.
        settings.listen.set_port(0);
    }
    if let Some(variable) = &args.token_env {
        settings.token = Some(token(variable, "--token-env")?);
    }
    settings.page &= !args.no_page;
    settings.local_users = match args.local_users {
        Some(LocalUsersArg::Own) => LocalUsers::Own,
        Some(LocalUsersArg::Any) => LocalUsers::Any,
        None => settings.local_users,
    };
    if !settings.budget.any() {
        settings.budget = budget::find()?;
    }
    let variables = [&args.token_env, &args.control.control_token_env];
    settings.token_variables.extend(variables.into_iter().flatten().cloned());
    if settings.is_exposed() {
        let text = format!("`{}` can be reached by others, and no token is set", settings.listen);
        return Err(ServeRefusal::Text(text, "set leash.token or --token-env, or listen on 127.0.0.1".to_owned()));
    }
    Ok(())
}

/// The address that the options name.
fn listen(args: &Serve) -> Option<SocketAddr> {
    args.listen.or_else(|| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, args.port?))))
}

/// The settings of the control API.
fn control(args: &ControlArgs, first: FirstLook) -> Result<leash_gateway::ControlSettings, ServeRefusal> {
    let socket = match &args.socket {
        Some(path) => ControlSocket::At(std::path::absolute(path).unwrap_or_else(|_| path.clone())),
        None if args.no_control => ControlSocket::None,
        None => ControlSocket::Runtime,
    };
    let listen = args.control_listen.map(|address| {
        let Some(variable) = &args.control_token_env else {
            let text = format!("the control API on `{address}` needs a token");
            let hint = "every client there can start programs: --control-token-env VARIABLE names the token's variable";
            return Err(ServeRefusal::Text(text, hint.to_owned()));
        };
        Ok(ControlListen { address, token: token(variable, "--control-token-env")? })
    });
    let starter = |first| args.starter.map_or_else(|| Starter::parent(first), Starter::process);
    let on_demand = args.on_demand.then(|| starter(first));
    Ok(leash_gateway::ControlSettings { socket, listen: listen.transpose()?, on_demand })
}

/// The token in a variable.
fn token(variable: &str, option: &str) -> Result<Secret, ServeRefusal> {
    let token = env::var(variable).ok().map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    token.map(Secret::new).ok_or_else(|| {
        let text = format!("the variable `{variable}` of {option} is not set");
        ServeRefusal::Text(text, format!("export {variable}=$(openssl rand -hex 32)"))
    })
}

/// Reads the settings for a reload; the error is one text with all mistakes.
fn reread(args: &Serve, path: &Path) -> Result<Settings, String> {
    let again = || {
        let (mut settings, _) = file::read(args, path)?;
        override_by(args, &mut settings)?;
        Ok(settings)
    };
    again().map_err(|refused| match refused {
        ServeRefusal::Mistakes(mistakes) => mistakes.to_string(),
        ServeRefusal::Text(text, hint) => format!("{text}\n  hint: {hint}"),
    })
}

fn single(args: &SingleServer) -> Result<Settings, ServeRefusal> {
    let (target, known) = match (&args.url, args.command.split_first()) {
        (Some(url), _) => {
            let upstream = upstream(url, args)?;
            let host = upstream.url.host().unwrap_or("server").to_owned();
            (ServerTarget::Url(upstream), host)
        }
        (None, Some((command, rest))) => {
            let line = ServerCommand { command: command.clone(), args: rest.to_vec(), ..ServerCommand::default() };
            let words: Vec<OsString> = args.command.iter().map(OsString::from).collect();
            (ServerTarget::Command(line), default_name(&words, None).unwrap_or_default())
        }
        (None, None) => {
            let hint = "leash serve --name NAME -- COMMAND, or leash serve --name NAME --url URL";
            return Err(ServeRefusal::Text("--name needs a server".to_owned(), hint.to_owned()));
        }
    };
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_for(&known, &[], &config::is_server_name),
    };
    let defaults = SessionPolicy::default();
    let policy = SessionPolicy {
        idle: args.idle.map_or(defaults.idle, |limit| limit.0),
        abandoned: args.abandoned.map_or(defaults.abandoned, |limit| limit.0),
        max_age: args.max_age,
        max_sessions: args.max_sessions,
        max_sessions_per_client: args.max_sessions_per_client,
        grace: args.grace.unwrap_or(defaults.grace),
        linger: args.linger.unwrap_or(defaults.linger),
        init_timeout: args.init_timeout.unwrap_or(defaults.init_timeout),
        keep_alive: args.keep_alive.map_or(KeepAlive::Auto, KeepAlive::Every),
        revive: args.revive,
        owner: if args.owner == SessionOwnerArg::Traffic { OwnerPolicy::Traffic } else { OwnerPolicy::Auto },
        ..defaults
    };
    let mut settings = config::single(&name, target, policy)?;
    ConfigMistakes::none(config::check_commands(&settings, env::var_os("PATH").as_deref()))?;
    settings.max_sessions = args.max_sessions.unwrap_or(settings.max_sessions);
    settings.max_sessions_per_client = args.max_sessions_per_client;
    Ok(settings)
}

fn upstream(url: &str, args: &SingleServer) -> Result<address::UpstreamServer, ServeRefusal> {
    let mut headers = Vec::new();
    for header in &args.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            ServeRefusal::Text(format!("`{header}` is not a header"), "write it as --header 'Name: value'".to_owned())
        })?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let transport =
        if args.transport == HttpTransportArg::Sse { HttpTransport::Sse } else { HttpTransport::Streamable };
    address::upstream(url, &headers, transport).map_err(|error| {
        let hint = error.hint().to_owned();
        ServeRefusal::Text(error.to_string(), hint)
    })
}

/// Prints every mistake with its place, and the hints.
fn report(printer: Printer, mistakes: &ConfigMistakes) -> u8 {
    let count = message::counted(mistakes.all().len(), "mistake");
    printer.error_text(format!("{count} in the configuration; nothing was started"), None);
    for mistake @ ConfigMistake { hint, .. } in mistakes.all() {
        printer.note(mistake);
        if let Some(hint) = hint {
            printer.note(format!("  hint: {hint}"));
        }
    }
    exit_code::USAGE
}

fn advice(error: &ServeError) -> &'static str {
    match error {
        ServeError::Listen { address, source } => match source.kind() {
            io::ErrorKind::PermissionDenied if address.port() < 1024 => {
                "ports below 1024 need a privilege: choose another one, as in --port 8080"
            }
            io::ErrorKind::AddrNotAvailable => "this machine does not have the address: listen on 127.0.0.1 (--port)",
            _ => "another program may have the address: choose another port with --port",
        },
        ServeError::Exposed(_) => "set leash.token or --token-env, or listen on 127.0.0.1",
        ServeError::Control(ControlError::Held { .. }) => "name another path with --control, or stop the other one",
        ServeError::Control(ControlError::TooLong(_)) => {
            "name a shorter path with --control, or set LEASH_RUNTIME_DIR to a shorter one"
        }
        ServeError::Control(ControlError::Directory { .. }) => {
            "the socket must be in a directory that only you can write to: make one, or name another path with --control"
        }
        ServeError::Control(ControlError::Occupied { .. } | ControlError::Make { .. }) => {
            "name another path with --control"
        }
        ServeError::NoControlToken(_) => {
            "every client that reaches it can start programs: name the token with --control-token-env"
        }
        ServeError::Ledger(_) | ServeError::Control(ControlError::Runtime(_)) => {
            "set LEASH_RUNTIME_DIR to a directory that can be written; the ledger must exist before a session does"
        }
        ServeError::Start(_) => "a limit of open files may be used up (ulimit -n); nothing was started",
    }
}

/// Prints an event. An id is short: clients present the whole id as a credential, and many people may read a log.
pub(super) fn tell(printer: Printer, notice: &Notice) {
    match notice {
        // To write the lines of a short session takes as long as to forward one of its requests.
        Notice::Opened { .. } | Notice::Ending { .. } if !printer.is_verbose() => {}
        Notice::Listening(address) => printer.note(format!("listening on http://{address}")),
        Notice::Serves { server, url } => printer.note(message::server_url(server, url)),
        Notice::ControlSocket(path) => printer.progress("Control", path.display()),
        Notice::ControlListening(address) => printer.note(format!("control API on http://{address}")),
        Notice::TakenOver(sessions) => {
            let sessions = message::counted(*sessions, "session");
            printer.note(format!("continuing with {sessions} of a gateway that was killed"));
        }
        Notice::Swept(receipt) => printer.progress("Swept", message::receipt_line(receipt)),
        Notice::Opened { session, server, client } => {
            let client = client.as_ref().map_or_else(String::new, |client| format!(" for {client}"));
            printer.progress("Opened", format!("{server} [{}]{client}", short(session)));
        }
        Notice::Ending { session, server, client, why } => {
            let why = why.describe_for(client.as_ref());
            printer.progress("Ending", format!("{server} [{}]: {why}", short(session)));
        }
        Notice::Ended(receipt) => {
            if printer.is_verbose() {
                printer.progress("Ended", message::receipt_line(receipt));
            }
            message::left_lines(receipt).iter().for_each(|line| printer.warning(line));
        }
        Notice::Reloaded { changed, removed } => {
            let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            printer.note(format!("reloaded; new or changed: {}; removed: {}", list(changed), list(removed)));
        }
        Notice::Draining(0) => printer.note("stopping"),
        Notice::Draining(sessions) => {
            let sessions = message::counted(*sessions, "session");
            printer.note(format!("stopping: ending {sessions} (after a second signal, leash does not wait for them)"));
        }
        Notice::Warning(text) => printer.warning(text),
    }
}
