//! `leash run`.

use std::env;

use leash_model::containment::ContainmentWish;
use leash_model::event::Event;
use leash_model::limits;
use leash_model::owner::OwnerWish;
use leash_model::receipt::Receipt;
use leash_model::start_failure::CommandOrigin;
use leash_tree::contain::caps::Caps;
use leash_tree::contain::slice::SharedBudgets;
use leash_tree::tree::Spec;
use leash_tree::tree::first_look::FirstLook;
use leash_tree::tree::supervisor;

use super::budget;
use crate::args::{OwnerArg, Pair, Run, SessionName};
use crate::output::message;
use crate::output::printer::Printer;
use crate::output::report::ParentReport;
use crate::{exit_code, places};

pub(crate) fn run(args: Run, first: FirstLook, mut parent: Option<ParentReport>) -> u8 {
    let printer = Printer::new(args.verbose);
    let common = terms((&args.owners, &args.labels), args.session.as_ref(), args.session_env.as_deref(), printer);
    let (owners, session) = match common {
        Ok(common) => common,
        Err(refused) => return refused.report(printer),
    };
    let all = match budget::find() {
        Ok(budget) => budget,
        Err(mistakes) => return budget::report(&mistakes, printer),
    };
    if let Some(number) = args.report_fd
        && parent.is_none()
    {
        let text = format!("descriptor {number} of --report-fd is not open");
        return refuse(text, "pass the writing end of a pipe under this number").report(printer);
    }
    let session_budget = Caps { memory: args.session_memory, pids: args.session_pids, cpu: args.session_cpu };
    let spec = spec(args, owners, session).budgets(SharedBudgets { session: session_budget, all });
    let mut tell = |event: Event| {
        parent.iter_mut().for_each(|parent| parent.event(&event));
        message::tell(printer, &event);
    };
    match supervisor::supervise(&spec, &places::announced(), first, &mut tell) {
        Ok(receipt) => {
            parent.iter_mut().for_each(|parent| parent.ended(&receipt));
            report(printer, &receipt)
        }
        Err(failure) => {
            parent.iter_mut().for_each(|parent| parent.failed(&failure));
            printer.error_with(&failure, &failure.facts(), Some(&failure.hint(CommandOrigin::Run)));
            exit_code::of_failed_start(&failure)
        }
    }
}

/// A problem with the command line, and the hint.
pub(super) struct UsageProblem {
    text: String,
    hint: String,
}

pub(super) fn refuse(text: impl Into<String>, hint: impl Into<String>) -> UsageProblem {
    UsageProblem { text: text.into(), hint: hint.into() }
}

impl UsageProblem {
    /// Prints the problem. Returns the exit code.
    pub(super) fn report(&self, printer: Printer) -> u8 {
        printer.error_text(&self.text, Some(&self.hint));
        exit_code::USAGE
    }
}

/// Checks the options that `run` and `connect` have in common. Returns the owners and the session to join.
pub(super) fn terms(
    (owners, labels): (&[OwnerArg], &[Pair]),
    session: Option<&SessionName>,
    session_env: Option<&str>,
    printer: Printer,
) -> Result<(Vec<OwnerWish>, Option<String>), UsageProblem> {
    if labels.len() > limits::LABELS {
        let text = format!("{} labels are too many, {} are allowed", labels.len(), limits::LABELS);
        return Err(refuse(text, "remove some of the --label options"));
    }
    let owners = wishes(owners).map_err(|text| refuse(text, "remove `--owner none`, or the other owners"))?;
    let session = session.map(SessionName::resolve).transpose();
    let session = session.map_err(|unresolved| refuse(unresolved.text, unresolved.hint))?;
    Ok((owners, session.or_else(|| session_of(session_env?, printer))))
}

/// The session that a variable names. A client that does not set it, or sets it to something else, must still get its
/// server.
fn session_of(variable: &str, printer: Printer) -> Option<String> {
    let value = env::var(variable).ok().filter(|value| !value.is_empty())?;
    match leash_model::id::check_session(&value) {
        Ok(()) => Some(value),
        Err(why) => {
            printer.warning(format!("`{variable}` does not hold a valid session id ({why}); leash uses a new session"));
            None
        }
    }
}

/// Converts the owners from the command line.
fn wishes(typed: &[OwnerArg]) -> Result<Vec<OwnerWish>, &'static str> {
    if typed.is_empty() {
        return Ok(OwnerWish::DEFAULT.to_vec());
    }
    if typed.contains(&OwnerArg::None) {
        return if typed.len() == 1 {
            Ok(Vec::new())
        } else {
            Err("`--owner none` cannot be combined with another owner")
        };
    }
    let mut wishes: Vec<OwnerWish> = typed
        .iter()
        .filter_map(|owner| match owner {
            OwnerArg::Parent => Some(OwnerWish::Parent),
            OwnerArg::Ancestor => Some(OwnerWish::Ancestor),
            OwnerArg::Tty => Some(OwnerWish::Terminal),
            OwnerArg::Pid(pid) => Some(OwnerWish::Pid(*pid)),
            OwnerArg::Stdin | OwnerArg::None => None,
        })
        .collect();
    wishes.push(OwnerWish::Stdin);
    Ok(wishes)
}

fn spec(args: Run, owners: Vec<OwnerWish>, session: Option<String>) -> Spec {
    let mut spec = Spec::new(args.command)
        .grace(args.grace)
        .max_age(args.max_age)
        .pressure_stop(args.pressure_stop)
        .owners(owners)
        .contain(ContainmentWish { exactly: args.contain, at_least: args.require })
        .caps(Caps { memory: args.memory, pids: args.pids, cpu: args.cpu })
        .log(args.log);
    if let Some(session) = session {
        spec = spec.session(session);
    }
    if let Some(name) = args.name {
        spec = spec.named(name);
    }
    if let Some(cwd) = args.cwd {
        spec = spec.cwd(cwd);
    }
    for label in args.labels {
        spec = spec.label(label.key, label.value);
    }
    for variable in args.env {
        spec = spec.env(variable.key, Some(variable.value.into()));
    }
    for name in args.spare {
        spec = spec.spare(name);
    }
    spec
}

/// Prints how the server ended, and returns its exit code.
fn report(printer: Printer, receipt: &Receipt) -> u8 {
    printer.progress("Ended", message::receipt_line(receipt));
    let left = message::left_lines(receipt);
    if receipt.all_gone() {
        left.iter().for_each(|line| printer.progress("", line));
    } else {
        let limits = receipt
            .containment
            .map(|containment| format!(" (`{containment}` does not cover: {})", containment.does_not_cover()));
        printer.warning(format!("not everything is gone{}", limits.unwrap_or_default()));
        left.iter().for_each(|line| printer.warning(line));
    }
    let exit = receipt.trees().find_map(|tree| tree.exit);
    // Without a status, the kernel killed the server together with its keeper.
    u8::try_from(exit.map_or(128 + 9, |exit| exit.code())).unwrap_or(exit_code::LEASH_FAILED)
}
