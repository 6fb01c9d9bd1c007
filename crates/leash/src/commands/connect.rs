//! `leash connect`.

use std::env;

use leash_connect::{ConnectError, ConnectSettings, ConnectionEnd, TransportChoice};
use leash_model::receipt::{Reason, Receipt};
use leash_tree::platform::command;
use leash_tree::tree::first_look::FirstLook;
use leash_upstream::address::{self, AddressError};

use super::run::{self, UsageProblem, refuse};
use super::serve;
use crate::args::{Connect, Pair, TransportArg};
use crate::output::printer::Printer;
use crate::{exit_code, places};

pub(crate) fn connect(args: Connect, first: FirstLook) -> u8 {
    connect_to(args, None, first)
}

/// The same for a secret URL, which is printed as `shown`.
pub(super) fn connect_to(args: Connect, shown: Option<String>, first: FirstLook) -> u8 {
    let printer = Printer::new(args.verbose);
    let settings = match settings(args, printer) {
        Ok(settings) => ConnectSettings { shown, ..settings },
        Err(refused) => return refused.report(printer),
    };
    match leash_connect::connect(settings, first) {
        Ok(ended) => code(&ended),
        Err(error) => {
            printer.error(&error, Some(advice(&error)));
            exit_code::LEASH_FAILED
        }
    }
}

/// Converts the command line.
fn settings(args: Connect, printer: Printer) -> Result<ConnectSettings, UsageProblem> {
    let (owners, session) =
        run::terms((&args.owners, &args.labels), args.session.as_ref(), args.session_env.as_deref(), printer)?;
    let headers = headers(&args)?;
    // The keeper gets the values through its own pipe; its environment would show them to every process of the user.
    command::withhold(args.header_env.iter().map(|header| &header.value).chain(&args.bearer_env));
    let (choice, transport) = match args.transport {
        TransportArg::Auto => (TransportChoice::Auto, address::HttpTransport::Streamable),
        TransportArg::Http => (TransportChoice::Streamable, address::HttpTransport::Streamable),
        TransportArg::Sse => (TransportChoice::HttpSse, address::HttpTransport::Sse),
    };
    let upstream = address::upstream(&args.url, &headers, transport).map_err(|error| {
        let hint = hint(&error);
        refuse(error.to_string(), hint)
    })?;
    Ok(ConnectSettings {
        upstream,
        shown: None,
        transport: choice,
        revive: !args.no_revive,
        owners,
        session,
        name: args.name,
        labels: args.labels.into_iter().map(|label| (label.key, label.value)).collect(),
        grace: args.grace,
        max_age: args.max_age,
        places: places::announced(),
        tell: Box::new(move |notice| serve::tell(printer, &notice)),
    })
}

fn headers(args: &Connect) -> Result<Vec<(String, String)>, UsageProblem> {
    let mut headers = Vec::new();
    for header in &args.headers {
        // The text is not repeated, because it may contain a secret.
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| refuse("a --header has no `:`", "write it as --header 'Name: value'"))?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    for Pair { key, value } in &args.header_env {
        headers.push((key.trim().to_owned(), variable(value, "--header-env")?));
    }
    if let Some(name) = &args.bearer_env {
        headers.push(("Authorization".to_owned(), format!("Bearer {}", variable(name, "--bearer-env")?)));
    }
    Ok(headers)
}

/// The value of a variable, without the newline at the end of files with tokens.
fn variable(name: &str, option: &str) -> Result<String, UsageProblem> {
    let value = env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    value.ok_or_else(|| {
        let text = format!("the variable `{name}` of {option} is not set");
        refuse(text, format!("set {name} in the environment in which the host starts leash"))
    })
}

fn hint(error: &AddressError) -> String {
    match error {
        AddressError::UserInfo => "send them as a header: --header 'Authorization: Basic ...'".to_owned(),
        error => error.hint().to_owned(),
    }
}

/// The exit code for the reason of the end.
fn code(ended: &ConnectionEnd) -> u8 {
    match ended.reason {
        Reason::Signal { signal } => u8::try_from(128 + signal).unwrap_or(exit_code::LEASH_FAILED),
        Reason::UpstreamForgot => exit_code::NOT_ALL,
        _ if ended.receipt.as_ref().is_none_or(Receipt::all_gone) => exit_code::OK,
        _ => exit_code::NOT_ALL,
    }
}

pub(super) fn advice(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::Owner(owner) => owner.hint().unwrap_or("nothing was sent"),
        ConnectError::Ledger(_) => {
            "set LEASH_RUNTIME_DIR to a directory that can be written; the ledger must exist before a session does"
        }
        ConnectError::Signals(_) => "leash needs Linux 5.3 or later",
        ConnectError::Start(_) => "a limit of open files may be used up (ulimit -n); nothing was sent",
    }
}
