//! Containments: the kernel means that keep a tree together, as values.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::shown;

/// The means that keeps a tree together, weakest first: `a < b` means that `b` promises more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

    /// The promise in at most 60 characters.
    pub fn promise_in_brief(self) -> &'static str {
        match self {
            Containment::Group => "the server's process group is ended",
            Containment::Reaper => "every descendant is ended, also daemons",
            Containment::Leaf => "as reaper; also fork bombs and processes of other users",
            Containment::Unit => "as leaf; also when all of leash is killed at once",
            Containment::Sealed => "the kernel ends everything, whatever happens to leash",
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The containment.
    pub containment: Containment,
    /// The reason.
    pub why: String,
}

impl Refusal {
    /// A containment and why it was not used.
    pub fn new(containment: Containment, why: impl Into<String>) -> Refusal {
        Refusal { containment, why: shown(why.into()) }
    }
}

/// The containment that the caller wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainmentWish {
    /// Exactly this one, or nothing.
    pub exactly: Option<Containment>,
    /// At least this one, or nothing.
    pub at_least: Option<Containment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for containment in Containment::ALL {
            assert_eq!(containment.name().parse(), Ok(containment));
        }
        assert!("Leaf".parse::<Containment>().is_err());
    }

    #[test]
    fn brief_promises_are_brief() {
        assert!(Containment::ALL.into_iter().all(|containment| containment.promise_in_brief().chars().count() <= 60));
    }
}
