//! `leash run`.

use std::env;

use leash_model::containment::Wish;
use leash_model::limits;
use leash_model::owner::Wish as OwnerWish;
use leash_model::receipt::Receipt;
use leash_tree::contain::caps::Caps;
use leash_tree::tree::Spec;
use leash_tree::tree::supervisor::{self, FirstLook};

use crate::args::{Owner, Run, SessionName};
use crate::output::message;
use crate::output::printer::Printer;
use crate::{exit_code, places};

pub(crate) fn run(args: Run, first: FirstLook) -> u8 {
    let printer = Printer::new(args.verbose);
    if args.labels.len() > limits::LABELS {
        let text = format!("{} labels are too many, {} are allowed", args.labels.len(), limits::LABELS);
        printer.error_text(text, Some("labels are for listings; put data elsewhere"));
        return exit_code::USAGE;
    }
    let owners = match owners(&args.owners) {
        Ok(owners) => owners,
        Err(text) => {
            printer.error_text(text, Some("leave --owner out to be owned by the parent process"));
            return exit_code::USAGE;
        }
    };
    let session = match args.session.as_ref().map(SessionName::resolve).transpose() {
        Ok(session) => session.or_else(|| session_of(args.session_env.as_deref()?, printer)),
        Err(unresolved) => {
            printer.error_text(unresolved.text, Some(&unresolved.hint));
            return exit_code::USAGE;
        }
    };
    let spec = spec(args, owners, session);
    match supervisor::supervise(&spec, &places::announced(), first, &mut |event| message::tell(printer, &event)) {
        Ok(receipt) => report(printer, &receipt),
        Err(error) => {
            let (hint, code) = message::advice(&error);
            printer.error_with(&error, &message::refusals(&error), hint.as_deref());
            code
        }
    }
}

/// The session that a variable names. A client that does not set it, or sets it to something else, must still get its
/// server.
pub(super) fn session_of(variable: &str, printer: Printer) -> Option<String> {
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
pub(super) fn owners(typed: &[Owner]) -> Result<Vec<OwnerWish>, &'static str> {
    if typed.is_empty() {
        return Ok(OwnerWish::DEFAULT.to_vec());
    }
    if typed.contains(&Owner::None) {
        return if typed.len() == 1 {
            Ok(Vec::new())
        } else {
            Err("`--owner none` cannot be combined with another owner")
        };
    }
    let mut wishes: Vec<OwnerWish> = typed
        .iter()
        .filter_map(|owner| match owner {
            Owner::Parent => Some(OwnerWish::Parent),
            Owner::Ancestor => Some(OwnerWish::Ancestor),
            Owner::Tty => Some(OwnerWish::Terminal),
            Owner::Pid(pid) => Some(OwnerWish::Pid(*pid)),
            Owner::Stdin | Owner::None => None,
        })
        .collect();
    wishes.push(OwnerWish::Stdin);
    Ok(wishes)
}

fn spec(args: Run, owners: Vec<OwnerWish>, session: Option<String>) -> Spec {
    let mut spec = Spec::new(args.command)
        .grace(args.grace)
        .max_age(args.max_age)
        .owners(owners)
        .contain(Wish { exactly: args.contain, at_least: args.require })
        .caps(Caps { memory: args.memory, pids: args.pids });
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
