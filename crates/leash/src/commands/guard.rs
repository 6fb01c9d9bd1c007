//! `leash guard`.

use leash_connect::{GuardEnd, GuardReport, GuardSettings};
use leash_model::receipt::{Reason, Receipt};
use leash_tree::tree::first_look::FirstLook;
use serde_json::json;

use super::run::{self, UsageProblem};
use super::{connect, serve};
use crate::args::GuardArgs;
use crate::output::printer::Printer;
use crate::{exit_code, places};

pub(crate) fn guard(args: GuardArgs, first: FirstLook) -> u8 {
    let printer = Printer::new(args.verbose);
    let settings = match settings(args, printer) {
        Ok(settings) => settings,
        Err(refused) => return refused.report(printer),
    };
    match leash_connect::guard(settings, first) {
        Ok(ended) => {
            if let Some(receipt) = &ended.receipt {
                printer.exact(format!("{}\n", json!(receipt)));
            }
            code(&ended)
        }
        Err(error) => {
            printer.error(&error, Some(connect::advice(&error)));
            exit_code::LEASH_FAILED
        }
    }
}

/// Converts the command line.
fn settings(args: GuardArgs, printer: Printer) -> Result<GuardSettings, UsageProblem> {
    let (owners, session) = run::terms((&args.owners, &args.labels), args.session.as_ref(), None, printer)?;
    Ok(GuardSettings {
        owners,
        session,
        name: args.name,
        labels: args.labels.into_iter().map(|label| (label.key, label.value)).collect(),
        places: places::announced(),
        report: Box::new(move |report| printer.exact(line(report))),
        tell: Box::new(move |notice| serve::tell(printer, &notice)),
    })
}

/// A report for the program, as a line of JSON.
fn line(report: GuardReport<'_>) -> String {
    let report = match report {
        GuardReport::Ready(session) => json!({ "session": session }),
        GuardReport::Held(id) => json!({ "held": id }),
    };
    format!("{report}\n")
}

/// The exit code for the reason of the end.
fn code(ended: &GuardEnd) -> u8 {
    match ended.reason {
        Reason::Signal { signal } => u8::try_from(128 + signal).unwrap_or(exit_code::LEASH_FAILED),
        _ if ended.receipt.as_ref().is_none_or(Receipt::all_gone) => exit_code::OK,
        _ => exit_code::NOT_ALL,
    }
}
