//! `leash end`.

use leash_core::ledger::book::Book;
use leash_core::ledger::receipt::Receipt;
use leash_core::ledger::record::Record;
use leash_core::ledger::store::Store;
use leash_core::session::{self, Ended};
use leash_core::tree::proc::Proc;
use serde_json::json;

use super::ledger;
use crate::args::End;
use crate::exit_code;
use crate::output::message;
use crate::output::printer::Printer;
use crate::places;

pub(crate) fn end(args: &End) -> u8 {
    let printer = Printer::new(false);
    let proc = match Proc::own() {
        Ok(proc) => proc,
        Err(why) => {
            printer.error_text(
                format!("cannot tell processes apart: {why}"),
                Some("run `leash end` where `leash run` runs"),
            );
            return exit_code::LEASH_FAILED;
        }
    };
    let store = match ledger::look(printer) {
        Ok(store) => store,
        Err(code) => return code,
    };
    let (runs, unknown) = match select(store.as_ref(), &args.sessions) {
        Ok(selected) => selected,
        Err(error) => {
            printer.error(&error, None);
            return exit_code::LEASH_FAILED;
        }
    };
    let mut ended = store.map(|store| session::end(&store, &proc, runs)).unwrap_or_default();
    let unknown = end_connections(&unknown, &proc, &mut ended);
    for problem in &unknown {
        printer.error_text(
            problem,
            Some("`leash ps` lists the sessions that are alive, `leash history` those that ended"),
        );
    }
    ended.warnings.iter().for_each(|warning| printer.warning(warning));
    show(printer, args.json, &ended.receipts, &ended.unfinished);
    let all_gone = ended.receipts.iter().all(Receipt::all_gone) && ended.unfinished.is_empty() && unknown.is_empty();
    if all_gone { exit_code::OK } else { exit_code::NOT_ALL }
}

fn show(printer: Printer, as_json: bool, receipts: &[Receipt], unfinished: &[(String, String)]) {
    if as_json {
        let unfinished: Vec<_> = unfinished.iter().map(|(run, why)| json!({ "run": run, "why": why })).collect();
        return printer
            .data(format!("{:#}\n", json!({ "version": 1, "receipts": receipts, "unfinished": unfinished })));
    }
    for receipt in receipts {
        printer.data(format!("{}\n", message::receipt_line(receipt)));
        for line in message::left_lines(receipt) {
            printer.data(format!("  {line}\n"));
        }
    }
    for (run, why) in unfinished {
        printer.error_text(format!("run {run}: {why}"), None);
    }
}

/// A word that means no run, and what to say about it.
struct Unknown {
    word: String,
    problem: String,
}

/// Ends the connections (`leash connect`) that words mean which mean no run; the problems that remain.
fn end_connections(unknown: &[Unknown], proc: &Proc, ended: &mut Ended) -> Vec<String> {
    let dir = places::runtime_dir();
    let books = if unknown.is_empty() { Vec::new() } else { Book::list(&dir).unwrap_or_default() };
    let open = || books.iter().flat_map(|book| book.open.iter().map(move |entry| (book, entry)));
    let mut problems = Vec::new();
    for Unknown { word, problem } in unknown {
        let exact: Vec<_> = open().filter(|(_, entry)| entry.session == *word).collect();
        let begins = || open().filter(|(_, entry)| entry.session.starts_with(word.as_str())).collect::<Vec<_>>();
        let found = if exact.is_empty() { begins() } else { exact };
        match &found[..] {
            [] => problems.push(problem.clone()),
            [(_, first), rest @ ..] if rest.iter().any(|(_, entry)| entry.session != first.session) => {
                problems.push(format!("`{word}` is the beginning of {} sessions", found.len()));
            }
            [(book, _), ..] if book.cover.command != "connect" => {
                problems
                    .push(format!("`{word}` belongs to a client of `leash {}` and ends with it", book.cover.command));
            }
            found => {
                for (book, entry) in found {
                    match session::end_connection(&dir, book, &entry.session, proc) {
                        Ok(receipt) => ended.receipts.push(receipt),
                        Err(why) => ended.unfinished.push((entry.session.clone(), why)),
                    }
                }
            }
        }
    }
    problems
}

/// The runs that the given words mean, and what is wrong with the words that mean none.
fn select(store: Option<&Store>, words: &[String]) -> std::io::Result<(Vec<Record>, Vec<Unknown>)> {
    let found = store.map(Store::list).transpose()?.unwrap_or_default();
    let records: Vec<Record> =
        found.into_iter().filter_map(|found| found.record).filter(Record::of_this_place).collect();
    let (mut chosen, mut unknown): (Vec<Record>, Vec<Unknown>) = (Vec::new(), Vec::new());
    for word in words {
        match matching(&records, word) {
            Ok(runs) => chosen.extend(runs.into_iter().cloned()),
            Err(problem) => unknown.push(Unknown { word: word.clone(), problem }),
        }
    }
    chosen.sort_by(|a, b| a.run.cmp(&b.run));
    chosen.dedup_by(|a, b| a.run == b.run);
    Ok((chosen, unknown))
}

/// All runs of a session, one run, or those of the one session whose id begins so.
fn matching<'a>(records: &'a [Record], word: &str) -> Result<Vec<&'a Record>, String> {
    let exact: Vec<&Record> = records.iter().filter(|record| record.session == word || record.run == word).collect();
    if !exact.is_empty() {
        return Ok(exact);
    }
    let begins: Vec<&Record> =
        records.iter().filter(|record| record.session.starts_with(word) || record.run.starts_with(word)).collect();
    match begins.as_slice() {
        [] => Err(format!("no session `{word}` is alive")),
        [first, rest @ ..] if rest.iter().all(|record| record.session == first.session) => Ok(begins),
        several => Err(format!("`{word}` is the beginning of {} sessions", several.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(run: &str, session: &str) -> Record {
        let text = json!({
            "version": 1, "boot": "", "pid_namespace": 0, "run": run, "session": session, "name": "x", "command": [], "owners": [], "phase": "running",
            "supervisor": null, "keeper": null, "leader": null, "members": [], "memory_bytes": 0, "containment": null, "leaf": null,
            "grace_ms": 0, "started_ms": 0, "receipts": "",
        });
        serde_json::from_value(text).unwrap()
    }

    fn check(word: &str, runs: &[&str]) {
        let records = [record("aa1", "job-1"), record("aa2", "job-1"), record("bb1", "job-2"), record("cc1", "cc1")];
        let found =
            matching(&records, word).map(|found| found.iter().map(|record| record.run.clone()).collect::<Vec<_>>());
        assert_eq!(found.unwrap_or_default(), runs, "{word}");
    }

    #[test]
    fn by_session_run_or_beginning() {
        check("job-1", &["aa1", "aa2"]);
        check("aa2", &["aa2"]);
        check("cc", &["cc1"]);
        check("job-", &[]);
        check("zz", &[]);
    }
}
