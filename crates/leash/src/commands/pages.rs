//! `leash completions` and `leash man`: generated from the definition of the command line.

use std::path::Path;
use std::{fs, io};

use clap::CommandFactory as _;
use leash_model::error::at;

use crate::args::{Cli, Completions, Man};
use crate::exit_code::{self, ExitCode};
use crate::output::printer::Printer;

pub(crate) fn completions(args: &Completions) -> u8 {
    let script = super::complete::script(&args.shell.to_string());
    Printer::new(false).exact(String::from_utf8_lossy(&script));
    exit_code::OK
}

pub(crate) fn man(args: &Man) -> u8 {
    let printer = Printer::new(false);
    let done = match &args.dir {
        Some(dir) => write_pages(dir),
        None => page(Cli::command(), None).map(|page| printer.exact(String::from_utf8_lossy(&page))),
    };
    match done {
        Ok(()) => exit_code::OK,
        Err(error) => {
            printer.error_text(
                format!("cannot write the pages: {error}"),
                Some("give --dir a directory that can be written"),
            );
            exit_code::LEASH_FAILED
        }
    }
}

/// The page of a command, or of leash itself without `name`.
fn page(command: clap::Command, name: Option<&str>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    if let Some(name) = name {
        text.extend(exit_status(name).bytes());
    }
    Ok(text)
}

/// The section of a manual page about the exit codes.
fn exit_status(command: &str) -> String {
    let escaped = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    let line = |(code, meaning): &(ExitCode, &str)| format!(".TP\n\\fB{code}\\fR\n{}\n", escaped(meaning));
    let lines: String = exit_code::of_command(command).iter().map(line).collect();
    format!(".SH \"EXIT STATUS\"\n{lines}")
}

fn write_pages(dir: &Path) -> io::Result<()> {
    let write = |name: &str, page: Vec<u8>| fs::write(dir.join(name), page).map_err(at(&dir.join(name)));
    fs::create_dir_all(dir).map_err(at(dir))?;
    let mut root = Cli::command();
    root.build();
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        let (word, name) = (command.get_name(), format!("leash-{}", command.get_name()));
        write(&format!("{name}.1"), page(command.clone().name(name), Some(word))?)?;
    }
    write("leash.1", page(Cli::command(), None)?)
}
