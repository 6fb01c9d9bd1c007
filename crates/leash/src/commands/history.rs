//! `leash history`.

use leash_model::clock;
use leash_model::receipt::{Fate, How, Reason, Receipt};
use schemars::JsonSchema;
use serde::Serialize;

use super::ledger;
use crate::args::History;
use crate::exit_code;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::table;
use crate::output::{escape, message};

pub(crate) fn history(args: &History) -> u8 {
    let printer = Printer::new(false);
    let mut receipts = match ledger::receipts(printer) {
        Ok(receipts) => receipts,
        Err(code) => return code,
    };
    if let Some(word) = &args.session {
        receipts = of_session(receipts, word);
        if receipts.is_empty() {
            let hint = "`leash history` lists the sessions that ended, `leash ps` those that are alive";
            printer.error_text(format!("no session `{word}` has ended here"), Some(hint));
            return exit_code::NOT_ALL;
        }
    }
    // A user who names a session wants to see all of it.
    let most = args.lines.unwrap_or(if args.session.is_some() { usize::MAX } else { LINES });
    let newest = receipts.split_off(receipts.len().saturating_sub(most));
    let sessions = if args.session.is_some() { by_session(&newest) } else { Vec::new() };
    if args.json {
        let summaries = || sessions.iter().map(|(session, members)| ReceiptSummary::new(session, members)).collect();
        printer.json(HistoryAnswer { receipts: &newest, sessions: args.session.is_some().then(summaries) });
        return exit_code::OK;
    }
    printer.data(table(
        &["ENDED", "SESSION", "SERVER", "REASON", "HOW", "PROCS", "TOOK", "MEMORY", "FATE"],
        &rows(&newest),
    ));
    for receipt in &newest {
        if let Reason::StartFailed { why: Some(why) } = &receipt.reason {
            printer.data(format!("{}: {}\n", escape::line(&receipt.session), escape::line(&why.line())));
        }
    }
    for receipt in newest.iter().filter(|receipt| !receipt.nothing_left()) {
        for line in message::left_lines(receipt) {
            printer.data(format!("{}: {line}\n", escape::line(&receipt.session)));
        }
    }
    for (session, members) in sessions.iter().filter(|(_, members)| members.len() > 1) {
        let fate = message::fate(members.iter().copied());
        let held = message::held(members.iter().flat_map(|receipt| &receipt.holdings));
        let session = escape::line(session);
        printer.data(format!("{session}: {} receipts; {held}; {fate}\n", members.len()));
    }
    exit_code::OK
}

/// The default number of lines.
const LINES: usize = 20;

/// The receipts of a session: of the one with this name, else of one run, else of all whose id begins with the word.
fn of_session(receipts: Vec<Receipt>, word: &str) -> Vec<Receipt> {
    let named = |receipt: &Receipt| session_of(receipt, word) == word;
    let run = |receipt: &Receipt| receipt.run == word;
    let begins = |receipt: &Receipt| receipt.session.starts_with(word) || receipt.run.starts_with(word);
    let wanted: &dyn Fn(&Receipt) -> bool = if receipts.iter().any(named) {
        &named
    } else if receipts.iter().any(run) {
        &run
    } else {
        &begins
    };
    receipts.into_iter().filter(|receipt| wanted(receipt)).collect()
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

fn rows(receipts: &[Receipt]) -> Vec<Vec<String>> {
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
            receipt.session.clone(),
            receipt.name.clone(),
            receipt.reason.describe(),
            how.unwrap_or("-").to_owned(),
            tree.map_or(0, |tree| tree.members).to_string(),
            span(receipt.took_ms),
            bytes(tree.map_or(0, |tree| tree.memory_bytes)),
            worst(receipt).to_owned(),
        ]
    };
    receipts.iter().map(row).collect()
}
