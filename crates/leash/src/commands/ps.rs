//! `leash ps`.

use std::collections::HashMap;
use std::fmt::Write as _;

use leash_core::clock;
use leash_core::ledger::book::{Book, Entry, Listed};
use leash_core::ledger::record::{Phase, Record};
use leash_core::session::{self, Live, Member};
use leash_core::tree::proc::Proc;
use serde_json::json;

use super::ledger;
use crate::args::Ps;
use crate::exit_code;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::table;
use crate::places;

pub(crate) fn ps(args: &Ps) -> u8 {
    let printer = Printer::new(false);
    let proc = Proc::own();
    let runs = match ledger::look(printer)
        .map(|store| store.map(|store| session::list(&store, proc.as_ref().ok())).transpose())
    {
        Ok(Ok(runs)) => runs.unwrap_or_default(),
        Ok(Err(error)) => {
            printer.error(&error, Some("check the runtime directory with `leash doctor`"));
            return exit_code::LEASH_FAILED;
        }
        Err(code) => return code,
    };
    if let Err(why) = &proc {
        printer.warning(format!("processes can't be looked at: {why}"));
    }
    let books = Book::list(&places::runtime_dir()).unwrap_or_else(|error| {
        printer.warning(format!("upstream sessions can't be listed: {error}"));
        Vec::new()
    });
    printer.data(match args {
        Ps { json: true, .. } => as_json(&runs, &books),
        Ps { tree: false, verbose: false, .. } => listing(&runs, &books),
        _ => {
            let mut text: String = runs.iter().map(|run| details(run, args.verbose, args.tree)).collect();
            text.extend(upstreams(&books).map(|(book, entry)| upstream_details(book, entry)));
            text
        }
    });
    exit_code::OK
}

/// Every session that is open at an HTTP server, and whose book it is in.
fn upstreams(books: &[Listed]) -> impl Iterator<Item = (&Listed, &Entry)> {
    books.iter().flat_map(|book| book.open.iter().map(move |entry| (book, entry)))
}

fn upstream_state(book: &Listed) -> &'static str {
    if book.attended { "running" } else { "abandoned: the next `leash serve` or `connect` ends it" }
}

fn upstream_details(book: &Listed, entry: &Entry) -> String {
    let age = span(clock::unix_ms().saturating_sub(entry.started_ms));
    format!(
        "{}  {}  upstream, {age}, {}\n  session {} at {}, for leash {}\n",
        entry.session,
        entry.server,
        upstream_state(book),
        short_id(&entry.id),
        entry.shown(),
        book.cover.command,
    )
}

/// The beginning of an id: enough to find it in a server's log, too little to use it.
fn short_id(id: &str) -> String {
    id.chars().take(8).collect()
}

fn upstream_row(book: &Listed, entry: &Entry) -> Vec<String> {
    let process = book.cover.process.map_or_else(|| "?".to_owned(), |process| process.pid.to_string());
    vec![
        entry.session.clone(),
        entry.server.clone(),
        format!("{}({process})", book.cover.command),
        "upstream".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        span(clock::unix_ms().saturating_sub(entry.started_ms)),
        upstream_state(book).to_owned(),
    ]
}

fn listing(runs: &[Live], books: &[Listed]) -> String {
    let mut rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            let record = &run.record;
            vec![
                record.session.clone(),
                record.name.clone(),
                owners(record),
                record.containment.map_or("-", |containment| containment.name()).to_owned(),
                run.members.len().to_string(),
                bytes(run.memory_bytes()),
                age(record),
                state(run).to_owned(),
            ]
        })
        .collect();
    rows.extend(upstreams(books).map(|(book, entry)| upstream_row(book, entry)));
    table(&["SESSION", "SERVER", "OWNER", "CONTAINMENT", "PROCS", "MEMORY", "AGE", "STATE"], &rows)
}

fn owners(record: &Record) -> String {
    let names: Vec<String> = record.owners.iter().map(|owner| owner.describe()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

fn age(record: &Record) -> String {
    span(clock::unix_ms().saturating_sub(record.started_ms))
}

fn state(run: &Live) -> &'static str {
    match (run.attended, run.record.phase) {
        (false, _) => "abandoned: the next `leash run` ends it",
        (true, Phase::Starting) => "starting",
        (true, Phase::Running) => "running",
        (true, Phase::Ending) => "ending",
    }
}

/// One run at length.
fn details(run: &Live, verbose: bool, tree: bool) -> String {
    let record = &run.record;
    let containment = record.containment.map_or("-", |containment| containment.name());
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}  {}  {}, {}, {}", record.session, record.name, containment, age(record), state(run));
    let _ = writeln!(text, "  command: {}", record.command.join(" "));
    let _ =
        writeln!(text, "  owners: {}; {} processes, {}", owners(record), run.members.len(), bytes(run.memory_bytes()));
    if verbose {
        let pids = [("leash", record.supervisor), ("keeper", record.keeper), ("server", record.leader)];
        let named: Vec<String> =
            pids.iter().filter_map(|(name, id)| id.map(|id| format!("{name} {}", id.pid))).collect();
        let _ = writeln!(text, "  pids: {}; run {}", named.join(", "), record.run);
        for (key, value) in &record.labels {
            let _ = writeln!(text, "  label: {key}={value}");
        }
        if let Some(containment) = record.containment {
            let _ = writeln!(text, "  promise: {}", containment.promise());
            let _ = writeln!(text, "  does not cover: {}", containment.does_not_cover());
        }
        for refusal in &record.refused {
            let _ = writeln!(text, "  not {}: {}", refusal.containment, refusal.why);
        }
    }
    if tree {
        draw(&run.members, &mut text);
    }
    text
}

/// Draws the members below their parents; who has no parent among them stands at the left.
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
        let _ = writeln!(
            text,
            "  {}{} {}  {}",
            "  ".repeat(depth),
            member.stat.pid,
            member.command,
            bytes(member.memory_bytes)
        );
        let below = children.remove(&member.stat.pid).unwrap_or_default();
        stack.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
}

fn as_json(runs: &[Live], books: &[Listed]) -> String {
    let now = clock::unix_ms();
    let sessions: Vec<_> = runs
        .iter()
        .map(|run| {
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
        })
        .collect();
    let upstream: Vec<_> = upstreams(books)
        .map(|(book, entry)| {
            json!({
                "session": entry.session, "name": entry.server, "url": entry.shown(), "id": short_id(&entry.id),
                "protocol_version": entry.version, "command": book.cover.command, "process": book.cover.process,
                "attended": book.attended, "age_ms": now.saturating_sub(entry.started_ms), "started_ms": entry.started_ms,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "version": 1, "sessions": sessions, "upstream": upstream }))
}
