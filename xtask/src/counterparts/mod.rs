//! `cargo xtask counterparts`: runs `leash check` on widely used servers and hosts, and writes a table of the findings.

mod cast;
mod report;

use std::env;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use self::cast::{Counterpart, Stage};
use crate::setup;
use crate::step::{Failure, Outcome, PLAY, Step, Workspace, say};

const USAGE: &str = "counterparts has --json and names of counterparts, or parts of them";

/// The parsed command line.
#[derive(Debug, Default, PartialEq)]
struct Order {
    json: bool,
    play: bool,
    names: Vec<String>,
}

impl Order {
    fn parse(words: &[String]) -> Outcome<Self> {
        let mut order = Self::default();
        for word in words {
            match word.as_str() {
                "--json" => order.json = true,
                PLAY => order.play = true,
                option if option.starts_with('-') => return Err(Failure::new(USAGE)),
                name => order.names.push(name.to_owned()),
            }
        }
        Ok(order)
    }

    fn wants(&self, counterpart: &Counterpart) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| counterpart.name.contains(name.as_str()))
    }
}

/// One counterpart, and the report of leash about it.
struct Checked {
    name: &'static str,
    version: String,
    report: Value,
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let order = Order::parse(words)?;
    if order.play {
        return play(workspace, &order);
    }
    let deps = setup::install(workspace)?;
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--bin", "leash"]).run()?;
    workspace.fixture().run()?;
    let this = env::current_exe().map_err(Failure::at(Path::new("xtask")))?;
    Step::new(this).args(["counterparts", PLAY]).args(words).envs(&workspace.programs()).envs(&deps.variables()).run()
}

fn play(workspace: &Workspace, order: &Order) -> Outcome {
    let stage = Stage::set(workspace)?;
    let cast = cast::all(&stage);
    let wanted: Vec<&Counterpart> = cast.iter().filter(|counterpart| order.wants(counterpart)).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = cast.iter().map(|counterpart| counterpart.name).collect();
        return Err(Failure::new(format!("no counterpart has this name; there are: {}", names.join(", "))));
    }
    let mut checked = Vec::new();
    for counterpart in wanted {
        say("Checking", format!("{} {}", counterpart.name, counterpart.version));
        let report = counterpart.check(&stage)?;
        checked.push(Checked { name: counterpart.name, version: counterpart.version.clone(), report });
    }
    let date = Step::new("date").args(["-u", "+%Y-%m-%d"]).answer().unwrap_or_default();
    let text = report::markdown(&date, &checked);
    let whole = json!({
        "format": 1,
        "date": date,
        "leash": Step::new(&stage.leash).args(["--version"]).answer(),
        "counterparts": checked.iter().map(|one| json!({ "name": one.name, "version": one.version, "report": one.report })).collect::<Vec<_>>(),
    });
    let dir = workspace.target.join("counterparts");
    fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    for (name, content) in [("counterparts.json", format!("{whole:#}\n")), ("counterparts.md", text.clone())] {
        let file = dir.join(name);
        fs::write(&file, content).map_err(Failure::at(&file))?;
        say("Wrote", file.display());
    }
    match order.json {
        true => println!("{whole:#}"),
        false => println!("{text}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counterpart_arguments_become_an_order() {
        let order = |words: &[&str]| Order::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let all = order(&[]).expect("nothing is fine");
        assert_eq!(all, Order::default());
        let some = order(&["--json", "rmcp"]).expect("these are known");
        assert!(some.json && some.names == ["rmcp"]);
        assert!(order(&["--minutes", "3"]).is_err());
    }
}
