//! `leash history`.

use leash_core::clock;
use leash_core::ledger::receipt::{self, How, Receipt};
use serde_json::json;

use crate::args::History;
use crate::exit_code;
use crate::output::message;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::table;
use crate::places;

pub(crate) fn history(args: &History) -> u8 {
    let printer = Printer::new(false);
    let path = places::places().receipts;
    let (mut receipts, broken) = match receipt::read(&path) {
        Ok(read) => read,
        Err(error) => {
            printer.error_text(format!("cannot read {}: {error}", path.display()), Some("check XDG_STATE_HOME"));
            return exit_code::LEASH_FAILED;
        }
    };
    if broken > 0 {
        printer.warning(format!("{broken} lines of {} are not receipts", path.display()));
    }
    if let Some(session) = &args.session {
        receipts.retain(|receipt| {
            receipt.session.starts_with(session.as_str()) || receipt.run.starts_with(session.as_str())
        });
    }
    let newest = receipts.split_off(receipts.len().saturating_sub(args.lines));
    if args.json {
        printer.data(format!("{:#}\n", json!({ "version": 1, "receipts": newest })));
        return exit_code::OK;
    }
    printer.data(table(
        &["ENDED", "SESSION", "SERVER", "REASON", "HOW", "PROCS", "TOOK", "MEMORY", "FATE"],
        &rows(&newest),
    ));
    for receipt in newest.iter().filter(|receipt| !receipt.all_gone()) {
        for line in message::left_lines(receipt) {
            printer.data(format!("{}: {line}\n", receipt.session));
        }
    }
    exit_code::OK
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
            if receipt.all_gone() { "gone" } else { "LEFT" }.to_owned(),
        ]
    };
    receipts.iter().map(row).collect()
}
