//! One file per command, named as typed. `choose`, `complete`, `control`, `defaults`, `ledger`, `survey`, `unit` and
//! `unleashed` are parts that several commands share.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser as _};
use leash_tree::tree::first_look::FirstLook;

use self::defaults::DefaultMistake;
use crate::args::{Cli, Command};
use crate::exit_code;
use crate::output::printer::Printer;

mod adopt;
mod attach;
mod check;
mod choose;
mod complete;
mod connect;
mod control;
mod defaults;
mod demo;
mod doctor;
mod end;
mod history;
mod hook;
mod ledger;
mod pages;
mod ps;
mod reap;
#[cfg(test)]
mod reference;
mod release;
mod run;
mod serve;
mod stand_in;
mod survey;
mod unit;
mod unleashed;
mod watch;
mod why;

/// The command that the user typed, if there is one of that name.
fn typed_command() -> Option<String> {
    let word = std::env::args().nth(1)?;
    Cli::command().find_subcommand(&word).map(|command| command.get_name().to_owned())
}

/// Parses a command line. `leash run` gets the defaults of the options that were not typed.
fn parse(words: &[OsString]) -> Result<Result<Cli, DefaultMistake>, clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    let cli = Cli::from_arg_matches(&matches)?;
    let Some(run) = matches.subcommand_matches("run") else { return Ok(Ok(cli)) };
    match defaults::complete(words, run) {
        Ok(None) => Ok(Ok(cli)),
        Ok(Some(words)) => Cli::try_parse_from(words).map(Ok),
        Err(mistake) => Ok(Err(mistake)),
    }
}

/// Parses the command line and runs the command.
pub(crate) fn dispatch(first: FirstLook) -> u8 {
    if let Some(code) = complete::complete() {
        return code;
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match parse(&words) {
        Ok(Ok(cli)) => cli,
        Ok(Err(mistake)) => {
            Printer::new(false).error_text(mistake.text, Some(&mistake.hint));
            return exit_code::USAGE;
        }
        Err(error) if error.use_stderr() => {
            let hint = match &typed_command() {
                Some(command) => format!("`leash {command} --help` explains the command and its options"),
                None => "`leash --help` lists the commands".to_owned(),
            };
            Printer::new(false).usage(error.render(), &hint);
            return exit_code::USAGE;
        }
        Err(help) => {
            Printer::new(false).data(help.render());
            return exit_code::OK;
        }
    };
    match cli.command {
        Command::Run(args) => run::run(*args, first),
        Command::Connect(args) => connect::connect(*args, first),
        Command::Attach(args) => attach::attach(*args, first),
        Command::Serve(args) => serve::serve(*args, first),
        Command::Ps(args) => ps::ps(&args),
        Command::Why(args) => why::why(&args),
        Command::Reap(args) => reap::reap(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::End(args) => end::end(&args),
        Command::History(args) => history::history(&args),
        Command::Adopt(args) => adopt::adopt(&args),
        Command::Release(args) => release::release(&args),
        Command::Check(args) => check::check(&args, first),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
    }
}
