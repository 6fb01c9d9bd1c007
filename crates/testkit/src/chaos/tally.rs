//! How often what was done. A fault that met nobody is not counted.

use std::collections::BTreeMap;
use std::fmt;

use super::action::Start;

/// Numbers by their words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<String, u64>);

impl Counts {
    /// One more.
    pub fn add(&mut self, word: impl fmt::Display) {
        *self.0.entry(word.to_string()).or_default() += 1;
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    fn extend(&mut self, other: &Self) {
        for (word, count) in &other.0 {
            *self.0.entry(word.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let mut sorted: Vec<(&String, &u64)> = self.0.iter().collect();
        sorted.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let words: Vec<String> = sorted.iter().map(|(word, count)| format!("{word} {count}")).collect();
        f.write_str(&words.join(", "))
    }
}

/// Everything that is counted in an episode, or in many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Who used something.
    pub hosts: Counts,
    /// By which way.
    pub routes: Counts,
    /// Which stdio and upstream servers.
    pub servers: Counts,
    /// With how much grace.
    pub graces: Counts,
    /// What was done.
    pub actions: Counts,
    /// What was done to somebody who was there.
    pub faults: Counts,
    /// How many processes were seen; those that came and went between two looks are not among them.
    pub processes: u64,
    /// How many trees were seen.
    pub trees: u64,
    /// Of those, how many lost both who looked after them.
    pub orphaned: u64,
    /// How many receipts were written.
    pub receipts: u64,
    /// How many had nothing to do with it, and were asked at the end.
    pub bystanders: u64,
    /// What became of the sessions at upstream servers.
    pub sessions: Sessions,
}

/// What became of the sessions at upstream servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// How many were opened.
    pub opened: u64,
    /// How many were ended by DELETE.
    pub deleted: u64,
    /// How many were lost when their server crashed.
    pub lost: u64,
    /// How many are open and named as left in a receipt, by the reason.
    pub left: Counts,
    /// How many are open and named nowhere: nobody but their server can know of them.
    pub unknown: u64,
}

impl Tally {
    /// Counts somebody who begins.
    pub(crate) fn start(&mut self, start: &Start) {
        self.hosts.add(start.driver);
        self.routes.add(start.route);
        match start.route.has_upstream() {
            true => self.servers.add(start.origin),
            false => self.servers.add(start.server),
        }
        self.graces.add(format_args!("{} ms", start.grace));
    }

    /// Adds another one.
    pub fn extend(&mut self, other: &Self) {
        self.hosts.extend(&other.hosts);
        self.routes.extend(&other.routes);
        self.servers.extend(&other.servers);
        self.graces.extend(&other.graces);
        self.actions.extend(&other.actions);
        self.faults.extend(&other.faults);
        self.processes += other.processes;
        self.trees += other.trees;
        self.orphaned += other.orphaned;
        self.receipts += other.receipts;
        self.bystanders += other.bystanders;
        self.sessions.opened += other.sessions.opened;
        self.sessions.deleted += other.sessions.deleted;
        self.sessions.lost += other.sessions.lost;
        self.sessions.left.extend(&other.sessions.left);
        self.sessions.unknown += other.sessions.unknown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_is_first() {
        let mut counts = Counts::default();
        assert_eq!(counts.to_string(), "none");
        ["b", "a", "c", "c"].iter().for_each(|word| counts.add(word));
        assert_eq!(counts.to_string(), "c 2, a 1, b 1");
        assert_eq!(counts.sum(), 4);
    }

    #[test]
    fn two_are_added_word_by_word() {
        let mut one = Tally { processes: 2, ..Tally::default() };
        one.faults.add("KILL");
        one.sessions.left.add("unsupported");
        let mut both = one.clone();
        both.extend(&one);
        assert_eq!((both.processes, both.faults.0["KILL"], both.sessions.left.0["unsupported"]), (4, 2, 2));
    }
}
