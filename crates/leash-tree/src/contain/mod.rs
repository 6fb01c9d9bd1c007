//! Containments: the kernel features that keep a tree together. leash tries them and uses the best one that works.

use leash_model::containment::{Containment, ContainmentWish, Refusal};

pub mod caps;
pub(crate) mod dbus;
pub(crate) mod leaf;
pub(crate) mod memory;
pub(crate) mod sealed;
pub mod slice;
pub(crate) mod unit;

/// Facts that decide which containments are worth trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// /proc is ours.
    pub own_proc: bool,
    /// leash is the first process of its PID namespace.
    pub pid_one: bool,
    /// A spare list was given.
    pub spares: bool,
    /// Memory or process caps were given.
    pub caps: bool,
    /// A budget for several trees together was given.
    pub slices: bool,
}

/// The order in which leash tries containments, and the reasons why it skips the others.
pub fn candidates(wish: ContainmentWish, situation: Situation) -> (Vec<Containment>, Vec<Refusal>) {
    let (mut order, mut refused) = (Vec::new(), Vec::new());
    for containment in Containment::ALL {
        match reason_to_skip(containment, wish, situation) {
            None => order.push(containment),
            Some(why) => refused.push(Refusal::new(containment, why)),
        }
    }
    (order, refused)
}

fn reason_to_skip(containment: Containment, wish: ContainmentWish, situation: Situation) -> Option<String> {
    if let Some(exactly) = wish.exactly {
        if containment != exactly {
            return Some(format!("`{exactly}` was asked for"));
        }
    } else if containment == Containment::Sealed && wish.at_least != Some(Containment::Sealed) && !situation.pid_one {
        return Some("not asked for: it changes the pids that a server sees".to_owned());
    }
    if wish.at_least.is_some_and(|least| containment < least) {
        return Some("weaker than the required containment".to_owned());
    }
    let needs_proc = matches!(containment, Containment::Reaper | Containment::Unit);
    if needs_proc && !situation.own_proc {
        return Some("/proc does not show this PID namespace".to_owned());
    }
    let spares_die = matches!(containment, Containment::Sealed | Containment::Unit);
    if spares_die && situation.spares {
        return Some("`spare` does not work in it".to_owned());
    }
    if situation.caps && !matches!(containment, Containment::Leaf | Containment::Unit) {
        return Some("limits of memory, processes and processor time need a cgroup".to_owned());
    }
    if situation.slices && containment != Containment::Unit {
        return Some("a budget of a session, or for all of leash, needs the systemd user manager (`unit`)".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Situation = Situation { own_proc: true, pid_one: false, spares: false, caps: false, slices: false };

    fn check(wish: ContainmentWish, situation: Situation, order: &str) {
        let (candidates, refused) = candidates(wish, situation);
        let names: Vec<_> = candidates.iter().map(|containment| containment.name()).collect();
        assert_eq!(names.join(" "), order);
        assert_eq!(candidates.len() + refused.len(), Containment::ALL.len());
    }

    #[test]
    fn best_first_and_sealed_only_when_asked() {
        check(ContainmentWish::default(), PLAIN, "unit leaf reaper group");
        check(ContainmentWish::default(), Situation { pid_one: true, ..PLAIN }, "sealed unit leaf reaper group");
        check(ContainmentWish { at_least: Some(Containment::Leaf), exactly: None }, PLAIN, "unit leaf");
        check(ContainmentWish { at_least: Some(Containment::Sealed), exactly: None }, PLAIN, "sealed");
        for containment in Containment::ALL {
            check(ContainmentWish { exactly: Some(containment), at_least: None }, PLAIN, containment.name());
        }
    }

    #[test]
    fn a_foreign_proc_is_never_walked() {
        check(ContainmentWish::default(), Situation { own_proc: false, ..PLAIN }, "leaf group");
    }

    #[test]
    fn spares_and_caps_narrow_the_choice() {
        check(ContainmentWish::default(), Situation { spares: true, ..PLAIN }, "leaf reaper group");
        check(ContainmentWish::default(), Situation { caps: true, ..PLAIN }, "unit leaf");
        check(
            ContainmentWish { exactly: Some(Containment::Reaper), at_least: None },
            Situation { caps: true, ..PLAIN },
            "",
        );
        check(ContainmentWish::default(), Situation { slices: true, ..PLAIN }, "unit");
        check(ContainmentWish::default(), Situation { slices: true, spares: true, ..PLAIN }, "");
    }
}
