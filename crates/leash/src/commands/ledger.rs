//! Opens the ledger, for the commands that read it.

use std::io;

use leash_tree::ledger::store::Store;

use crate::output::printer::Printer;
use crate::{exit_code, places};

/// The ledger, if it exists. The error is an exit code; its message was printed.
pub(crate) fn look(printer: Printer) -> Result<Option<Store>, u8> {
    Store::look(&places::runtime_dir()).map_err(|error| {
        printer.error(&error, Some("set LEASH_RUNTIME_DIR to the directory that `leash run` uses"));
        exit_code::LEASH_FAILED
    })
}

/// Reports that the ledger could not be read; returns the exit code.
pub(crate) fn unread(printer: Printer, error: &io::Error) -> u8 {
    printer.error(error, Some("check the runtime directory with `leash doctor`"));
    exit_code::LEASH_FAILED
}
