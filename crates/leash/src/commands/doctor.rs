//! `leash doctor`: tries every containment with a real tree, and checks the other requirements of leash.

use leash_model::containment::{Containment, ContainmentWish};
use leash_model::start_failure::StartFailure;
use leash_tree::ledger::store::Store;
use leash_tree::places::Places;
use leash_tree::platform::proc::Proc;
use leash_tree::tree::{Spec, Tree};
use serde::Serialize;
use serde_json::json;

use crate::args::Doctor;
use crate::output::printer::Printer;
use crate::output::table::table;
use crate::{exit_code, places};
use leash_model::error::with_causes;

/// The result of one check.
#[derive(Debug, Serialize)]
struct DoctorFinding {
    what: String,
    fine: bool,
    text: String,
}

pub(crate) fn doctor(args: &Doctor) -> u8 {
    let printer = Printer::new(false);
    let places = places::places();
    let trials: Vec<(Containment, Result<(), String>)> =
        Containment::ALL.into_iter().map(|containment| (containment, attempt(containment, &places))).collect();
    let ground = ground(&places);
    let chosen = chosen(&places);
    let sound = chosen.as_ref().is_ok_and(|containment| *containment >= Containment::Reaper)
        && ground.iter().all(|finding| finding.fine);
    if args.json {
        printer.exact(as_json(&trials, &ground, &chosen, sound));
    } else {
        printer.data(as_text(&trials, &ground, &chosen));
    }
    if sound { exit_code::OK } else { exit_code::NOT_ALL }
}

/// Starts and ends a real tree in a containment. The server is leash itself, which prints its version.
fn attempt(containment: Containment, places: &Places) -> Result<(), String> {
    start(ContainmentWish { exactly: Some(containment), at_least: None }, places).map(drop)
}

/// The containment that `leash run` would use.
fn chosen(places: &Places) -> Result<Containment, String> {
    start(ContainmentWish::default(), places)
}

fn start(wish: ContainmentWish, places: &Places) -> Result<Containment, String> {
    let spec =
        Spec::new(["/proc/self/exe", "--version"]).named("doctor").contain(wish).grace(std::time::Duration::ZERO);
    let tree = Tree::start(spec, places).map_err(|failure| reason(&failure, wish))?;
    let containment = tree.containment().ok_or("no containment was reported")?;
    let receipt = tree.end().map_err(|error| with_causes(&error))?;
    if receipt.all_gone() { Ok(containment) } else { Err("the tree could not be ended".to_owned()) }
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

/// The other requirements.
fn ground(places: &Places) -> Vec<DoctorFinding> {
    let system = rustix::system::uname();
    let finding = |what: &str, result: Result<String, String>| DoctorFinding {
        what: what.to_owned(),
        fine: result.is_ok(),
        text: result.unwrap_or_else(|problem| problem),
    };
    let limit = |resource| {
        let limit = rustix::process::getrlimit(resource).current;
        Ok(limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()))
    };
    let store = Store::open(&places.runtime_dir)
        .map(|_| places.runtime_dir.display().to_string())
        .map_err(|error| with_causes(&error));
    vec![
        finding("kernel", Ok(format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()))),
        finding("/proc", Proc::own().map(|_| "our own".to_owned())),
        finding("runtime directory", store),
        finding("receipts", Ok(places.receipts.display().to_string())),
        finding("PATH", Ok(std::env::var("PATH").unwrap_or_default())),
        finding("open files", limit(rustix::process::Resource::Nofile)),
        finding("processes", limit(rustix::process::Resource::Nproc)),
    ]
}

fn as_text(
    trials: &[(Containment, Result<(), String>)],
    ground: &[DoctorFinding],
    chosen: &Result<Containment, String>,
) -> String {
    let rows: Vec<Vec<String>> = trials
        .iter()
        .map(|(containment, result)| {
            let text = result.as_ref().map_or_else(Clone::clone, |()| containment.promise().to_owned());
            vec![containment.to_string(), if result.is_ok() { "works" } else { "no" }.to_owned(), text]
        })
        .collect();
    let mut text = table(&["CONTAINMENT", "HERE", "PROMISE, OR WHY NOT"], &rows);
    text.push('\n');
    let rows: Vec<Vec<String>> = ground
        .iter()
        .map(|finding| {
            vec![finding.what.clone(), if finding.fine { "fine" } else { "NO" }.to_owned(), finding.text.clone()]
        })
        .collect();
    text.push_str(&table(&["GROUND", "", ""], &rows));
    text.push('\n');
    text.push_str(&match chosen {
        Ok(containment) => {
            format!("leash run uses {containment} here.\nIt does not cover: {}.\n", containment.does_not_cover())
        }
        Err(why) => format!("leash run does not work here: {why}.\n"),
    });
    text
}

fn as_json(
    trials: &[(Containment, Result<(), String>)],
    ground: &[DoctorFinding],
    chosen: &Result<Containment, String>,
    sound: bool,
) -> String {
    let containments: Vec<_> = trials
        .iter()
        .map(|(containment, result)| {
            json!({
                "containment": containment, "works": result.is_ok(), "why_not": result.as_ref().err(),
                "promise": containment.promise(), "does_not_cover": containment.does_not_cover(),
            })
        })
        .collect();
    let chosen = chosen.as_ref().ok();
    format!(
        "{:#}\n",
        json!({ "version": 1, "sound": sound, "chosen": chosen, "containments": containments, "ground": ground })
    )
}
