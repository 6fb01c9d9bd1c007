//! One file per command, named as typed.

use clap::Parser as _;
use leash_core::tree::supervisor::FirstLook;

use crate::args::{Cli, Command};
use crate::exit_code;
use crate::output::printer::Printer;

mod run;

/// Reads the command line and does what it says.
pub(crate) fn dispatch(first: FirstLook) -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let printer = Printer::new(false);
            let _ = error.print();
            let _ = printer;
            return if error.use_stderr() { exit_code::USAGE } else { exit_code::OK };
        }
    };
    match cli.command {
        Command::Run(args) => run::run(args, first),
        _ => 2,
    }
}
