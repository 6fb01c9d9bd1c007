//! `leash ps`.

use std::collections::HashMap;

use leash_model::clock;
use leash_model::record::Record;
use leash_tree::ledger::book::Book;
use leash_tree::platform::proc::Proc;
use leash_tree::session::{self, Live, Member};
use serde_json::json;

use super::control::Daemon;
use super::groups::{Group, Part, groups, short_id};
use super::unleashed::{self, Unleashed};
use super::{attach, ledger};
use crate::args::Ps;
use crate::output::escape::add;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::table;
use crate::{exit_code, places};

pub(crate) fn ps(args: &Ps) -> u8 {
    let printer = Printer::new(false);
    let proc = Proc::own();
    let runs = match ledger::look(printer).map(|stores| session::list(&stores, proc.as_ref().ok())) {
        Ok(Ok(runs)) => runs,
        Ok(Err(error)) => {
            printer.error(&error, Some("check the runtime directory with `leash doctor`"));
            return exit_code::LEASH_FAILED;
        }
        Err(code) => return code,
    };
    if let Err(why) = &proc {
        printer.warning(format!("cannot read processes: {why}"));
    }
    let books = Book::list_all(&places::places()).unwrap_or_else(|error| {
        printer.warning(format!("upstream sessions can't be listed: {error}"));
        Vec::new()
    });
    let (daemon, silent) = Daemon::ask(&attach::socket(None));
    silent.iter().for_each(|warning| printer.warning(warning));
    let groups = groups(&runs, &books, &daemon.sessions);
    let others = if args.leashed { Unleashed::default() } else { unleashed::look(printer) };
    match args {
        Ps { json: true, .. } => printer.exact(as_json(&groups, &others)),
        Ps { tree: false, verbose: false, .. } => printer.data(listing(&groups) + &others.listing()),
        _ => {
            printer.data(groups.iter().map(|group| at_length(group, args)).chain([others.trees()]).collect::<String>())
        }
    }
    exit_code::OK
}

/// One line per session; if it has several members, one more line for each of them below.
fn listing(groups: &[Group<'_>]) -> String {
    let mut rows = Vec::new();
    for group in groups {
        if let Some(only) = group.only() {
            rows.push(row(group.session.to_owned(), only));
            continue;
        }
        rows.push(vec![
            group.session.to_owned(),
            group.members(),
            group.owners(),
            "-".to_owned(),
            group.processes().to_string(),
            bytes(group.memory_bytes()),
            span(clock::unix_ms().saturating_sub(group.started_ms())),
            group.state().to_owned(),
        ]);
        rows.extend(group.parts.iter().map(|part| row(format!("  {}", part.handle()), part)));
    }
    table(&["SESSION", "SERVER", "OWNER", "CONTAINMENT", "PROCS", "MEMORY", "AGE", "STATE"], &rows)
}

fn row(session: String, part: &Part<'_>) -> Vec<String> {
    let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    vec![
        session,
        part.name().to_owned(),
        part.owners(),
        part.kind().to_owned(),
        number(part.live().map(|run| run.members.len().to_string())),
        number(part.live().map(|run| bytes(run.memory_bytes()))),
        span(clock::unix_ms().saturating_sub(part.started_ms())),
        part.state().to_owned(),
    ]
}

/// The details of a session.
fn at_length(group: &Group<'_>, args: &Ps) -> String {
    let part = |part: &Part<'_>| match part {
        Part::Run(run) => details(run, args.verbose, args.tree),
        part => upstream_details(part),
    };
    if let Some(only) = group.only() {
        return part(only);
    }
    let age = span(clock::unix_ms().saturating_sub(group.started_ms()));
    let mut text = String::new();
    add(&mut text, format_args!("{}  {}, {age}, {}", group.session, group.members(), group.state()));
    let (owners, memory) = (group.owners(), bytes(group.memory_bytes()));
    add(&mut text, format_args!("  owners: {owners}; {} processes, {memory}", group.processes()));
    let lines = group.parts.iter().map(part).collect::<String>();
    text.extend(lines.lines().map(|line| format!("  {line}\n")));
    text
}

fn upstream_details(part: &Part<'_>) -> String {
    let age = span(clock::unix_ms().saturating_sub(part.started_ms()));
    let mut text = String::new();
    add(&mut text, format_args!("{}  {}  {}, {age}, {}", part.session(), part.name(), part.kind(), part.state()));
    let (book, entry) = part.upstream();
    let (command, entry) = (book.map_or("", |book| book.cover.command.name()), entry);
    match entry {
        Some(entry) => {
            let (id, url) = (short_id(&entry.id), entry.shown());
            add(&mut text, format_args!("  session {id} at {url}, for leash {command}"));
        }
        None => add(&mut text, format_args!("  no session is open upstream, for leash {command}")),
    }
    text
}

/// The details of one run.
fn details(run: &Live, verbose: bool, tree: bool) -> String {
    let record = &run.record;
    let part = Part::Run(run);
    let age = span(clock::unix_ms().saturating_sub(record.started_ms));
    let mut text = String::new();
    add(&mut text, format_args!("{}  {}  {}, {age}, {}", record.session, record.name, part.kind(), part.state()));
    add(&mut text, format_args!("  command: {}", record.command.join(" ")));
    let (processes, memory) = (run.members.len(), bytes(run.memory_bytes()));
    add(&mut text, format_args!("  owners: {}; {processes} processes, {memory}", part.owners()));
    if verbose {
        more(record, &mut text);
    }
    if tree {
        draw(&run.members, &mut text);
    }
    text
}

/// Appends the lines that `-v` adds.
fn more(record: &Record, text: &mut String) {
    let pids = [("leash", record.supervisor), ("keeper", record.keeper), ("server", record.leader)];
    let named: Vec<String> = pids.iter().filter_map(|(name, id)| id.map(|id| format!("{name} {}", id.pid))).collect();
    add(text, format_args!("  pids: {}; run {}", named.join(", "), record.run));
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

/// Draws the members below their parents; a member whose parent is not among them is not indented.
fn draw(members: &[Member], text: &mut String) {
    let mut children: HashMap<i32, Vec<&Member>> = HashMap::new();
    let known: Vec<i32> = members.iter().map(|member| member.stat.pid).collect();
    for member in members {
        let parent = if known.contains(&member.stat.ppid) { member.stat.ppid } else { 0 };
        children.entry(parent).or_default().push(member);
    }
    let mut stack: Vec<(usize, &Member)> =
        children.remove(&0).unwrap_or_default().into_iter().rev().map(|member| (0, member)).collect();
    while let Some((depth, member)) = stack.pop() {
        let (indent, memory) = ("  ".repeat(depth), bytes(member.memory_bytes));
        add(text, format_args!("  {indent}{} {}  {memory}", member.stat.pid, member.command));
        let below = children.remove(&member.stat.pid).unwrap_or_default();
        stack.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
}

/// `sessions` are runs, `upstream` are sessions that are open at HTTP servers, `groups` are the sessions that these
/// belong to.
fn as_json(groups: &[Group<'_>], others: &Unleashed) -> String {
    let now = clock::unix_ms();
    let mut parts: Vec<&Part<'_>> = groups.iter().flat_map(|group| &group.parts).collect();
    parts.sort_by_key(|part| part.started_ms());
    let sessions: Vec<_> = parts.iter().filter_map(|part| part.live()).map(|run| run_json(run, now)).collect();
    let open = parts.iter().filter_map(|part| {
        let (book, entry) = part.upstream();
        Some((book?, entry?))
    });
    let upstream: Vec<_> = open
        .map(|(book, entry)| {
            json!({
                "session": entry.session, "name": entry.server, "url": entry.shown(), "id": short_id(&entry.id),
                "protocol_version": entry.version, "command": book.cover.command.name(), "process": book.cover.process,
                "attended": book.attended, "age_ms": now.saturating_sub(entry.started_ms), "started_ms": entry.started_ms,
            })
        })
        .collect();
    let groups: Vec<_> = groups.iter().map(|group| group_json(group, now)).collect();
    let all = json!({
        "version": 1, "sessions": sessions, "upstream": upstream, "groups": groups, "servers": others.as_json(),
    });
    format!("{all:#}\n")
}

fn run_json(run: &Live, now: u64) -> serde_json::Value {
    let record = &run.record;
    let members = run.members.iter().map(|member| {
        json!({
            "pid": member.stat.pid, "ppid": member.stat.ppid, "start": member.stat.start, "state": member.stat.state.to_string(),
            "command": member.command, "memory_bytes": member.memory_bytes,
        })
    });
    json!({
        "session": record.session, "run": record.run, "name": record.name, "labels": record.labels, "command": record.command,
        "owners": record.owners, "phase": record.phase, "attended": run.attended,
        "containment": record.containment, "refused": record.refused,
        "promise": record.containment.map(|containment| containment.promise()),
        "does_not_cover": record.containment.map(|containment| containment.does_not_cover()),
        "supervisor": record.supervisor, "keeper": record.keeper, "leader": record.leader,
        "processes": run.members.len(), "members": members.collect::<Vec<_>>(),
        "memory_bytes": run.memory_bytes(), "age_ms": now.saturating_sub(record.started_ms), "started_ms": record.started_ms,
    })
}

fn group_json(group: &Group<'_>, now: u64) -> serde_json::Value {
    let member = |part: &Part<'_>| {
        json!({
            "kind": part.word(), "run": part.run(), "name": part.name(), "labels": part.labels(),
            "owners": part.owner_list(), "attended": part.attended(), "state": part.state(),
            "processes": part.live().map(|run| run.members.len()), "memory_bytes": part.live().map(Live::memory_bytes),
            "url": part.upstream().1.map(|entry| entry.shown()), "started_ms": part.started_ms(),
        })
    };
    json!({
        "session": group.session, "name": group.name(), "servers": group.servers(), "members": group.parts.iter().map(member).collect::<Vec<_>>(),
        "processes": group.processes(), "memory_bytes": group.memory_bytes(), "state": group.state(),
        "age_ms": now.saturating_sub(group.started_ms()), "started_ms": group.started_ms(),
    })
}
