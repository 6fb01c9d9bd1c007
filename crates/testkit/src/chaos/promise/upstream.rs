//! The promises about sessions at upstream servers: leash ends each of them or names it as left, in one receipt.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::super::action::Origin;
use super::{Facts, holdings};

/// The state of a session, as its server saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is open.
    Open,
    /// It was ended by a DELETE.
    Ended,
    /// Its server crashed and lost it.
    Lost,
}

/// A session at an upstream server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its server.
    pub origin: Origin,
    /// Its id there.
    pub id: String,
    /// The leash that opened it.
    pub opener: String,
    /// Its state.
    pub state: State,
}

/// The faults that hit a leash that opens sessions at upstream servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wounds {
    /// It is a `leash serve`.
    pub is_gateway: bool,
    /// It started in the place of a killed gateway, with the same configuration: it may take over its sessions.
    pub takes_over: bool,
    /// It was killed by SIGKILL.
    pub leash: bool,
    /// Its keeper was killed by SIGKILL.
    pub keeper: bool,
    /// The number of signals that told it to end.
    pub stops: usize,
    /// It or its keeper was short of a resource for a while.
    pub short: bool,
    /// It had so few descriptors for a while that it could not open a connection.
    pub mute: bool,
    /// The number of times that it was hit during `initialize`: each time a session may exist whose id no process of
    /// leash learnt.
    pub doubts: usize,
}

impl Wounds {
    /// True if no process was left that could have ended and reported everything before the next start of leash. After
    /// a second signal leash does not wait for pending work; a keeper does it.
    pub fn may_wait_for_a_sweep(self) -> bool {
        let is_cut_off = self.leash || self.stops > 1;
        let has_no_keeper = self.is_gateway && !GATEWAYS_HAVE_KEEPERS;
        self.short || is_cut_off && (has_no_keeper || self.keeper)
    }

    /// True if sessions that were only in its memory may be lost. A gateway is never excused: it records everything
    /// before it acts.
    fn may_forget(self) -> bool {
        self.leash && !self.is_gateway
    }
}

/// True if `leash serve` has a keeper, as `leash connect` has, which ends its upstream sessions when it is killed. If
/// not, they wait for the next start of leash. This constant decides nothing else.
const GATEWAYS_HAVE_KEEPERS: bool = true;

/// A DELETE is tried six times, with pauses of 15 s in all that may be a quarter shorter. No server is called
/// unreachable before that.
const GIVES_UP: Duration = Duration::from_secs(11);

/// The sessions, and the receipts at some time.
struct Account<'a> {
    sessions: &'a [Session],
    receipts: &'a [Value],
    openers: &'a BTreeMap<String, Wounds>,
    outages: &'a BTreeMap<Origin, Duration>,
    /// True if no later start of leash can report more.
    is_final: bool,
}

impl Facts {
    /// Checks the state before the next start of leash, which repairs much, and the state after it.
    pub(super) fn about_upstreams(&self) -> Vec<String> {
        let (openers, outages) = (&self.openers, &self.outages);
        let after = Account { sessions: &self.sessions, receipts: &self.receipts, openers, outages, is_final: true };
        let (sessions, receipts) = (&self.early.sessions[..], &self.early.receipts[..]);
        let before = Account { sessions, receipts, is_final: false, ..after };
        let early = before.complaints();
        let late = after.complaints().into_iter().filter(|complaint| !early.contains(complaint)).collect::<Vec<_>>();
        early.iter().map(|complaint| format!("before the next start of leash: {complaint}")).chain(late).collect()
    }

    /// The reason that a receipt gives for a session that is left.
    pub fn left(&self, id: &str) -> Option<&str> {
        let left = fates(&self.receipts, id).find(|told| told.end["fate"] == "left");
        left.map(|told| told.end["how"].as_str().unwrap_or_default())
    }
}

impl Account<'_> {
    fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut untold: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for session in self.sessions {
            let told: Vec<Told<'_>> = fates(self.receipts, &session.id).collect();
            match told[..] {
                [] if self.may_be_untold(session) => {}
                [] => untold
                    .entry(self.first(&session.opener))
                    .or_default()
                    .push(format!("{session}, and no receipt says so")),
                [end] => complaints.extend(self.about(session, end)),
                [before, now] if self.is_news(session, before, now) => complaints.extend(self.about(session, now)),
                _ => complaints.push(format!("{session}, and is told of {} times: {told:?}", told.len())),
            }
        }
        // The check cannot know which session has no receipt because of a doubt, but it knows how many there can be.
        let too_many = |first: &str, found: &[String]| found.len() > self.heirs(first).map(|one| one.doubts).sum();
        complaints
            .extend(untold.into_iter().filter(|(opener, found)| too_many(opener, found)).flat_map(|(_, all)| all));
        complaints
    }

    fn wounds(&self, opener: &str) -> Wounds {
        self.openers.get(opener).copied().unwrap_or_default()
    }

    /// The faults of a leash and of the gateways that may have taken over its sessions, each in the place of a killed
    /// one.
    fn heirs(&self, opener: &str) -> impl Iterator<Item = Wounds> {
        let next = |one: &String| beside(one, 1).filter(|next| self.wounds(next).takes_over);
        std::iter::successors(Some(opener.to_owned()), next).map(|one| self.wounds(&one))
    }

    /// The first of those gateways: it is unknown which of them opened a session at the moment when one was killed.
    fn first(&self, opener: &str) -> String {
        let before = |one: &String| beside(one, -1).filter(|_| self.wounds(one).takes_over);
        std::iter::successors(Some(opener.to_owned()), before).last().unwrap_or_default()
    }

    /// True if there is a reason, other than a doubt, for a session without a receipt.
    fn may_be_untold(&self, session: &Session) -> bool {
        let wounds = self.wounds(&session.opener);
        let is_replaced = || {
            let mut others = self.sessions.iter().filter(|one| one.opener == session.opener && one.id != session.id);
            others.any(|one| fates(self.receipts, &one.id).next().is_some())
        };
        let is_known = match session.state {
            State::Open => true,
            // The leash that ended it knew its id. Only a leash that was killed during `initialize` can have ended it
            // without a receipt, before it recorded anything.
            State::Ended => !(wounds.may_forget() && wounds.doubts > 0),
            // Leash opened another session in its place; the keeper reported that one and never knew the first.
            State::Lost => !(wounds.may_forget() && is_replaced()),
        };
        !is_known || !self.is_final && self.heirs(&session.opener).any(Wounds::may_wait_for_a_sweep)
    }

    /// Returns a complaint if a receipt about a session is not true.
    fn about(&self, session: &Session, told: Told<'_>) -> Option<String> {
        let is_left = told.end["fate"] == "left";
        let is_true = match session.state {
            State::Open => is_left && self.is_reason(session, told),
            // The leash may have missed the answer to its DELETE.
            State::Ended | State::Lost => !is_left || self.is_reason(session, told),
        };
        (!is_true).then(|| format!("{session}, and not so says its receipt: {}", told.end))
    }

    /// True if the reason that the receipt gives for a left session is real.
    fn is_reason(&self, session: &Session, told: Told<'_>) -> bool {
        match told.end["how"].as_str() {
            Some("unsupported") => session.origin == Origin::Keeper,
            Some("unreachable") => self.was_mute(session, told) || self.was_out_of_reach(session),
            _ => false,
        }
    }

    /// True if the process that had to end it may have had no descriptor for a connection: its own leash or, if that
    /// was gone, any leash that started later.
    fn was_mute(&self, session: &Session, told: Told<'_>) -> bool {
        let sweepers = || self.openers.values().any(|wounds| wounds.mute || wounds.short);
        self.heirs(&session.opener).any(|one| one.mute) || told.receipt["ended_by"] == "sweep" && sweepers()
    }

    /// True if its server was unreachable for as long as leash retries. A gateway that has to end does not retry for so
    /// long.
    fn was_out_of_reach(&self, session: &Session) -> bool {
        let outage = self.outages.get(&session.origin);
        outage.is_some_and(|outage| *outage >= GIVES_UP || self.was_stopped(session))
    }

    fn was_stopped(&self, session: &Session) -> bool {
        self.heirs(&session.opener).any(|wounds| wounds.is_gateway && wounds.stops > 0)
    }

    /// True if the second receipt says more: a gateway had to end while a session was unreachable, and the next start
    /// ended it.
    fn is_news(&self, session: &Session, before: Told<'_>, now: Told<'_>) -> bool {
        let is_left = before.end["fate"] == "left" && before.end["how"] == "unreachable";
        // A gateway that had to stop, or the keeper of a killed one, which leaves the session to the next start.
        let leaves = self.was_stopped(session) || before.receipt["ended_by"] == "keeper";
        is_left && now.end["fate"] == "gone" && leaves && self.outages.contains_key(&session.origin)
    }
}

/// The gateway that started this many starts later. `None` for other leashes.
fn beside(opener: &str, later: i64) -> Option<String> {
    let number: i64 = opener.strip_prefix("serve-")?.parse().ok()?;
    Some(format!("serve-{}", number + later))
}

impl std::fmt::Display for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.state {
            State::Open => "is open",
            State::Ended => "was ended",
            State::Lost => "is gone with its server",
        };
        write!(f, "{} session {} of {} {state}", self.origin, self.id, self.opener)
    }
}

/// The fate of an upstream session in a receipt.
#[derive(Clone, Copy, Debug)]
struct Told<'a> {
    receipt: &'a Value,
    end: &'a Value,
}

/// The fates of an upstream session in the receipts, which contain the beginning of its id.
fn fates<'a, 'i>(receipts: &'a [Value], id: &'i str) -> impl Iterator<Item = Told<'a>> + use<'a, 'i> {
    let is_it = move |told: &Told<'_>| {
        let start = told.end["id"].as_str().unwrap_or_default().trim_end_matches('…');
        !start.is_empty() && id.starts_with(start)
    };
    holdings(receipts, "upstream").map(|(receipt, end)| Told { receipt, end }).filter(is_it)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chaos::plan::Hold;
    use crate::chaos::promise::Early;

    fn receipt(id: &str, fate: &str, how: &str) -> Value {
        json!({"session": "u", "run": id, "holdings": [{"kind": "upstream", "id": id, "fate": fate, "how": how}]})
    }

    fn session(origin: Origin, state: State) -> Session {
        Session { origin, id: "abcdef".to_owned(), opener: "connect-1".to_owned(), state }
    }

    fn facts(session: Session, wounds: Wounds, receipts: Vec<Value>) -> Facts {
        let early = Early { sessions: vec![session.clone()], receipts: receipts.clone(), ledger: Vec::new() };
        let openers = BTreeMap::from([("connect-1".to_owned(), wounds)]);
        Facts { early, sessions: vec![session], openers, receipts, ..Facts::none(Hold::Leaf) }
    }

    #[track_caller]
    fn check(facts: &Facts, complaints: &[&str]) {
        let found = facts.about_upstreams();
        assert_eq!(found.len(), complaints.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(complaints) {
            assert!(found.contains(expected), "{found}: {expected}");
        }
    }

    const WHOLE: Wounds = Wounds {
        is_gateway: false,
        takes_over: false,
        leash: false,
        keeper: false,
        stops: 0,
        short: false,
        mute: false,
        doubts: 0,
    };
    const UNTOLD: &str = "no receipt says so";
    const UNTRUE: &str = "not so says its receipt";

    #[test]
    fn open_session_needs_a_left_receipt_with_a_real_reason() {
        let mute = Wounds { mute: true, ..WHOLE };
        for (origin, how, wounds, is_fine) in [
            (Origin::Keeper, "unsupported", WHOLE, true),
            (Origin::Honest, "unsupported", WHOLE, false),
            (Origin::Honest, "unreachable", WHOLE, false),
            (Origin::Honest, "unreachable", mute, true),
            (Origin::Honest, "denied", mute, false),
            (Origin::Honest, "unreachable", Wounds { short: true, ..WHOLE }, false),
        ] {
            let facts = facts(session(origin, State::Open), wounds, vec![receipt("abc…", "left", how)]);
            check(&facts, if is_fine { &[] } else { &[UNTRUE] });
        }
        // Another leash ended it, and may have been short of descriptors.
        let mut swept = receipt("abc…", "left", "unreachable");
        swept["ended_by"] = json!("sweep");
        let mut facts_of_swept = facts(session(Origin::Honest, State::Open), WHOLE, vec![swept]);
        check(&facts_of_swept, &[UNTRUE]);
        facts_of_swept.openers.insert("connect-2".to_owned(), Wounds { short: true, ..WHOLE });
        check(&facts_of_swept, &[]);
        let lie = facts(session(Origin::Honest, State::Open), WHOLE, vec![receipt("abc", "gone", "deleted")]);
        check(&lie, &[UNTRUE]);
    }

    #[test]
    fn ended_session_needs_a_receipt_that_says_so() {
        for (told, complaints) in [
            (receipt("abc…", "gone", "deleted"), &[][..]),
            (receipt("abc…", "left", "unreachable"), &[UNTRUE]),
            (receipt("xyz…", "gone", "deleted"), &[UNTOLD]),
            (receipt("", "gone", "closed"), &[UNTOLD]),
        ] {
            check(&facts(session(Origin::Honest, State::Ended), WHOLE, vec![told]), complaints);
        }
    }

    /// The early complaint; the late one says the same.
    #[test]
    fn leash_hit_during_initialize_may_have_one_session_without_a_receipt() {
        let doubted = Wounds { doubts: 1, ..WHOLE };
        let killed = Wounds { leash: true, ..doubted };
        for (state, wounds, is_fine) in [
            (State::Open, WHOLE, false),
            (State::Open, doubted, true),
            (State::Lost, WHOLE, false),
            (State::Lost, doubted, true),
            (State::Ended, killed, true),
            (State::Ended, Wounds { leash: true, ..WHOLE }, false),
            (State::Ended, Wounds { is_gateway: true, leash: true, ..WHOLE }, false),
        ] {
            let facts = facts(session(Origin::Honest, state), wounds, Vec::new());
            let found = facts.about_upstreams();
            assert_eq!(found.is_empty(), is_fine, "{state:?} {wounds:?}: {found:?}");
        }
    }

    /// A doubt about one leash does not excuse another one.
    #[test]
    fn doubt_excuses_only_one_leash() {
        let mut facts = facts(session(Origin::Honest, State::Open), WHOLE, Vec::new());
        facts.openers.insert("connect-2".to_owned(), Wounds { doubts: 3, mute: true, ..WHOLE });
        check(&facts, &[UNTOLD]);
        facts.openers.insert("connect-1".to_owned(), Wounds { doubts: 1, ..WHOLE });
        check(&facts, &[]);
        facts.sessions.push(Session { id: "xyz".to_owned(), ..session(Origin::Honest, State::Open) });
        check(&facts, &[UNTOLD, UNTOLD]);
    }

    /// A keeper must not leave it to the next start, nor may a gateway that lived.
    #[test]
    fn only_hurt_leash_may_leave_sessions_to_the_next_start() {
        let serve = Wounds { is_gateway: true, ..WHOLE };
        for (wounds, is_fine) in [
            (WHOLE, false),
            (Wounds { leash: true, ..WHOLE }, false),
            (Wounds { keeper: true, ..WHOLE }, false),
            (Wounds { stops: 2, ..WHOLE }, false),
            (Wounds { leash: true, keeper: true, ..WHOLE }, true),
            (Wounds { stops: 2, keeper: true, ..WHOLE }, true),
            (Wounds { short: true, ..WHOLE }, true),
            (serve, false),
            (Wounds { stops: 1, ..serve }, false),
            (Wounds { stops: 2, ..serve }, !GATEWAYS_HAVE_KEEPERS),
            (Wounds { leash: true, ..serve }, !GATEWAYS_HAVE_KEEPERS),
            (Wounds { keeper: true, ..serve }, false),
            (Wounds { leash: true, keeper: true, ..serve }, true),
        ] {
            let told = vec![receipt("abc", "gone", "deleted")];
            let mut facts = facts(session(Origin::Honest, State::Ended), wounds, told);
            facts.early.receipts.clear();
            facts.early.sessions[0].state = State::Open;
            check(&facts, if is_fine { &[] } else { &["before the next start of leash: honest session"] });
        }
    }

    /// A gateway that took over the sessions excuses a killed gateway. No other gateway does.
    #[test]
    fn gateway_that_takes_over_is_responsible_for_the_sessions() {
        let serve = Wounds { is_gateway: true, ..WHOLE };
        let killed = Wounds { leash: true, ..serve };
        let alone = Wounds { leash: true, keeper: true, ..serve };
        for (next, is_fine) in [
            (serve, false),
            (Wounds { takes_over: true, ..serve }, false),
            (Wounds { takes_over: true, ..alone }, true),
            (alone, false),
        ] {
            let one = Session { opener: "serve-1".to_owned(), ..session(Origin::Honest, State::Ended) };
            let mut facts = facts(one, WHOLE, vec![receipt("abc", "gone", "deleted")]);
            facts.openers = BTreeMap::from([("serve-1".to_owned(), killed), ("serve-2".to_owned(), next)]);
            facts.early.receipts.clear();
            facts.early.sessions[0].state = State::Open;
            check(&facts, if is_fine { &[] } else { &["before the next start of leash: honest session"] });
        }
    }

    #[test]
    fn lost_session_needs_a_receipt() {
        let killed = Wounds { leash: true, ..WHOLE };
        for (wounds, is_replaced, complaints) in
            [(killed, false, &[UNTOLD][..]), (killed, true, &[]), (WHOLE, true, &[UNTOLD])]
        {
            let mut facts =
                facts(session(Origin::Honest, State::Lost), wounds, vec![receipt("xyz", "gone", "deleted")]);
            if is_replaced {
                let next = Session { id: "xyz".to_owned(), ..session(Origin::Honest, State::Ended) };
                facts.early.sessions.push(next.clone());
                facts.sessions.push(next);
            }
            check(&facts, complaints);
        }
        let told = vec![receipt("abc", "gone", "forgotten")];
        check(&facts(session(Origin::Honest, State::Lost), WHOLE, told), &[]);
    }

    #[test]
    fn unreachable_needs_a_long_outage() {
        let stopped = Wounds { is_gateway: true, stops: 1, ..WHOLE };
        for (seconds, wounds, is_fine) in
            [(None, WHOLE, false), (Some(2), WHOLE, false), (Some(16), WHOLE, true), (Some(2), stopped, true)]
        {
            for state in [State::Open, State::Ended] {
                let told = vec![receipt("abc", "left", "unreachable")];
                let mut facts = facts(session(Origin::Honest, state), wounds, told);
                facts.outages.extend(seconds.map(|seconds| (Origin::Honest, Duration::from_secs(seconds))));
                facts.outages.insert(Origin::Keeper, Duration::from_secs(60));
                check(&facts, if is_fine { &[] } else { &[UNTRUE] });
            }
        }
    }

    #[test]
    fn unreachable_session_of_a_gateway_gets_a_second_receipt() {
        let both = vec![receipt("abc", "left", "unreachable"), receipt("abc", "gone", "deleted")];
        let stopped = Wounds { is_gateway: true, stops: 1, ..WHOLE };
        let mut facts = facts(session(Origin::Honest, State::Ended), stopped, both);
        check(&facts, &["told of 2 times"]);
        facts.outages.insert(Origin::Honest, Duration::from_secs(2));
        check(&facts, &[]);
        facts.openers.clear();
        check(&facts, &["told of 2 times"]);
    }

    #[test]
    fn a_session_has_one_fate() {
        let both = vec![receipt("abc", "gone", "deleted"), receipt("abc", "left", "unsupported")];
        check(&facts(session(Origin::Keeper, State::Open), WHOLE, both), &["told of 2 times"]);
    }
}
