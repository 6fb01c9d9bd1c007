//! Counters of actions and faults. A fault that hit no process is not counted.

use std::collections::BTreeMap;
use std::fmt;

use super::action::Start;

/// Counters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<String, u64>);

impl Counts {
    /// Adds one.
    pub fn add(&mut self, word: impl fmt::Display) {
        *self.0.entry(word.to_string()).or_default() += 1;
    }

    /// The sum of all counters.
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

/// The counters of one episode, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The hosts and clients.
    pub hosts: Counts,
    /// Their routes.
    pub routes: Counts,
    /// The stdio and upstream servers.
    pub servers: Counts,
    /// The graces.
    pub graces: Counts,
    /// The actions.
    pub actions: Counts,
    /// The faults that hit a living process.
    pub faults: Counts,
    /// The number of processes that were seen. Processes that came and went between two looks are not counted.
    pub processes: u64,
    /// The number of trees that were seen.
    pub trees: u64,
    /// The number of trees whose supervisor and keeper were both killed.
    pub orphaned: u64,
    /// The number of receipts.
    pub receipts: u64,
    /// The number of bystanders, which were checked at the end.
    pub bystanders: u64,
    /// The fates of the sessions at upstream servers.
    pub sessions: Sessions,
}

/// The fates of the sessions at upstream servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// The number of opened sessions.
    pub opened: u64,
    /// The number of sessions that were ended by DELETE.
    pub deleted: u64,
    /// The number of sessions that were lost when their server crashed.
    pub lost: u64,
    /// The number of open sessions that a receipt names as left, by the reason.
    pub left: Counts,
    /// The number of open sessions without a receipt: only their server knows of them.
    pub unknown: u64,
}

impl Tally {
    /// Counts the start of an actor.
    pub(crate) fn start(&mut self, start: &Start) {
        self.hosts.add(start.driver);
        self.routes.add(start.route);
        match start.route.has_upstream() {
            true => self.servers.add(start.origin),
            false => self.servers.add(start.server),
        }
        self.graces.add(format_args!("{} ms", start.grace));
    }

    /// Adds the counters of another tally.
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
    fn most_frequent_word_is_first() {
        let mut counts = Counts::default();
        assert_eq!(counts.to_string(), "none");
        ["b", "a", "c", "c"].iter().for_each(|word| counts.add(word));
        assert_eq!(counts.to_string(), "c 2, a 1, b 1");
        assert_eq!(counts.sum(), 4);
    }

    #[test]
    fn counters_are_added_by_word() {
        let mut one = Tally { processes: 2, ..Tally::default() };
        one.faults.add("KILL");
        one.sessions.left.add("unsupported");
        let mut both = one.clone();
        both.extend(&one);
        assert_eq!((both.processes, both.faults.0["KILL"], both.sessions.left.0["unsupported"]), (4, 2, 2));
    }
}
