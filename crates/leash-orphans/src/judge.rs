//! Decides verdicts from facts. Pure: no clock, no /proc, no process.
//!
//! The proof is a fixed point. It starts with the set of all servers whose own facts allow the verdict, and removes a
//! server while a process outside of the set (and of the server's own tree) holds one of its ends. The remaining
//! servers hold only each other. The set shrinks in each round, so the loop ends; and since a larger set never makes a
//! holder *more* alive, the order does not matter.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

mod cases;
mod holder;
pub mod verdict;

use crate::facts::{
    AcceptedConnection, Channel, DescriptorKind, Evidence, Facts, OtherEnd, Process, StdioStream, UnreadReason,
};
use crate::knowledge::Knowledge;
use cases::{Case, Cases};
use holder::{EndHolder, client, holder, name};
use leash_model::duration;
use leash_model::identity::Identity;
use verdict::{Finding, TreeRole, Verdict};

/// The time for which the other ends of a server must be closed while its parent lives. A host that ends a server
/// properly closes its stdin, waits 2 s, sends SIGTERM and waits 2 s more; on a slow machine this may take twice as
/// long.
pub const SETTLE: Duration = Duration::from_secs(10);

/// The limits for a verdict.
#[derive(Clone, Debug)]
pub struct JudgePolicy {
    /// The time for which the other ends must be closed while a parent lives that may be the host: a host that ends a
    /// server properly closes them first.
    pub settle: Duration,
    /// The time for which the other ends are known to be closed from earlier scans, by PID and start time.
    pub gone_for: HashMap<(i32, u64), Duration>,
}

impl Default for JudgePolicy {
    fn default() -> JudgePolicy {
        JudgePolicy { settle: SETTLE, gone_for: HashMap::new() }
    }
}

/// A process that was forked before a channel was created can't have inherited it. A host creates the channel just
/// before it starts the server; this is the longest assumed time between the two (and start times have a resolution of
/// 10 ms).
const BEFORE_THE_SERVER: Duration = Duration::from_secs(30);

/// A host is stale if more than this is in swap, more than in memory, and it is older than [`SWAPPED_AGE`].
const SWAPPED: u64 = 64 * 1024 * 1024;
const SWAPPED_AGE: Duration = Duration::from_secs(24 * 3600);

/// Judges every MCP server among the processes, stale hosts, and processes that ended sessions of leash left behind.
pub fn judge(facts: &Facts, knowledge: &Knowledge, policy: &JudgePolicy) -> Vec<Finding> {
    let cases = Cases::find(facts, knowledge);
    let judge = Judge { facts, policy };
    let proved = judge.greatest_set(&cases.all, Judge::is_proved);
    let likely = judge.greatest_set(&cases.all, Judge::is_likely);
    let decide = |(at, case): (usize, &Case<'_>)| match (proved.remaining[at], likely.remaining[at]) {
        (true, _) => judge.finding(case, Some(Verdict::OrphanProved), &proved.disowned),
        (false, true) => judge.finding(case, Some(Verdict::OrphanLikely), &likely.disowned),
        (false, false) => judge.finding(case, None, &likely.disowned),
    };
    let mut findings: Vec<Finding> = cases.all.iter().enumerate().map(decide).collect();
    findings.extend(cases.hosts.iter().filter_map(|case| judge.stale(case)));
    findings.sort_by_key(|finding| finding.root.pid);
    findings
}

/// Processes of trees that are assumed to be disowned, with the root of each tree.
type Disowned = HashMap<i32, Identity>;

/// The result of the fixed point.
struct FixedPoint {
    /// True for each case that remains, in the order of the cases.
    remaining: Vec<bool>,
    disowned: Disowned,
}

struct Judge<'a> {
    facts: &'a Facts,
    policy: &'a JudgePolicy,
}

impl<'a> Judge<'a> {
    /// The greatest set of cases that all satisfy `holds`, given that set.
    fn greatest_set(&self, cases: &[Case<'a>], holds: impl Fn(&Self, &Case<'a>, &Disowned) -> bool) -> FixedPoint {
        let mut remaining: Vec<bool> = vec![true; cases.len()];
        loop {
            let disowned = gather(cases, &remaining);
            let mut changed = false;
            for (case, remains) in cases.iter().zip(&mut remaining) {
                if *remains && !holds(self, case, &disowned) {
                    *remains = false;
                    changed = true;
                }
            }
            if !changed {
                return FixedPoint { remaining, disowned };
            }
        }
    }

    fn is_proved(&self, case: &Case<'a>, disowned: &Disowned) -> bool {
        let ends = [&case.root.stdin, &case.root.stdout].map(|channel| self.holder(case, channel, disowned));
        let unheld =
            ends.iter().all(|holder| matches!(holder, EndHolder::Gone | EndHolder::Itself | EndHolder::Orphans(_)));
        let by_kernel = ends.iter().all(|holder| matches!(holder, EndHolder::Gone));
        unheld
            && !matches!(case.identified_by, Evidence::Resembles { .. })
            // A list of holders is complete only if every process can be seen and read.
            && (by_kernel || (self.facts.whole && self.unread_others(case) == 0))
            && case.tree.iter().all(|member| self.is_ours(member))
            && case.leashed.is_none()
            && case.foreign_leash.is_none()
            && self.members(case, disowned).is_empty()
            && self.ports(case, disowned).is_empty()
            && self.is_settled(case, disowned)
    }

    /// True if the user may end it: processes of another user can be neither judged nor signalled.
    fn is_ours(&self, process: &Process) -> bool {
        self.facts.uid == 0 || process.uid == self.facts.uid
    }

    /// The weaker test: no fact contradicts it, and the other end of stdin suggests it.
    fn is_likely(&self, case: &Case<'a>, disowned: &Disowned) -> bool {
        let stdin = self.holder(case, &case.root.stdin, disowned);
        let stdout = self.holder(case, &case.root.stdout, disowned);
        let attended = case.leashed.as_ref().is_some_and(|leashed| leashed.attended);
        if attended || !self.is_ours(case.root) || matches!(stdout, EndHolder::Living(..)) {
            return false;
        }
        match stdin {
            EndHolder::Gone | EndHolder::Itself | EndHolder::Orphans(_) => true,
            // A holder exists that can't be seen. Without a host above the server, that holder is hardly a host.
            EndHolder::Unseen(_) => self.is_reparented(case.root) && case.host.is_none(),
            EndHolder::Terminal => case.root.terminal_gone,
            EndHolder::Living(..) | EndHolder::Nothing => false,
        }
    }

    fn holder(&self, case: &Case<'a>, channel: &Channel, disowned: &Disowned) -> EndHolder<'a> {
        match &channel.other_end {
            OtherEnd::Gone => EndHolder::Gone,
            OtherEnd::NotVisible(why) => EndHolder::Unseen(*why),
            OtherEnd::None => match channel.kind {
                DescriptorKind::Tty => EndHolder::Terminal,
                DescriptorKind::Null | DescriptorKind::File | DescriptorKind::Closed => EndHolder::Nothing,
                // A pipe or socket without an answer is an error of the scan, not a proof.
                DescriptorKind::Unread
                | DescriptorKind::NotAsked
                | DescriptorKind::Pipe { .. }
                | DescriptorKind::Socket { .. } => EndHolder::Unseen(UnreadReason::NotPermitted),
            },
            OtherEnd::Held { by, all } => {
                let mut orphan = None;
                let mut living: Option<(Identity, Option<&Process>)> = None;
                for holder in by {
                    // A holder that is not among the processes, or has another start time, is unknown and counts as
                    // alive.
                    let seen = self.facts.same(holder);
                    match seen.filter(|_| case.members.contains(&holder.pid)) {
                        Some(_) => {}
                        None => match seen.and_then(|seen| disowned.get(&seen.id.pid)) {
                            Some(root) => orphan = Some(*root),
                            // A child of the client may have a copy of its descriptors.
                            None if living.is_none() || seen.is_some_and(|seen| client(seen).is_some()) => {
                                living = Some((*holder, seen));
                            }
                            None => {}
                        },
                    }
                }
                if let Some((by, seen)) = living {
                    return EndHolder::Living(by, seen);
                }
                match (all, orphan) {
                    (false, _) => EndHolder::Unseen(UnreadReason::Unseen),
                    (true, Some(root)) => EndHolder::Orphans(root),
                    (true, None) => EndHolder::Itself,
                }
            }
        }
    }

    /// The evidence against ending the other members of a tree.
    fn members(&self, case: &Case<'a>, disowned: &Disowned) -> Vec<Evidence> {
        let mut against = Vec::new();
        for member in case.tree.iter().filter(|member| member.id.pid != case.root.id.pid) {
            let id = member.id;
            match self.holder(case, &member.stdin, disowned) {
                EndHolder::Gone | EndHolder::Itself | EndHolder::Orphans(_) | EndHolder::Nothing => {}
                EndHolder::Terminal if member.terminal_gone => {}
                EndHolder::Terminal => against.push(Evidence::MemberAtTerminal { member: id }),
                EndHolder::Living(by, _) => against.push(Evidence::MemberHeld { member: id, by }),
                EndHolder::Unseen(_) => against.push(Evidence::MemberUnread { member: id }),
            }
        }
        against
    }

    /// Ports with a client that is neither a member of the tree nor an orphan.
    fn ports(&self, case: &Case<'a>, disowned: &Disowned) -> BTreeSet<u16> {
        let is_ours_or_orphan = |pid: &i32| case.members.contains(pid) || disowned.contains_key(pid);
        let in_use =
            |served: &&AcceptedConnection| served.clients.is_empty() || !served.clients.iter().all(is_ours_or_orphan);
        let served = self.facts.served.iter().filter(|served| case.members.contains(&served.by));
        served.filter(in_use).map(|served| served.port).collect()
    }

    /// The number of unread processes that may have inherited an end of this server.
    fn unread_others(&self, case: &Case<'a>) -> usize {
        let slack = BEFORE_THE_SERVER.as_secs().saturating_mul(self.facts.hertz);
        let since = case.root.id.start.saturating_sub(slack);
        let may_hold = |id: &Identity| id.start >= since && !case.members.contains(&id.pid);
        self.facts.unread.iter().filter(|unread| may_hold(&unread.id)).count()
    }

    /// True if no host can be about to end it properly: its parent only collects orphans, is an orphan, or has had the
    /// time.
    fn is_settled(&self, case: &Case<'a>, disowned: &Disowned) -> bool {
        let abandoned = self.is_reparented(case.root) || disowned.contains_key(&case.root.ppid);
        (abandoned && case.host.is_none()) || self.gone_for(case) >= self.policy.settle
    }

    fn gone_for(&self, case: &Case<'a>) -> Duration {
        let id = case.root.id;
        self.policy.gone_for.get(&(id.pid, id.start)).copied().unwrap_or_default()
    }

    fn is_reparented(&self, process: &Process) -> bool {
        self.facts.is_reaper(process.ppid)
    }

    /// `seen` is the set of disowned processes on which the verdict is based, so the evidence agrees with the verdict.
    fn finding(&self, case: &Case<'a>, decided: Option<Verdict>, seen: &Disowned) -> Finding {
        let (stdin, stdout) = (&case.root.stdin, &case.root.stdout);
        let holds = [
            (StdioStream::Stdin, self.holder(case, stdin, seen)),
            (StdioStream::Stdout, self.holder(case, stdout, seen)),
        ];
        let unheld =
            |holder: &EndHolder<'_>| matches!(holder, EndHolder::Gone | EndHolder::Itself | EndHolder::Orphans(_));
        let ends_gone = holds.iter().all(|(_, holder)| unheld(holder));
        let verdict = match &case.leashed {
            Some(leashed) if leashed.attended => Verdict::Live,
            Some(_) => Verdict::OrphanLikely,
            None if decided.is_some() => decided.unwrap_or(Verdict::Unknown),
            None if holds.iter().any(|(_, holder)| matches!(holder, EndHolder::Living(..))) => Verdict::Live,
            None if matches!(holds[0].1, EndHolder::Terminal) && !case.root.terminal_gone => Verdict::Live,
            None => Verdict::Unknown,
        };
        let mut evidence = self.about_holds(&holds);
        evidence.extend(self.about_origin(case));
        if case.leashed.is_none() {
            evidence.extend(self.members(case, seen));
        }
        evidence.extend(self.ports(case, seen).into_iter().map(|port| Evidence::Serves { port }));
        if ends_gone && verdict != Verdict::OrphanProved {
            evidence.extend(self.about_doubt(case, &holds, seen));
        }
        let holder = holder(&holds);
        Finding {
            role: case.role,
            root: case.root.id,
            tree: case.tree.iter().map(|member| member.id).collect(),
            client: holder.as_ref().map_or_else(|| case.client.clone(), |holder| holder.client.clone()),
            holder,
            server: case.server.clone(),
            identified_by: case.identified_by.clone(),
            verdict,
            evidence,
            leashed: case.leashed.as_ref().map(|leashed| leashed.session.clone()),
            ends_gone,
            age: case.root.age(self.facts),
        }
    }

    fn about_holds(&self, holds: &[(StdioStream, EndHolder<'a>); 2]) -> Vec<Evidence> {
        let say = |(stream, holder): &(StdioStream, EndHolder<'a>)| {
            let stream = *stream;
            match holder {
                EndHolder::Gone => Evidence::EndGone { stream },
                EndHolder::Itself => Evidence::HeldByItself { stream },
                EndHolder::Orphans(root) => Evidence::HeldByOrphans { stream, root: *root },
                EndHolder::Living(by, seen) => {
                    let name = seen.map(name).unwrap_or_default();
                    Evidence::HeldBy { stream, by: *by, name }
                }
                EndHolder::Unseen(why) => Evidence::NotVisible { stream, why: *why },
                EndHolder::Terminal => Evidence::Terminal,
                EndHolder::Nothing => Evidence::NoChannel { stream },
            }
        };
        holds.iter().map(say).collect()
    }

    fn about_origin(&self, case: &Case<'a>) -> Vec<Evidence> {
        let root = case.root;
        let mut evidence = Vec::new();
        if let Some(leashed) = &case.leashed {
            let session = leashed.session.clone();
            evidence.push(if leashed.attended {
                Evidence::Leashed { session }
            } else {
                Evidence::LeashLost { session }
            });
        }
        if let Some(session) = &case.foreign_leash {
            evidence.push(Evidence::ForeignLeash { session: session.clone() });
        }
        if let Some((host, client)) = &case.host {
            evidence.push(Evidence::HostAbove { by: host.id, client: client.clone() });
        }
        match self.facts.process(root.ppid) {
            // The parent of a run is leash.
            _ if case.leashed.is_some() => {}
            _ if self.is_reparented(root) => evidence.push(Evidence::Reparented),
            Some(parent) => evidence.push(Evidence::Parent { by: parent.id, name: name(parent) }),
            None => {}
        }
        if root.terminal_gone {
            evidence.push(Evidence::TerminalGone);
        }
        if root.uid != self.facts.uid {
            evidence.push(Evidence::OtherUser { uid: root.uid });
        }
        evidence
    }

    /// The reasons why closed ends are no proof.
    fn about_doubt(
        &self,
        case: &Case<'a>,
        holds: &[(StdioStream, EndHolder<'a>); 2],
        seen: &Disowned,
    ) -> Vec<Evidence> {
        let mut evidence = Vec::new();
        let unread = self.unread_others(case);
        let by_kernel = holds.iter().all(|(_, holder)| matches!(holder, EndHolder::Gone));
        if !by_kernel && unread > 0 {
            evidence.push(Evidence::OthersUnread { count: unread });
        }
        if !by_kernel && !self.facts.whole {
            evidence.push(Evidence::OthersHidden);
        }
        if case.leashed.is_none() && !self.is_settled(case, seen) {
            let (gone_ms, needed_ms) = (duration::as_ms(self.gone_for(case)), duration::as_ms(self.policy.settle));
            evidence.push(Evidence::NotSettled { gone_ms, needed_ms });
        }
        evidence
    }

    /// A finding for a host that can't be used any more.
    fn stale(&self, case: &Case<'a>) -> Option<Finding> {
        let root = case.root;
        let swapped = root.swap > SWAPPED && root.swap > root.resident && root.age(self.facts) > SWAPPED_AGE;
        let mut evidence = Vec::new();
        if root.terminal_gone && root.tty == 0 {
            evidence.push(Evidence::TerminalGone);
        }
        if swapped {
            evidence.push(Evidence::SwappedOut { swap: root.swap });
        }
        (!evidence.is_empty()).then(|| Finding {
            role: TreeRole::Host,
            root: root.id,
            tree: case.tree.iter().map(|member| member.id).collect(),
            holder: None,
            client: case.client.clone(),
            server: None,
            identified_by: case.identified_by.clone(),
            verdict: Verdict::StaleHost,
            evidence,
            leashed: None,
            ends_gone: false,
            age: root.age(self.facts),
        })
    }
}

fn gather(cases: &[Case<'_>], remaining: &[bool]) -> Disowned {
    let remaining = cases.iter().zip(remaining).filter(|(_, remains)| **remains);
    remaining.flat_map(|(case, _)| case.tree.iter().map(|member| (member.id.pid, case.root.id))).collect()
}

/// A set of PIDs.
type Pids = HashSet<i32>;

#[cfg(test)]
mod tests;
