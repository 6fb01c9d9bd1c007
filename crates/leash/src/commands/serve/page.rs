//! The functions behind the page of `leash serve`.

use std::path::PathBuf;
use std::sync::Arc;

use leash_gateway::{PageEnd, PageReceipt, PageSource, PageTarget};
use leash_model::feed::FeedLook;
use leash_model::receipt::Receipt;
use leash_tree::ledger::receipts;
use leash_tree::session::Target;

use super::super::actions;
use super::super::feed::{Looker, follow};
use crate::output::message;
use crate::places;

/// The functions for a gateway with this control socket.
pub(super) fn source(socket: PathBuf) -> Arc<dyn PageSource> {
    Arc::new(LocalSource { socket })
}

struct LocalSource {
    socket: PathBuf,
}

impl PageSource for LocalSource {
    fn follow(&self, take: &mut dyn FnMut(FeedLook) -> bool) {
        follow(Looker::new(true, self.socket.clone()), &[], take);
    }

    fn explain(&self, pid: i32) -> Vec<String> {
        actions::explain(pid)
    }

    fn history(&self, most: usize) -> Vec<PageReceipt> {
        let files = places::receipts_files();
        // A file that cannot be read is shown by `leash history`.
        let read = files.iter().filter_map(|file| receipts::read(file).ok());
        let mut all: Vec<Receipt> = read.flat_map(|(found, _)| found).collect();
        all.sort_by_key(|receipt| receipt.ended_ms);
        all.into_iter().rev().take(most).map(shown).collect()
    }

    fn end(&self, target: PageTarget) -> Result<PageEnd, String> {
        let ended = match target {
            PageTarget::Run(run) => actions::end(Target::Run(run), self.socket.clone()),
            PageTarget::Session(session) => actions::end(Target::Session(session), self.socket.clone()),
            PageTarget::Orphan(root) => actions::reap(root),
        }?;
        Ok(PageEnd { lines: ended.lines, receipts: ended.receipts })
    }
}

fn shown(receipt: Receipt) -> PageReceipt {
    PageReceipt {
        why: receipt.why(),
        is_gone: receipt.nothing_left(),
        fate: fate(&receipt),
        left: message::left_lines(&receipt),
        receipt,
    }
}

fn fate(receipt: &Receipt) -> &'static str {
    match (receipt.all_gone(), receipt.nothing_left()) {
        (true, _) => "gone",
        (false, true) => "ended",
        (false, false) => "left",
    }
}
