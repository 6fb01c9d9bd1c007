//! `leash doctor`: tries every containment with a real tree, and every other requirement of leash.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use leash_model::containment::{Containment, ContainmentWish};
use leash_model::error::with_causes;
use leash_model::id;
use leash_model::start_failure::StartFailure;
use leash_tree::contain::slice::SharedBudgets;
use leash_tree::ledger;
use leash_tree::ledger::store::Store;
use leash_tree::places::Places;
use leash_tree::platform::private_file;
use leash_tree::platform::proc::Proc;
use leash_tree::tree::{Spec, Tree};
use schemars::JsonSchema;
use serde::Serialize;

use super::budget;
use super::defaults::{self, DefaultMistake, RunDefault};
use crate::args::Doctor;
use crate::installed::Installed;
use crate::output::printer::Printer;
use crate::output::table::{Column, within};
use crate::output::terminal;
use crate::output::text::Text;
use crate::output::waiting::Waiting;
use crate::{exit_code, places};

/// The width of a row without `-v` if stdout is not a terminal.
const WIDTH: usize = 80;

/// The descriptors that a start of leash needs at most, with some to spare.
const DESCRIPTORS: usize = 32;

/// The result of one check.
#[derive(Debug, Serialize, JsonSchema)]
struct DoctorFinding {
    /// The requirement.
    what: String,
    /// True if it is met.
    fine: bool,
    /// The observation, or the problem.
    text: String,
    /// The text without `-v`, if it is another one.
    #[serde(skip)]
    brief: Option<String>,
}

impl DoctorFinding {
    fn new(what: &str, result: Result<String, String>) -> DoctorFinding {
        let (fine, text) = (result.is_ok(), result.unwrap_or_else(|problem| problem));
        DoctorFinding { what: what.to_owned(), fine, text, brief: None }
    }

    fn brief(self, brief: String) -> DoctorFinding {
        DoctorFinding { brief: Some(brief).filter(|_| self.fine), ..self }
    }
}

/// All results.
struct Diagnosis {
    trials: Vec<(Containment, Result<(), String>)>,
    /// The containment that `leash run` would use.
    chosen: Result<Containment, String>,
    ground: Vec<DoctorFinding>,
    defaults: Result<Vec<RunDefault>, DefaultMistake>,
    places: Places,
    installed: Option<Installed>,
}

pub(crate) fn doctor(args: &Doctor) -> u8 {
    let printer = Printer::new(false);
    let places = places::places();
    // The receipts of trials do not belong into the user's history.
    let receipts = Receipts(places.runtime_dir.join(format!("doctor-{}.jsonl", id::random())));
    let trial = Places { receipts: receipts.0.clone(), ..places.clone() };
    let exactly = |containment| ContainmentWish { exactly: Some(containment), at_least: None };
    let waiting = Waiting::begin("for a process tree in each containment", None);
    let trials = Containment::ALL.into_iter().map(|containment| {
        waiting.now(&format!("for a process tree in containment {containment}"));
        (containment, start(exactly(containment), &trial).map(drop))
    });
    let (trials, chosen) = (trials.collect(), start(ContainmentWish::default(), &trial));
    drop(waiting);
    let defaults = defaults::find();
    let installed = Installed::find();
    let mut ground = ground(&places, &defaults);
    ground.insert(0, own_program(installed.as_ref()));
    ground.extend(try_budget(&trial));
    let report = Diagnosis { trials, chosen, ground, defaults, places, installed };
    if args.json {
        printer.json(report.answer());
    } else {
        printer.data(&report.as_text(args.verbose));
    }
    if report.is_sound() { exit_code::OK } else { exit_code::NOT_ALL }
}

/// A file of receipts that is removed at the end.
struct Receipts(PathBuf);

impl Drop for Receipts {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Starts and ends a real tree. The server is leash itself, which prints its version.
fn start(wish: ContainmentWish, places: &Places) -> Result<Containment, String> {
    start_within(wish, SharedBudgets::default(), places)
}

fn start_within(wish: ContainmentWish, budgets: SharedBudgets, places: &Places) -> Result<Containment, String> {
    let spec = Spec::new(["/proc/self/exe", "--version"]).named("doctor").contain(wish).budgets(budgets);
    let spec = spec.grace(std::time::Duration::ZERO);
    let tree = Tree::start(spec, places).map_err(|failure| reason(&failure, wish))?;
    let containment = tree.containment().ok_or("no containment was reported")?;
    let receipt = tree.end().map_err(|error| with_causes(&error))?;
    if receipt.all_gone() { Ok(containment) } else { Err("the tree could not be ended".to_owned()) }
}

/// Starts and ends a tree within the budget for all of leash; `None` if there is no budget.
fn try_budget(places: &Places) -> Option<DoctorFinding> {
    let tried = match budget::find() {
        Ok(all) if !all.any() => return None,
        Ok(all) => start_within(ContainmentWish::default(), SharedBudgets { all, ..SharedBudgets::default() }, places)
            .map(|_| budget::describe(&all)),
        Err(mistakes) => Err(mistakes.to_string()),
    };
    Some(DoctorFinding::new("budget", tried))
}

/// The refusal of the requested containment, or the whole error.
fn reason(failure: &StartFailure, wish: ContainmentWish) -> String {
    if let StartFailure::Contain { refused } = failure
        && let Some(refusal) = refused.iter().find(|refusal| Some(refusal.containment) == wish.exactly)
    {
        return refusal.why.clone();
    }
    with_causes(failure)
}

/// The version of leash, and how and where it was installed.
fn own_program(installed: Option<&Installed>) -> DoctorFinding {
    let version = env!("CARGO_PKG_VERSION");
    let found = installed.ok_or_else(|| "/proc/self/exe names no file".to_owned());
    DoctorFinding::new(
        "leash",
        found.map(|found| format!("{version}, installed {}: {}", found.how(), found.path.display())),
    )
}

/// The other requirements.
fn ground(places: &Places, defaults: &Result<Vec<RunDefault>, DefaultMistake>) -> Vec<DoctorFinding> {
    let system = rustix::system::uname();
    let system = format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let kernel = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())
        .map(|_| system.clone())
        .map_err(|errno| format!("{system} has no pidfds ({errno}); leash needs Linux 5.3 or later"));
    let limit = |resource| {
        let limit = rustix::process::getrlimit(resource).current;
        limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
    };
    let files = limit(rustix::process::Resource::Nofile);
    let opened: io::Result<Vec<File>> = (0..DESCRIPTORS).map(|_| File::open("/dev/null")).collect();
    let files = opened.map(|_| files.clone()).map_err(|error| format!("the limit is {files}: {error}"));
    let runtime = Store::open(&places.runtime_dir)
        .map_err(|error| with_causes(&error))
        .and_then(|_| {
            try_to_write(&places.runtime_dir)
                .map_err(|error| format!("cannot write to {}: {error}", places.runtime_dir.display()))
        })
        .map(|()| places.runtime_dir.display().to_string());
    let receipts = try_receipts(&places.receipts)
        .map(|()| places.receipts.display().to_string())
        .map_err(|error| format!("cannot write {}: {error}", places.receipts.display()));
    let defaults = match defaults {
        Ok(defaults) if defaults.is_empty() => DoctorFinding::new("run defaults", Ok("none".to_owned())),
        Ok(defaults) => DoctorFinding::new("run defaults", Ok(format!("{}, listed below", defaults.len())))
            .brief(format!("{}; `leash doctor -v` lists them", defaults.len())),
        Err(mistake) => DoctorFinding::new("run defaults", Err(mistake.text.clone())),
    };
    vec![
        DoctorFinding::new("kernel", kernel),
        DoctorFinding::new("/proc", Proc::own().map(|_| "shows this PID namespace".to_owned())),
        DoctorFinding::new("runtime directory", runtime),
        DoctorFinding::new("receipts", receipts),
        search_path(),
        DoctorFinding::new("open files", files),
        // The trials have started processes.
        DoctorFinding::new("processes", Ok(limit(rustix::process::Resource::Nproc))),
        defaults,
    ]
}

/// Writes a file in a directory, and removes it.
fn try_to_write(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!("doctor-{}", id::random()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    let written = file.write_all(b"x");
    fs::remove_file(&path)?;
    written
}

/// Tries to write where receipts go. If their directory does not exist, the first receipt makes it.
fn try_receipts(path: &Path) -> io::Result<()> {
    if path.exists() {
        private_file::open(File::options().append(true), path)?;
    }
    let existing = path.ancestors().skip(1).find(|dir| dir.exists());
    try_to_write(existing.unwrap_or(Path::new("/")))
}

/// The directories in which commands are searched.
fn search_path() -> DoctorFinding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty()).collect();
    let there = dirs.iter().filter(|dir| dir.is_dir()).count();
    let text = path.to_string_lossy().into_owned();
    let brief = match dirs.len() - there {
        0 => format!("{there} directories"),
        missing => format!("{there} directories; {missing} more do not exist"),
    };
    let result = if there > 0 { Ok(text) } else { Err("it names no directory that exists".to_owned()) };
    DoctorFinding::new("PATH", result).brief(brief)
}

impl Diagnosis {
    /// True if leash can keep its promise here.
    fn is_sound(&self) -> bool {
        let chosen = self.chosen.as_ref().is_ok_and(|containment| *containment >= Containment::Reaper);
        chosen && self.ground.iter().all(|finding| finding.fine)
    }

    /// One line for each row, which fits into the terminal; with `verbose` everything.
    fn as_text(&self, verbose: bool) -> Text {
        let limit = (!verbose).then(|| terminal::columns().unwrap_or(WIDTH));
        let trial = |(containment, result): &(Containment, Result<(), String>)| {
            let promise = if verbose { containment.promise() } else { containment.promise_in_brief() };
            let text = result.as_ref().map_or_else(Clone::clone, |()| promise.to_owned());
            let here = if result.is_ok() { "works" } else { "no" };
            vec![containment.to_string(), here.to_owned(), text]
        };
        let columns =
            [Column::new("CONTAINMENT"), Column::new("HERE").verdict(), Column::new("PROMISE, OR WHY NOT").cut(0)];
        let mut text = within(limit, &columns, &self.trials.iter().map(trial).collect::<Vec<_>>());
        text.line("");
        let row = |finding: &DoctorFinding| {
            let text = finding.brief.as_ref().filter(|_| !verbose).unwrap_or(&finding.text);
            let fine = if finding.fine { "fine" } else { "NO" };
            vec![finding.what.clone(), fine.to_owned(), text.clone()]
        };
        let columns = [Column::new("REQUIREMENT"), Column::new("").verdict(), Column::new("").cut(0)];
        text.append(within(limit, &columns, &self.ground.iter().map(row).collect::<Vec<_>>()));
        text.line("");
        if verbose {
            text.append(self.details());
        }
        match &self.chosen {
            Ok(containment) => {
                text.line(format_args!("`leash run` uses {containment} here."));
                match verbose {
                    true => text.line(format_args!("It does not cover: {}.", containment.does_not_cover())),
                    false => text.line("`leash doctor -v` says more."),
                }
            }
            Err(why) => text.line(format_args!("leash run does not work here: {why}.")),
        }
        text
    }

    /// The defaults of `leash run`, and the other places that are read.
    fn details(&self) -> Text {
        let mut text = Text::default();
        let defaults = self.defaults.as_deref().unwrap_or_default();
        if !defaults.is_empty() {
            let row = |default: &RunDefault| {
                vec![format!("--{}", default.option), default.values.join(" "), default.source.to_string()]
            };
            let columns = ["RUN DEFAULT", "VALUE", "FROM"].map(Column::new);
            text.append(within(None, &columns, &defaults.iter().map(row).collect::<Vec<_>>()));
            text.line("");
        }
        let others: Vec<Vec<String>> =
            ledger::runtime_dirs(&self.places).skip(1).map(|dir| vec![dir.display().to_string()]).collect();
        if !others.is_empty() {
            text.append(within(None, &[Column::new("RUNTIME DIRECTORIES THAT ARE ALSO READ")], &others));
            text.line("");
        }
        text
    }

    fn answer(&self) -> DoctorAnswer<'_> {
        let trial = |(containment, result): &'_ (Containment, Result<(), String>)| Trial {
            containment: *containment,
            works: result.is_ok(),
            why_not: result.clone().err(),
            promise: containment.promise(),
            does_not_cover: containment.does_not_cover(),
        };
        let default = |default: &RunDefault| DefaultInForce {
            option: default.option.to_string(),
            values: default.values.clone(),
            from: default.source.to_string(),
        };
        DoctorAnswer {
            sound: self.is_sound(),
            installed: self.installed.as_ref(),
            chosen: self.chosen.as_ref().ok().copied(),
            containments: self.trials.iter().map(trial).collect(),
            ground: &self.ground,
            run_defaults: self.defaults.as_deref().unwrap_or_default().iter().map(default).collect(),
        }
    }
}

/// What `leash doctor --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct DoctorAnswer<'a> {
    /// True if leash can keep its promise here.
    sound: bool,
    /// How and where leash was installed; null if its executable is not known.
    installed: Option<&'a Installed>,
    /// The containment that `leash run` uses here; null if none works.
    chosen: Option<Containment>,
    /// The containments, strongest first.
    containments: Vec<Trial>,
    /// The other requirements.
    ground: &'a [DoctorFinding],
    /// The defaults for `leash run` from variables and from leash.json.
    run_defaults: Vec<DefaultInForce>,
}

/// A containment that leash tried with a real tree.
#[derive(Serialize, JsonSchema)]
struct Trial {
    /// The containment.
    containment: Containment,
    /// True if it works here.
    works: bool,
    /// The reason why it does not work.
    why_not: Option<String>,
    /// Its promise.
    promise: &'static str,
    /// The processes that the promise does not cover.
    does_not_cover: &'static str,
}

/// A default for an option of `leash run`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RunDefault")]
struct DefaultInForce {
    /// The option, without dashes.
    option: String,
    /// Its values.
    values: Vec<String>,
    /// The variable, or the key and the line of the file.
    from: String,
}
