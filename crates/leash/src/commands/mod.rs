//! One file per command, named as typed. `choose`, `complete`, `control`, `groups`, `ledger`, `survey`, `unit` and `unleashed` are parts that
//! several commands share.

use clap::Parser as _;
use leash_tree::tree::supervisor::FirstLook;

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
mod demo;
mod doctor;
mod end;
mod groups;
mod history;
mod hook;
mod ledger;
mod pages;
mod ps;
mod reap;
mod release;
mod run;
mod serve;
mod stand_in;
mod survey;
mod unit;
mod unleashed;
mod watch;
mod why;

/// Parses the command line and runs the command.
pub(crate) fn dispatch(first: FirstLook) -> u8 {
    if let Some(code) = complete::complete() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            Printer::new(false).usage(error.render());
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
