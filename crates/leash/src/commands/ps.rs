//! `leash ps`.

mod answer;
mod watch;

use std::collections::HashMap;
use std::slice;

use super::adopt::and_list;
use super::choose::{self, Word};
use super::control::Daemon;
use super::survey::Survey;
use super::unleashed::{self, Unleashed};
use super::{attach, ledger};
use crate::args::Ps;
use crate::output::ids::ShortIds;
use crate::output::message;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::{Column, table};
use crate::output::text::{Text, add};
use crate::{exit_code, places};
pub(super) use answer::PsAnswer;
use leash_model::alive::{AliveSession, MemberKind, SessionMember, TreeProcess};
use leash_model::clock;
use leash_model::owner::Owner;
use leash_model::record::{Phase, Record};
use leash_model::view::OwnerView;
use leash_tree::platform::proc::Proc;
use leash_tree::session::{Target, alive};

pub(crate) fn ps(args: &Ps) -> u8 {
    let printer = Printer::new(false);
    if args.watch {
        return watch::watch(args, printer);
    }
    let (sessions, others) = match read(args, printer) {
        Ok(read) => read,
        Err(code) => return code,
    };
    let runs = sessions.iter().flat_map(|session| &session.members).map(|member| &*member.run);
    let ids = ShortIds::new(sessions.iter().map(|session| &*session.id).chain(runs));
    let sessions = match args.session.as_deref().map(|word| only(word, &sessions)) {
        None => sessions,
        Some(Ok(session)) => vec![session.clone()],
        Some(Err(problem)) => {
            printer.error_text(problem, Some("`leash ps` lists the sessions that are alive"));
            return exit_code::NOT_ALL;
        }
    };
    match args {
        Ps { json: true, .. } => printer.json(PsAnswer::new(&sessions, &others)),
        _ if sessions.is_empty() => {
            printer.data(&[nothing_runs(args, &others), others.shown(args)].into_iter().collect())
        }
        Ps { tree: false, verbose: false, .. } => {
            printer.data(&[listing(&sessions, &ids), others.listing()].into_iter().collect())
        }
        _ => {
            let lines = sessions.iter().map(|session| at_length(session, args, &ids));
            printer.data(&lines.chain([others.trees()]).collect());
        }
    }
    exit_code::OK
}

/// The session that a word names, by itself or by one of its members. The error describes the problem with the word.
fn only<'a>(word: &str, sessions: &'a [AliveSession]) -> Result<&'a AliveSession, String> {
    let target = choose::by_word(sessions, &Word { text: word.to_owned(), may_begin: true })?;
    let is_meant = |session: &&AliveSession| match &target {
        Target::Session(id) => session.id == *id,
        Target::Run(run) => session.members.iter().any(|member| member.run == *run),
    };
    sessions.iter().find(is_meant).ok_or_else(|| format!("no session `{word}` is alive"))
}

/// The message when nothing runs under leash, and what to do next.
fn nothing_runs(args: &Ps, others: &Unleashed) -> Text {
    let place = if args.leashed || !others.is_empty() { "under leash" } else { "here" };
    let adopted = &others.adopted_clients;
    let next = if args.leashed {
        "`leash ps` also lists the servers that other programs started.".to_owned()
    } else if !adopted.is_empty() {
        let whose = if adopted.len() == 1 { "its" } else { "their" };
        format!("Restart {}; then `leash ps` shows {whose} servers.", and_list(adopted))
    } else {
        "`leash adopt` puts the servers of your MCP clients on the leash,\nand `leash run -- COMMAND` starts one."
            .to_owned()
    };
    let mut text = Text::default();
    add(&mut text, format_args!("No MCP server runs {place}."));
    next.lines().for_each(|line| text.line(line));
    text
}

/// The sessions that are alive, and the servers of other programs. The error is an exit code; its message was printed.
fn read(args: &Ps, printer: Printer) -> Result<(Vec<AliveSession>, Unleashed), u8> {
    let stores = ledger::look(printer)?;
    let proc = Proc::own().inspect_err(|why| printer.warning(format!("cannot read processes: {why}"))).ok();
    let (_, held) = Daemon::ask(attach::socket(None), printer);
    let survey =
        proc.filter(|_| !args.leashed && args.session.is_none()).map(|proc| Survey::new(proc, stores.clone(), &[]));
    let trees: std::io::Result<Vec<_>> = stores.iter().map(alive::trees_now).collect();
    let mut members = trees.map_err(|error| ledger::unread(printer, &error))?.concat();
    // The scan comes next: it takes the server of a run that began after the ledger was read for an unleashed one.
    let others = survey.map(|survey| unleashed::look(survey, &members)).unwrap_or_default();
    members.extend(alive::open(&places::places()).unwrap_or_else(|error| {
        printer.warning(format!("upstream sessions can't be listed: {error}"));
        Vec::new()
    }));
    alive::find_clients(&mut members, &places::places());
    if let Some(proc) = &proc {
        alive::find_processes(&mut members, proc);
    }
    Ok((AliveSession::join(members, held), others))
}

const COLUMNS: [Column; 8] = [
    Column::new("SESSION"),
    Column::new("SERVER").cut(16),
    Column::new("OWNER").cut(14).left_out(4),
    Column::new("CONTAINMENT").left_out(1),
    Column::new("PROCS").left_out(2),
    Column::new("MEMORY").left_out(3),
    Column::new("AGE").left_out(5),
    Column::new("STATE").cut(10).verdict(),
];

/// One line per session; if it has several members, one more line for each of them below.
fn listing(sessions: &[AliveSession], ids: &ShortIds) -> Text {
    let mut rows = Vec::new();
    for session in sessions {
        if let Some(only) = session.only() {
            rows.push(row(ids.of(&session.id), only));
            continue;
        }
        rows.push(vec![
            ids.of(&session.id),
            name_and_members(session),
            session_owners(session),
            "-".to_owned(),
            session.processes().to_string(),
            bytes(session.memory_bytes()),
            age(session.started_ms()),
            session_state(session).to_owned(),
        ]);
        rows.extend(session.members.iter().map(|member| row(format!("  {}", handle(member, ids)), member)));
    }
    table(&COLUMNS, &rows)
}

fn row(session: String, member: &SessionMember) -> Vec<String> {
    let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    vec![
        session,
        member.name.clone(),
        owners(member),
        containment(member).to_owned(),
        number(member.processes().map(|processes| processes.len().to_string())),
        number(member.memory_bytes().map(bytes)),
        age(member.started_ms),
        state(member).to_owned(),
    ]
}

fn age(started_ms: u64) -> String {
    span(clock::unix_ms().saturating_sub(started_ms))
}

/// The beginning of an upstream server's id: enough to find it in the server's log, but not enough to use it.
fn short_id(id: &str) -> String {
    id.chars().take(8).collect()
}

/// The part of its id that is enough to end a member alone. A gateway's session has a number and ends with its gateway.
fn handle(member: &SessionMember, ids: &ShortIds) -> String {
    match &member.kind {
        MemberKind::Tree { .. } | MemberKind::Connection { .. } => ids.of(&member.run),
        MemberKind::Upstream { .. } => member.run.rsplit_once('.').map_or("-", |(_, number)| number).to_owned(),
    }
}

fn name_and_members(session: &AliveSession) -> String {
    let members = match session.members.len() {
        1 => "1 member".to_owned(),
        count => format!("{count} members"),
    };
    session.name().map_or(members.clone(), |name| format!("{name}, {members}"))
}

/// The owners of all members, each once; for a session of a daemon, the owner for which the daemon holds it.
pub(super) fn session_owners(session: &AliveSession) -> String {
    match session.held.as_ref().map(|held| &held.owner) {
        Some(OwnerView::Pid { pid }) => format!("pid({pid})"),
        Some(OwnerView::Connection) => "connection".to_owned(),
        Some(OwnerView::None) => "none".to_owned(),
        None => names(session.members.iter().flat_map(|member| &member.owners)),
    }
}

/// The client for which a gateway holds a member, or else its owners; for an upstream session, the process that has it
/// open.
pub(super) fn owners(member: &SessionMember) -> String {
    if let Some(client) = &member.client {
        return client.to_string();
    }
    let process = || member.attendants.first().map_or_else(|| "?".to_owned(), |process| process.pid.to_string());
    command(member).map_or_else(|| names(member.owners.iter()), |command| format!("{command}({})", process()))
}

fn names<'a>(owners: impl Iterator<Item = &'a Owner>) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in owners.map(Owner::describe) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// The command of leash that has an upstream session.
pub(super) fn command(member: &SessionMember) -> Option<&'static str> {
    match &member.kind {
        MemberKind::Tree { .. } => None,
        MemberKind::Connection { .. } => Some("connect"),
        MemberKind::Upstream { .. } => Some("serve"),
    }
}

/// The containment of a tree, or the kind of another member.
fn containment(member: &SessionMember) -> &'static str {
    match &member.kind {
        MemberKind::Tree { record, .. } => record.containment.map_or("-", |containment| containment.name()),
        MemberKind::Connection { open: None } => "connection",
        MemberKind::Connection { open: Some(_) } | MemberKind::Upstream { .. } => "upstream",
    }
}

pub(super) fn state(member: &SessionMember) -> &'static str {
    state_of(member.phase(), slice::from_ref(member))
}

pub(super) fn session_state(session: &AliveSession) -> &'static str {
    state_of(session.phase(), &session.members)
}

/// A member without a process of leash needs the most attention.
fn state_of(phase: Phase, members: &[SessionMember]) -> &'static str {
    match members.iter().find(|member| member.abandoned).map(|member| &member.kind) {
        Some(MemberKind::Tree { .. }) => "abandoned: the next `leash run` ends it",
        Some(_) => "abandoned: the next `leash serve` or `connect` ends it",
        None => match phase {
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Ending => "ending",
        },
    }
}

/// The details of a session.
fn at_length(session: &AliveSession, args: &Ps, ids: &ShortIds) -> Text {
    if let Some(only) = session.only() {
        return details(only, args, ids);
    }
    let (members, owners) = (name_and_members(session), session_owners(session));
    let (age, memory) = (age(session.started_ms()), bytes(session.memory_bytes()));
    let mut text = Text::default();
    add(&mut text, format_args!("{}  {members}, {age}, {}", ids.of(&session.id), session_state(session)));
    add(&mut text, format_args!("  owners: {owners}; {}, {memory}", message::processes(session.processes())));
    text.append(session.members.iter().map(|member| details(member, args, ids)).collect::<Text>().indented());
    text
}

/// The details of a member.
fn details(member: &SessionMember, args: &Ps, ids: &ShortIds) -> Text {
    let mut text = Text::default();
    let (kind, age, state) = (containment(member), age(member.started_ms), state(member));
    add(&mut text, format_args!("{}  {}  {kind}, {age}, {state}", ids.of(&member.session), member.name));
    if let MemberKind::Tree { record, processes } = &member.kind {
        add(&mut text, format_args!("  command: {}", record.command.join(" ")));
        let memory = bytes(member.memory_bytes().unwrap_or_default());
        add(&mut text, format_args!("  owners: {}; {}, {memory}", owners(member), message::processes(processes.len())));
        if let Some(stop) = record.idle_stop {
            add(&mut text, format_args!("  may be ended: when {}", stop.describe()));
        }
        if args.verbose {
            client_details(member, &mut text);
            more(record, ids, &mut text);
        }
        if args.tree {
            draw(processes, &mut text);
        }
        return text;
    }
    let command = command(member).unwrap_or_default();
    match member.open() {
        Some(open) => {
            let (id, url) = (short_id(&open.id), open.shown());
            add(&mut text, format_args!("  session {id} at {url}, for leash {command}"));
        }
        None => add(&mut text, format_args!("  no session is open upstream, for leash {command}")),
    }
    if args.verbose {
        client_details(member, &mut text);
    }
    text
}

/// Appends the line about the client of a gateway.
fn client_details(member: &SessionMember, text: &mut Text) {
    if let Some(client) = &member.client {
        add(text, format_args!("  client: {}", client.details()));
    }
}

/// Appends the lines that `-v` adds.
fn more(record: &Record, ids: &ShortIds, text: &mut Text) {
    let pids = [("leash", record.supervisor), ("keeper", record.keeper), ("server", record.leader)];
    let named: Vec<String> = pids.iter().filter_map(|(name, id)| id.map(|id| format!("{name} {}", id.pid))).collect();
    add(text, format_args!("  pids: {}; run {}", named.join(", "), ids.of(&record.run)));
    for (key, value) in &record.labels {
        add(text, format_args!("  label: {key}={value}"));
    }
    if let Some(containment) = record.containment {
        add(text, format_args!("  promise: {}", containment.promise()));
        add(text, format_args!("  does not cover: {}", containment.does_not_cover()));
    }
    for refusal in &record.refused {
        add(text, format_args!("  not {}: {}", refusal.containment, refusal.why));
    }
}

/// Draws the processes below their parents; a process whose parent is not among them is not indented.
fn draw(processes: &[TreeProcess], text: &mut Text) {
    let mut children: HashMap<i32, Vec<&TreeProcess>> = HashMap::new();
    let known: Vec<i32> = processes.iter().map(|process| process.pid).collect();
    for process in processes {
        let parent = if known.contains(&process.ppid) { process.ppid } else { 0 };
        children.entry(parent).or_default().push(process);
    }
    let mut stack: Vec<(usize, &TreeProcess)> =
        children.remove(&0).unwrap_or_default().into_iter().rev().map(|process| (0, process)).collect();
    while let Some((depth, process)) = stack.pop() {
        let (indent, memory) = ("  ".repeat(depth), bytes(process.memory_bytes));
        add(text, format_args!("  {indent}{} {}  {memory}", process.pid, process.command));
        let below = children.remove(&process.pid).unwrap_or_default();
        stack.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
}
