//! Containments: the kernel features that keep a tree together. leash tries them and uses the best one that works.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub mod caps;
pub(crate) mod dbus;
pub(crate) mod leaf;
pub(crate) mod sealed;
pub(crate) mod unit;

/// The means that keeps a tree together, weakest first: `a < b` means that `b` promises more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Containment {
    /// A process group.
    Group,
    /// Subreaper and top-down killing.
    Reaper,
    /// A cgroup2 leaf, and the reaper.
    Leaf,
    /// A systemd scope bound to a guard unit, with a leaf in it, and the reaper.
    Unit,
    /// A PID namespace.
    Sealed,
}

impl Containment {
    /// All containments, strongest first.
    pub const ALL: [Containment; 5] =
        [Containment::Sealed, Containment::Unit, Containment::Leaf, Containment::Reaper, Containment::Group];

    /// The name as the user types it.
    pub fn name(self) -> &'static str {
        match self {
            Containment::Group => "group",
            Containment::Reaper => "reaper",
            Containment::Leaf => "leaf",
            Containment::Unit => "unit",
            Containment::Sealed => "sealed",
        }
    }

    /// The processes that are certainly ended, in one sentence.
    pub fn promise(self) -> &'static str {
        match self {
            Containment::Group => "the server's process group is ended",
            Containment::Reaper => {
                "every descendant is ended, also after setsid or a double fork, and after SIGKILL of any one process of leash"
            }
            Containment::Leaf => "as reaper; also fork bombs, and children that became another user or left the group",
            Containment::Unit => "as leaf; systemd also ends everything when all of leash is killed at once",
            Containment::Sealed => "the kernel ends everything, even if all of leash is killed in the same instant",
        }
    }

    /// The cases that it does not cover, in one sentence.
    pub fn does_not_cover(self) -> &'static str {
        match self {
            Containment::Group => {
                "daemons: processes that called setsid or changed their group stay behind; work done by a broker (docker, services)"
            }
            Containment::Reaper => {
                "leash and keeper killed within some 4 ms (the next start of leash ends what was recorded); children of another user; children left unseen in an existing PID namespace; fork bombs above 1000; work done by a broker (docker, services)"
            }
            Containment::Leaf => {
                "leash and keeper killed within some 4 ms (the next start of leash ends the rest); work done by a broker (docker, services)"
            }
            Containment::Unit => {
                "children that became root, if leash, keeper and guard are all killed; work done by a broker (docker, services)"
            }
            Containment::Sealed => {
                "work done by a broker (docker, services); the server sees other pids, and for an ordinary user ssh and sudo do not work inside"
            }
        }
    }
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Containment {
    type Err = String;
    fn from_str(text: &str) -> Result<Containment, String> {
        Containment::ALL
            .into_iter()
            .find(|containment| containment.name() == text)
            .ok_or_else(|| format!("`{text}` is not one of sealed, unit, leaf, reaper, group"))
    }
}

/// A containment that was tried or skipped, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The containment.
    pub containment: Containment,
    /// The reason.
    pub why: String,
}

impl Refusal {
    pub(crate) fn new(containment: Containment, why: impl Into<String>) -> Refusal {
        Refusal { containment, why: why.into() }
    }
}

/// The containment that the caller wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Exactly this one, or nothing.
    pub exactly: Option<Containment>,
    /// At least this one, or nothing.
    pub at_least: Option<Containment>,
}

/// Facts that decide which containments are worth trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Situation {
    /// /proc belongs to our PID namespace.
    pub(crate) own_proc: bool,
    /// leash is the first process of its PID namespace.
    pub(crate) pid_one: bool,
    /// A spare list was given.
    pub(crate) spares: bool,
    /// Memory or process caps were given.
    pub(crate) caps: bool,
}

/// The order in which leash tries containments, and the reasons why it skips the others.
pub(crate) fn candidates(wish: Wish, situation: Situation) -> (Vec<Containment>, Vec<Refusal>) {
    let (mut order, mut refused) = (Vec::new(), Vec::new());
    for containment in Containment::ALL {
        match passed_over(containment, wish, situation) {
            None => order.push(containment),
            Some(why) => refused.push(Refusal::new(containment, why)),
        }
    }
    (order, refused)
}

fn passed_over(containment: Containment, wish: Wish, situation: Situation) -> Option<String> {
    if let Some(exactly) = wish.exactly {
        if containment != exactly {
            return Some(format!("`{exactly}` was asked for"));
        }
    } else if containment == Containment::Sealed && wish.at_least != Some(Containment::Sealed) && !situation.pid_one {
        return Some("not asked for: it changes the pids that a server sees".to_owned());
    }
    if wish.at_least.is_some_and(|least| containment < least) {
        return Some("less than what is required".to_owned());
    }
    let needs_proc = matches!(containment, Containment::Reaper | Containment::Unit);
    if needs_proc && !situation.own_proc {
        return Some("/proc is not ours".to_owned());
    }
    let spares_die = matches!(containment, Containment::Sealed | Containment::Unit);
    if spares_die && situation.spares {
        return Some("nothing can be spared in it".to_owned());
    }
    if situation.caps && !matches!(containment, Containment::Leaf | Containment::Unit) {
        return Some("memory and process caps need a cgroup".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Situation = Situation { own_proc: true, pid_one: false, spares: false, caps: false };

    fn check(wish: Wish, situation: Situation, order: &str) {
        let (candidates, refused) = candidates(wish, situation);
        let names: Vec<_> = candidates.iter().map(|containment| containment.name()).collect();
        assert_eq!(names.join(" "), order);
        assert_eq!(candidates.len() + refused.len(), Containment::ALL.len());
    }

    #[test]
    fn best_first_and_sealed_only_when_asked() {
        check(Wish::default(), PLAIN, "unit leaf reaper group");
        check(Wish::default(), Situation { pid_one: true, ..PLAIN }, "sealed unit leaf reaper group");
        check(Wish { at_least: Some(Containment::Leaf), exactly: None }, PLAIN, "unit leaf");
        check(Wish { at_least: Some(Containment::Sealed), exactly: None }, PLAIN, "sealed");
        for containment in Containment::ALL {
            check(Wish { exactly: Some(containment), at_least: None }, PLAIN, containment.name());
        }
    }

    #[test]
    fn proc_of_another_namespace_excludes_reaper_and_unit() {
        check(Wish::default(), Situation { own_proc: false, ..PLAIN }, "leaf group");
    }

    #[test]
    fn spares_and_caps_narrow_the_choice() {
        check(Wish::default(), Situation { spares: true, ..PLAIN }, "leaf reaper group");
        check(Wish::default(), Situation { caps: true, ..PLAIN }, "unit leaf");
        check(Wish { exactly: Some(Containment::Reaper), at_least: None }, Situation { caps: true, ..PLAIN }, "");
    }

    #[test]
    fn names_are_read_back() {
        for containment in Containment::ALL {
            assert_eq!(containment.name().parse(), Ok(containment));
        }
        assert!("Leaf".parse::<Containment>().is_err());
    }
}
