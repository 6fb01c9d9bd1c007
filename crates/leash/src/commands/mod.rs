//! One file per command, named as typed. `choose`, `complete`, `control`, `defaults`, `feed`, `ledger`, `survey`, `unit`
//! and `unleashed` are parts that several commands share.

use std::ffi::OsString;

use clap::builder::Styles;
use clap::{CommandFactory as _, FromArgMatches as _, ValueEnum as _};
use leash_tree::platform::launcher::NpmLauncher;
use leash_tree::tree::first_look::FirstLook;

use self::defaults::DefaultMistake;
use crate::args::{self, Cli, Command};
use crate::exit_code;
use crate::output::printer::Printer;
use crate::output::report::ParentReport;
use crate::output::terminal::{self, ColorWhen};
use crate::output::text::Text;
use crate::output::{escape, palette};

mod actions;
mod adopt;
mod attach;
mod budget;
mod check;
mod choose;
mod complete;
mod connect;
mod control;
mod defaults;
mod demo;
mod doctor;
mod end;
mod feed;
mod guard;
mod history;
mod hook;
mod ledger;
mod logs;
mod pages;
mod ps;
mod reap;
#[cfg(test)]
mod reference;
mod release;
mod run;
mod serve;
mod stand_in;
mod status;
mod survey;
mod top;
mod unit;
mod unleashed;
mod upgrade;
mod watch;
mod why;

/// The widest help page: longer lines are hard to read.
const WIDEST: usize = 100;

/// The command line, whose pages fit into the terminal.
fn command(styles: Styles) -> clap::Command {
    let width = terminal::columns().map_or(WIDEST, |columns| columns.min(WIDEST));
    Cli::command().styles(styles).term_width(width)
}

fn whole(styles: &Styles, words: &[OsString]) -> Result<clap::ArgMatches, clap::Error> {
    command(styles.clone()).try_get_matches_from(words)
}

/// Parses a command line. `leash run` gets the defaults of the options that were not typed.
fn parse(words: &[OsString], styles: &Styles) -> Result<Result<Cli, DefaultMistake>, clap::Error> {
    let of = |words: &[OsString]| match words.get(1) {
        Some(first) if first == "run" => {
            // A help page, or a mistake: the whole parser knows more about both.
            args::run_parser().try_get_matches_from(words).or_else(|_| whole(styles, words))
        }
        _ => whole(styles, words),
    };
    let matches = of(words)?;
    let cli = Cli::from_arg_matches(&matches)?;
    let Some(run) = matches.subcommand_matches("run") else { return Ok(Ok(cli)) };
    match defaults::complete(words, run) {
        Ok(None) => Ok(Ok(cli)),
        Ok(Some(words)) => Cli::from_arg_matches(&of(&words)?).map(Ok),
        Err(mistake) => Ok(Err(mistake)),
    }
}

/// Prints the page of the parser: a help page, or an error with our hint instead of the parser's own.
fn show_page(words: &[OsString], error: &clap::Error) -> u8 {
    typed_color(words).set();
    let page = |error: &clap::Error| {
        let text = error.render().ansi().to_string();
        text.rsplit_once("For more information, try '").map_or(&*text, |(page, _)| page).trim_end().to_owned()
    };
    // The parser repeats words of the user. It gets them escaped, unless that makes a valid command line of them.
    let escaped: Vec<OsString> =
        words.iter().map(|word| escape::line(&word.to_string_lossy()).into_owned().into()).collect();
    let again = |styles: &Styles| parse(&escaped, styles).err().map(|error| page(&error));
    let page = match (again(&Styles::plain()), again(&palette::PARSER)) {
        (Some(plain), Some(painted)) => Text::page(&plain, painted),
        _ => Text::new(page(error)),
    };
    let printer = Printer::new(false);
    if !error.use_stderr() {
        printer.say(page);
        return exit_code::OK;
    }
    let hint = match &typed_command(words) {
        Some(command) => format!("`leash {command} --help` explains the command and its options"),
        None => "`leash --help` lists the commands".to_owned(),
    };
    printer.usage(page, &hint);
    exit_code::USAGE
}

/// The `--color` of a command line that could not be parsed.
fn typed_color(words: &[OsString]) -> ColorWhen {
    let words: Vec<&str> = words.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let next = words.windows(2).find(|pair| pair[0] == "--color").map(|pair| pair[1]);
    let value = next.or_else(|| words.iter().find_map(|word| word.strip_prefix("--color=")));
    value.and_then(|value| ColorWhen::from_str(value, false).ok()).unwrap_or_default()
}

/// The command that the user typed, if there is one of that name.
fn typed_command(words: &[OsString]) -> Option<String> {
    let is_color = |word: &str| word.starts_with("--color") || ColorWhen::from_str(word, false).is_ok();
    let word = words.iter().skip(1).map_while(|word| word.to_str()).find(|word| !is_color(word))?;
    Cli::command().find_subcommand(word).map(|command| command.get_name().to_owned())
}

/// Parses the command line and runs the command.
pub(crate) fn dispatch(first: FirstLook, launcher: NpmLauncher, report: Option<ParentReport>) -> u8 {
    if let Some(code) = complete::complete() {
        return code;
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match parse(&words, &Styles::plain()) {
        Ok(Ok(cli)) => cli,
        Ok(Err(mistake)) => {
            typed_color(&words).set();
            Printer::new(false).error_text(mistake.text, Some(&mistake.hint));
            return exit_code::USAGE;
        }
        Err(page) => return show_page(&words, &page),
    };
    cli.common.color.set();
    // These watch their parent themselves, and tell it as the reason of the end.
    let watches_parent =
        matches!(cli.command, Command::Run(_) | Command::Connect(_) | Command::Attach(_) | Command::Guard(_));
    if !watches_parent && !launcher.end_with_it() {
        return exit_code::LEASH_FAILED;
    }
    match cli.command {
        Command::Run(args) => run::run(*args, first, report),
        Command::Connect(args) => connect::connect(*args, first),
        Command::Attach(args) => attach::attach(*args, first),
        Command::Guard(args) => guard::guard(*args, first),
        Command::Serve(args) => serve::serve(*args, first),
        Command::Ps(args) => ps::ps(&args),
        Command::Top(args) => top::top(&args),
        Command::Status(args) => status::status(&args),
        Command::Why(args) => why::why(&args),
        Command::Reap(args) => reap::reap(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::End(args) => end::end(&args),
        Command::Logs(args) => logs::logs(&args),
        Command::History(args) => history::history(&args),
        Command::Adopt(args) => adopt::adopt(&args),
        Command::Release(args) => release::release(&args),
        Command::Check(args) => check::check(&args, first),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Upgrade(args) => upgrade::upgrade(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
    }
}
