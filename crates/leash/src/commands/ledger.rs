//! Opens the ledger, for the commands that read it.

use std::io;

use leash_model::receipt::Receipt;
use leash_tree::ledger::receipts;
use leash_tree::ledger::store::Store;

use crate::output::message::counted;
use crate::output::printer::Printer;
use crate::{exit_code, places};

/// The ledgers of this user that exist. The error is an exit code; its message was printed.
pub(crate) fn look(printer: Printer) -> Result<Vec<Store>, u8> {
    Store::look_all(&places::places()).map_err(|error| {
        printer.error(&error, Some("set LEASH_RUNTIME_DIR to the directory that `leash run` uses"));
        exit_code::LEASH_FAILED
    })
}

/// Reports that the ledger could not be read; returns the exit code.
pub(crate) fn unread(printer: Printer, error: &io::Error) -> u8 {
    printer.error_text(
        format!("cannot read the ledger: {error}"),
        Some("check the runtime directory with `leash doctor`"),
    );
    exit_code::LEASH_FAILED
}

/// The receipts of this user from all files, the oldest first. The error is an exit code; its message was printed.
pub(crate) fn receipts(printer: Printer) -> Result<Vec<Receipt>, u8> {
    let mut all = Vec::new();
    for (number, path) in places::receipts_files().iter().enumerate() {
        let problem = match receipts::read(path) {
            Ok((found, broken)) => {
                all.extend(found);
                (broken > 0)
                    .then(|| format!("{} of {} cannot be read as receipts", counted(broken, "line"), path.display()))
            }
            Err(error) if number == 0 => {
                printer.error_text(format!("cannot read {}: {error}", path.display()), Some("check XDG_STATE_HOME"));
                return Err(exit_code::LEASH_FAILED);
            }
            Err(error) => Some(format!("cannot read {}: {error}", path.display())),
        };
        problem.iter().for_each(|problem| printer.warning(problem));
    }
    all.sort_by_key(|receipt| receipt.ended_ms);
    Ok(all)
}
