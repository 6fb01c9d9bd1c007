//! Processes that are left of a tree, their listening ports, and whether one of them is a browser.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use leash_model::identity::Identity;
use leash_orphans::scan::resources;
use leash_tree::{platform::identity::HeldProcess, platform::proc::Proc};

/// A process that is still alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Survivor {
    /// Its PID and start time.
    #[serde(flatten)]
    pub id: Identity,
    /// Its short name.
    pub name: String,
    /// Its command line, shortened.
    pub command: String,
    /// TCP ports on which it listens.
    pub ports: BTreeSet<u16>,
}

/// The length of a shown command line.
const SHOWN: usize = 100;

/// Names of browsers; their helper processes have the same name, or one that begins with it.
const BROWSERS: [&str; 10] = [
    "chrome",
    "chromium",
    "google-chrome",
    "headless_shell",
    "chrome-headless",
    "firefox",
    "msedge",
    "brave",
    "webkit",
    "MiniBrowser",
];

impl Survivor {
    /// Reads the living processes with these PIDs; zombies are skipped.
    pub(crate) fn look(proc: &Proc, pids: &[i32]) -> Vec<Survivor> {
        let held = pids.iter().filter_map(|pid| HeldProcess::open(proc, *pid)).filter(|held| !held.stat.dead());
        held.map(|held| Survivor {
            id: held.id,
            name: held.stat.comm.clone(),
            command: shortened(&proc.command_line(held.id.pid)),
            ports: resources::of(proc, &[held.id]).ports,
        })
        .collect()
    }

    /// True if it is a browser or a part of one.
    pub fn is_browser(&self) -> bool {
        let program = self.command.split(' ').next().unwrap_or_default();
        let base = program.rsplit('/').next().unwrap_or_default();
        BROWSERS.iter().any(|browser| self.name.starts_with(browser) || base.starts_with(browser))
    }
}

fn shortened(command: &str) -> String {
    let mut text: String = command.chars().take(SHOWN).collect();
    if text.len() < command.len() {
        text.push_str("...");
    }
    text
}

/// Several processes on one line, for the report.
pub(crate) fn list(survivors: &[&Survivor]) -> String {
    /// Further kinds are only counted.
    const NAMED: usize = 3;
    let mut kinds: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for survivor in survivors {
        *kinds.entry((&survivor.name, &survivor.command)).or_default() += 1;
    }
    let named = kinds.iter().take(NAMED).map(|((name, command), count)| match count {
        1 => format!("{name} (`{command}`)"),
        _ => format!("{count} x {name} (`{command}`)"),
    });
    let mut names: Vec<String> = named.collect();
    if kinds.len() > NAMED {
        names.push(format!("and {} more", kinds.values().skip(NAMED).sum::<usize>()));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_known_by_name_or_program() {
        let survivor = |name: &str, command: &str| Survivor {
            id: Identity { pid: 1, start: 1, inode: None },
            name: name.to_owned(),
            command: command.to_owned(),
            ports: BTreeSet::new(),
        };
        assert!(survivor("chrome", "/opt/x --type=zygote").is_browser());
        assert!(survivor("MainThread", "/usr/lib/firefox/firefox -headless").is_browser());
        assert!(survivor("headless_shell", "").is_browser());
        assert!(!survivor("node", "node chrome-devtools-mcp").is_browser());
    }

    #[test]
    fn zombies_are_skipped_and_living_processes_are_not() {
        let proc = Proc::own().expect("our own");
        let me = rustix::process::getpid().as_raw_pid();
        let found = Survivor::look(&proc, &[me, i32::MAX]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id.pid, me);
    }

    #[test]
    fn long_lists_are_counted_and_shortened() {
        let survivor = |name: &str| Survivor {
            id: Identity { pid: 1, start: 1, inode: None },
            name: name.to_owned(),
            command: format!("{name} --x"),
            ports: BTreeSet::new(),
        };
        let all = ["a", "b", "a", "c", "d", "d"].map(survivor);
        let all: Vec<&Survivor> = all.iter().collect();
        assert_eq!(list(&all), "2 x a (`a --x`), b (`b --x`), c (`c --x`), and 2 more");
    }
}
