//! The command line of `bench`.

use std::path::PathBuf;

use super::{Bench, benches};
use crate::step::{Failure, Outcome, value};

/// Tells this program, built for release and with the paths of the programs under test, to measure.
pub(super) const MEASURE: &str = "--measure";

const USAGE: &str = "\
usage: cargo xtask bench [--quick] [--all-peers] [--json] [--plots DIR] [--program FILE]... [NAME...]
  --quick         few rounds, in under three minutes: to see that everything works
  --all-peers     with the gateway from crates.io as well, which has to be compiled
  --json          print JSON instead of Markdown
  --plots DIR     write the plots there too (docs/bench by default, unless --quick)
  --program FILE  measure this build of leash too, in the bench `builds`";

/// The number of samples per result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Enough to see that the bench works.
    Quick,
    /// Enough for a reliable number.
    Full,
}

impl Effort {
    pub(crate) fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

pub(super) struct Order {
    pub(super) effort: Effort,
    pub(super) all_peers: bool,
    pub(super) json: bool,
    pub(super) plots: Option<PathBuf>,
    pub(super) programs: Vec<PathBuf>,
    pub(super) measure: bool,
    pub(super) benches: Vec<&'static Bench>,
}

impl Order {
    pub(super) fn parse(words: &[String]) -> Outcome<Self> {
        let mut order = Self {
            effort: Effort::Full,
            all_peers: false,
            json: false,
            plots: None,
            programs: Vec::new(),
            measure: false,
            benches: Vec::new(),
        };
        let mut names = Vec::new();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--quick" => order.effort = Effort::Quick,
                "--all-peers" => order.all_peers = true,
                "--json" => order.json = true,
                MEASURE => order.measure = true,
                "--plots" => match words.next() {
                    Some(dir) => order.plots = Some(dir.into()),
                    None => return Err(Failure::new(USAGE)),
                },
                "--program" => order.programs.push(value(words.next(), USAGE)?),
                flag if flag.starts_with('-') => {
                    return Err(Failure::new(format!("bench has no `{flag}`\n{USAGE}")));
                }
                name => names.push(name),
            }
        }
        order.benches = choose(&names)?;
        Ok(order)
    }
}

/// The benches with these names, or all.
fn choose(names: &[&str]) -> Outcome<Vec<&'static Bench>> {
    let known: Vec<&str> = benches().map(|bench| bench.name).collect();
    match names.iter().find(|name| !known.contains(name)) {
        Some(name) => Err(Failure::new(format!("there is no bench `{name}`; there are: {}", known.join(", ")))),
        None => Ok(benches().filter(|bench| names.is_empty() || names.contains(&bench.name)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Order> {
        Order::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn names(order: &Order) -> Vec<&str> {
        order.benches.iter().map(|bench| bench.name).collect()
    }

    #[test]
    fn arguments_become_an_order() {
        let order = parse("echo --quick --plots /tmp/x churn --all-peers --json --program a --program b")
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(names(&order), ["echo", "churn"]);
        assert!(order.all_peers && order.json && !order.measure && order.effort == Effort::Quick);
        assert_eq!(order.plots, Some("/tmp/x".into()));
        assert_eq!(order.programs, [PathBuf::from("a"), PathBuf::from("b")]);
    }

    #[test]
    fn default_is_all_benches_with_full_effort() {
        let order = parse("").unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(names(&order).len(), benches().count());
        assert!(order.effort == Effort::Full && !order.all_peers && order.plots.is_none());
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in ["--slow", "--plots", "--program", "nonsense", "echo -q"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
