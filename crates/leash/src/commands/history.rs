//! `leash history`.

use std::collections::BTreeSet;

use leash_model::receipt::{Fate, How, Reason, Receipt};
use leash_model::{clock, duration};
use schemars::JsonSchema;
use serde::Serialize;

use super::{choose, ledger};
use crate::args::History;
use crate::exit_code;
use crate::output::ids::{self, ShortIds};
use crate::output::message;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::{Column, table};
use crate::output::text::Text;

pub(crate) fn history(args: &History) -> u8 {
    let printer = Printer::new(false);
    let mut receipts = match ledger::receipts(printer) {
        Ok(receipts) => receipts,
        Err(code) => return code,
    };
    // A short id must be unique among all, because it is accepted as such.
    let ids = ShortIds::new(receipts.iter().flat_map(|receipt| [&*receipt.session, &*receipt.run]));
    if let Some(word) = &args.session {
        receipts = match of_session(receipts, word) {
            Ok(receipts) => receipts,
            Err(problem) => {
                let hint = "`leash history` lists the sessions that ended, `leash ps` those that are alive";
                printer.error_text(problem, Some(hint));
                return exit_code::NOT_ALL;
            }
        };
    }
    let known = receipts.len();
    receipts.retain(|receipt| is_wanted(args, receipt, clock::unix_ms()));
    // A user who names a session or a time wants to see all of it.
    let is_chosen = args.session.is_some() || args.since.is_some();
    let most = args.lines.unwrap_or(if is_chosen { usize::MAX } else { LINES });
    let newest = receipts.split_off(receipts.len().saturating_sub(most));
    let sessions = if args.session.is_some() { by_session(&newest) } else { Vec::new() };
    if args.json {
        let summaries = || sessions.iter().map(|(session, members)| ReceiptSummary::new(session, members)).collect();
        printer.json(HistoryAnswer { receipts: &newest, sessions: args.session.is_some().then(summaries) });
        return exit_code::OK;
    }
    printer.data(&listing(&newest, &sessions, &ids));
    if newest.is_empty() {
        printer.note(match known {
            0 => "No session has ended here. `leash ps` lists those that are alive.",
            _ => "No session that ended here is of this kind. `leash history` lists all.",
        });
    }
    exit_code::OK
}

/// True if a receipt passes the filters of the command line.
fn is_wanted(args: &History, receipt: &Receipt, now_ms: u64) -> bool {
    let has_client = |wanted: &String| {
        let Some(client) = &receipt.client else { return false };
        let is_pid = client.pid.is_some_and(|pid| pid.to_string() == *wanted);
        is_pid || choose::matches(&wanted.to_lowercase(), &client.name().to_lowercase())
    };
    args.since.is_none_or(|since| now_ms.saturating_sub(receipt.ended_ms) <= duration::as_ms(since))
        && args.client.as_ref().is_none_or(has_client)
        && (!args.left || !receipt.nothing_left())
}

const COLUMNS: [Column; 9] = [
    Column::new("ENDED"),
    Column::new("SESSION"),
    Column::new("SERVER").cut(12),
    Column::new("REASON").cut(20).left_out(5),
    Column::new("HOW").cut(8).left_out(4),
    Column::new("PROCS").left_out(1),
    Column::new("TOOK").left_out(3),
    Column::new("MEMORY").left_out(2),
    Column::new("FATE").verdict(),
];

/// The table, what is left, and a summary of each session that the user named.
fn listing(newest: &[Receipt], sessions: &[(&str, Vec<&Receipt>)], ids: &ShortIds) -> Text {
    let mut text = table(&COLUMNS, &rows(newest, ids));
    for receipt in newest {
        if let Reason::StartFailed { why: Some(why) } = &receipt.reason {
            text.line(format_args!("{}: {}", ids.of(&receipt.session), why.line()));
        }
    }
    for receipt in newest {
        if let Some(line) = receipt.trees().find_map(|tree| tree.stderr.last()) {
            text.line(format_args!("{}: its stderr ends with: {line}", ids.of(&receipt.session)));
        }
    }
    for receipt in newest.iter().filter(|receipt| !receipt.nothing_left()) {
        for line in message::left_lines(receipt) {
            text.line(format_args!("{}: {line}", ids.of(&receipt.session)));
        }
    }
    for (session, members) in sessions.iter().filter(|(_, members)| members.len() > 1) {
        let fate = message::fate(members.iter().copied());
        let held = message::held(members.iter().flat_map(|receipt| &receipt.holdings));
        text.line(format_args!("{}: {} receipts; {held}; {fate}", ids.of(session), members.len()));
    }
    text
}

/// The default number of lines.
const LINES: usize = 20;

/// The receipts of a session: of the one with this name, else of one run, else of the only one whose id begins with the
/// word. The error describes the problem with the word.
fn of_session(receipts: Vec<Receipt>, word: &str) -> Result<Vec<Receipt>, String> {
    let named = |receipt: &Receipt| session_of(receipt, word) == word;
    let run = |receipt: &Receipt| receipt.run == word;
    let begins = |receipt: &Receipt| begun(receipt, word).is_some();
    let wanted: &dyn Fn(&Receipt) -> bool = if receipts.iter().any(named) {
        &named
    } else if receipts.iter().any(run) {
        &run
    } else {
        let found: BTreeSet<&str> = receipts.iter().filter_map(|receipt| begun(receipt, word)).collect();
        match found.len() {
            0 => return Err(format!("no session `{word}` has ended here")),
            1 => &begins,
            _ => return Err(ids::ambiguous(word, &found.into_iter().collect::<Vec<_>>())),
        }
    };
    Ok(receipts.into_iter().filter(|receipt| wanted(receipt)).collect())
}

/// The id of the session or the run that begins with a word.
fn begun<'r>(receipt: &'r Receipt, word: &str) -> Option<&'r str> {
    if !ids::begins(&receipt.session, word) {
        return Some(&*receipt.run).filter(|run| ids::begins(run, word));
    }
    // The parts of a gateway's session are one session, unless the word names one of them.
    let numbered = receipt.session.rsplit_once('.').map(|(session, _)| session);
    Some(numbered.filter(|session| ids::is_made(session) && session.starts_with(word)).unwrap_or(&receipt.session))
}

/// The session of a receipt. A gateway's receipt has the session's id and a number.
fn session_of<'r>(receipt: &'r Receipt, word: &str) -> &'r str {
    let numbered = receipt.session.rsplit_once('.');
    numbered.map(|(session, _)| session).filter(|session| *session == word).unwrap_or(&receipt.session)
}

/// The sessions in the order in which they first appear, with their receipts.
fn by_session(receipts: &[Receipt]) -> Vec<(&str, Vec<&Receipt>)> {
    let mut sessions: Vec<(&str, Vec<&Receipt>)> = Vec::new();
    for receipt in receipts {
        let whole = receipt.session.rsplit_once('.').map(|(session, _)| session);
        let mut at = sessions.iter().position(|(session, _)| *session == receipt.session);
        at = at.or_else(|| sessions.iter().position(|(session, _)| Some(*session) == whole));
        match at {
            Some(at) => sessions[at].1.push(receipt),
            None => sessions.push((&receipt.session, vec![receipt])),
        }
    }
    sessions
}

/// What `leash history --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct HistoryAnswer<'a> {
    /// The receipts, the newest last.
    receipts: &'a [Receipt],
    /// The sessions of these receipts; only if a session was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<Vec<ReceiptSummary<'a>>>,
}

/// The receipts of a session, counted.
#[derive(Serialize, JsonSchema)]
struct ReceiptSummary<'a> {
    /// Its id.
    session: &'a str,
    /// The number of receipts.
    receipts: usize,
    /// True if everything is proved to be gone.
    all_gone: bool,
    /// The number of process trees.
    trees: usize,
    /// The number of sessions at HTTP servers.
    upstream: usize,
    /// The number of processes.
    processes: usize,
    /// The memory that they used.
    memory_bytes: u64,
    /// The first start, milliseconds since 1970.
    started_ms: Option<u64>,
    /// The last end, milliseconds since 1970.
    ended_ms: Option<u64>,
}

impl<'a> ReceiptSummary<'a> {
    fn new(session: &'a str, members: &[&Receipt]) -> ReceiptSummary<'a> {
        let trees = || members.iter().flat_map(|receipt| receipt.trees());
        ReceiptSummary {
            session,
            receipts: members.len(),
            all_gone: members.iter().all(|receipt| receipt.all_gone()),
            trees: trees().count(),
            upstream: members.iter().flat_map(|receipt| receipt.upstreams()).count(),
            processes: trees().map(|tree| tree.members).sum(),
            memory_bytes: trees().map(|tree| tree.memory_bytes).sum(),
            started_ms: members.iter().map(|receipt| receipt.started_ms).min(),
            ended_ms: members.iter().map(|receipt| receipt.ended_ms).max(),
        }
    }
}

/// The worst result in a receipt.
fn worst(receipt: &Receipt) -> &'static str {
    if receipt.holdings.is_empty() {
        return "-";
    }
    let worst = [Fate::Left, Fate::Ended].into_iter();
    let worst = worst.into_iter().find(|fate| receipt.holdings.iter().any(|holding| holding.fate() == fate));
    message::fate_word(&worst.unwrap_or(Fate::Gone))
}

fn rows(receipts: &[Receipt], ids: &ShortIds) -> Vec<Vec<String>> {
    let now = clock::unix_ms();
    let row = |receipt: &Receipt| {
        let tree = receipt.trees().next();
        let how = tree.map(|tree| match tree.how {
            How::Exited => "exited",
            How::Eof => "eof",
            How::Term => "term",
            How::Kill => "kill",
        });
        let how = how.or_else(|| receipt.upstreams().next().map(|upstream| message::delete_how(upstream.how)));
        vec![
            format!("{} ago", span(now.saturating_sub(receipt.ended_ms))),
            ids.of(&receipt.session),
            receipt.name.clone(),
            receipt.why(),
            how.unwrap_or("-").to_owned(),
            tree.map_or(0, |tree| tree.members).to_string(),
            span(receipt.took_ms),
            bytes(tree.map_or(0, |tree| tree.memory_bytes)),
            worst(receipt).to_owned(),
        ]
    };
    receipts.iter().map(row).collect()
}
