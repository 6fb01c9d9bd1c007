//! Every cell of the machine as a table, and properties of the visible behaviour.

use proptest::prelude::*;

use leash_model::owner::Role;

use super::*;

const TERMS: JobTimes = JobTimes {
    ttl: Some(Duration::from_secs(30)),
    idle: Some(Duration::from_secs(100)),
    max_age: Some(Duration::from_secs(1_000)),
};
const FREE: JobTimes = JobTimes { ttl: None, idle: None, max_age: None };

fn at(seconds: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(seconds))
}

fn only(ttl: u64, idle: u64, max_age: u64) -> JobTimes {
    let time = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    JobTimes { ttl: time(ttl), idle: time(idle), max_age: time(max_age) }
}

fn end(force: bool) -> Event {
    Event::End { reason: Reason::CONTROL_API, force }
}

fn owner_lost() -> Event {
    Event::OwnerLost(Reason::OwnerGone { pid: 7, role: Role::Owner })
}

fn ended(reason: Reason, force: bool) -> Effect {
    Effect::End { reason, force }
}

/// A job that was brought to a state at second 0.
fn job(state: &str, times: JobTimes) -> JobLife {
    let mut life = JobLife::begin(at(0), times);
    let way: &[Event] = match state {
        "starting" => &[],
        "live" => &[Event::Started],
        "ending" => &[Event::Started, end(false)],
        "forced" => &[Event::Started, end(true)],
        _ => &[Event::Started, end(false), Event::Released],
    };
    for event in way {
        life.apply(event.clone(), at(0));
    }
    life
}

/// Checks the result of an event at second 1, in each state.
fn check(event: &Event, cells: [(&str, Effect, State); 5]) {
    for (state, effect, then) in cells {
        let mut life = job(state, TERMS);
        assert_eq!(life.apply(event.clone(), at(1)), effect, "{event:?} when {state}");
        assert_eq!(*life.state(), then, "{event:?} when {state}");
    }
}

fn ending(force: bool) -> State {
    State::Ending { reason: Reason::CONTROL_API, force }
}

fn over() -> State {
    State::Ended(Reason::CONTROL_API)
}

/// Checks an event that has an effect only on a living job, in its two states.
fn unless_alive(event: &Event, starting: (Effect, State), live: (Effect, State)) {
    check(
        event,
        [
            ("starting", starting.0, starting.1),
            ("live", live.0, live.1),
            ("ending", Effect::Nothing, ending(false)),
            ("forced", Effect::Nothing, ending(true)),
            ("ended", Effect::Nothing, over()),
        ],
    );
}

#[test]
fn every_state_meets_every_event() {
    use State::{Live, Starting};
    unless_alive(&Event::Started, (Effect::Nothing, Live), (Effect::Nothing, Live));
    for quiet in [Event::Renewed(None), Event::UseBegan, Event::UseEnded, Event::Tick] {
        unless_alive(&quiet, (Effect::Nothing, Starting), (Effect::Nothing, Live));
    }
    let lost = Reason::OwnerGone { pid: 7, role: Role::Owner };
    let losing = State::Ending { reason: lost.clone(), force: false };
    unless_alive(&owner_lost(), (ended(lost.clone(), false), losing.clone()), (ended(lost, false), losing));
    let asked = || (ended(Reason::CONTROL_API, false), ending(false));
    unless_alive(&end(false), asked(), asked());
    check(
        &end(true),
        [
            ("starting", ended(Reason::CONTROL_API, true), ending(true)),
            ("live", ended(Reason::CONTROL_API, true), ending(true)),
            ("ending", Effect::Hurry, ending(true)),
            ("forced", Effect::Nothing, ending(true)),
            ("ended", Effect::Nothing, over()),
        ],
    );
    check(
        &Event::Released,
        [
            ("starting", Effect::Nothing, Starting),
            ("live", Effect::Nothing, Live),
            ("ending", Effect::Nothing, over()),
            ("forced", Effect::Nothing, over()),
            ("ended", Effect::Nothing, over()),
        ],
    );
}

/// Applies events at given seconds. Checks the time and reason of the job's end, and that it does not end before.
fn lives_until(times: JobTimes, events: &[(u64, Event)], expected: Option<(u64, Reason)>) {
    let mut life = JobLife::begin(at(0), times);
    for (second, event) in events {
        assert_eq!(life.apply(event.clone(), at(*second)), Effect::Nothing, "{event:?} at {second}");
    }
    let expected = expected.map(|(second, reason)| (at(second), reason));
    assert_eq!(life.deadline(), expected, "after {events:?}");
    match expected {
        Some((when, reason)) => {
            let before = Moment::from_boot(when.since(at(0)) - Duration::from_millis(1));
            assert_eq!(life.apply(Event::Tick, before), Effect::Nothing, "a moment too early");
            assert_eq!(life.apply(Event::Tick, when), ended(reason, false));
        }
        None => assert_eq!(life.apply(Event::Tick, at(100_000_000)), Effect::Nothing),
    }
}

#[test]
fn job_without_terms_lives_until_it_is_ended() {
    lives_until(FREE, &[], None);
    lives_until(FREE, &[(1, Event::Started)], None);
}

#[test]
fn a_lease_begins_with_the_start_and_is_renewed() {
    use Event::*;
    let lease = only(30, 0, 0);
    lives_until(lease.clone(), &[], None);
    lives_until(lease.clone(), &[(50, Started)], Some((80, Reason::LeaseExpired)));
    lives_until(lease.clone(), &[(0, Started), (20, Renewed(None))], Some((50, Reason::LeaseExpired)));
    let longer = Some(Duration::from_secs(90));
    lives_until(lease.clone(), &[(0, Started), (20, Renewed(longer))], Some((110, Reason::LeaseExpired)));
    lives_until(
        lease.clone(),
        &[(0, Started), (20, Renewed(longer)), (30, Renewed(None))],
        Some((120, Reason::LeaseExpired)),
    );
    // A job without a lease gets one.
    lives_until(FREE, &[(0, Started), (20, Renewed(longer))], Some((110, Reason::LeaseExpired)));
    // A lease that is not renewed ends the job in the middle of a request: the client that should renew it is gone.
    lives_until(lease, &[(0, Started), (10, UseBegan)], Some((30, Reason::LeaseExpired)));
}

#[test]
fn late_renewal_does_not_count() {
    let mut life = job("live", only(30, 0, 0));
    assert_eq!(life.apply(Event::Renewed(None), at(30)), ended(Reason::LeaseExpired, false));
    assert_eq!(life.apply(Event::Renewed(None), at(31)), Effect::Nothing);
    assert_eq!(life.lease_until(), None);
}

#[test]
fn job_in_use_is_never_idle() {
    use Event::*;
    let idle = only(0, 100, 0);
    lives_until(idle.clone(), &[], None);
    lives_until(idle.clone(), &[(7, Started)], Some((107, Reason::Idle)));
    lives_until(idle.clone(), &[(0, Started), (50, UseBegan)], None);
    lives_until(idle.clone(), &[(0, Started), (50, UseBegan), (900, UseEnded)], Some((1_000, Reason::Idle)));
    // Two at once: the end of the last one counts.
    lives_until(idle, &[(0, Started), (5, UseBegan), (6, UseBegan), (900, UseEnded)], None);
    // A use at the very moment of the deadline prevents the end.
    let mut life = job("live", only(0, 100, 0));
    assert_eq!(life.apply(UseBegan, at(100)), Effect::Nothing);
    assert_eq!(life.idle_for(at(500)), Duration::ZERO);
    assert_eq!(life.apply(UseEnded, at(600)), Effect::Nothing);
    assert_eq!(life.idle_for(at(610)), Duration::from_secs(10));
}

#[test]
fn the_age_counts_from_the_beginning_whatever_is_in_flight() {
    use Event::*;
    let age = only(0, 0, 1_000);
    lives_until(age.clone(), &[], Some((1_000, Reason::MaxAge)));
    lives_until(age, &[(400, Started), (500, UseBegan)], Some((1_000, Reason::MaxAge)));
    // The earliest deadline counts.
    lives_until(TERMS, &[(0, Started)], Some((30, Reason::LeaseExpired)));
}

#[test]
fn a_start_that_takes_longer_than_the_age_ends_with_it() {
    let mut life = JobLife::begin(at(0), only(0, 0, 10));
    assert_eq!(life.apply(Event::Started, at(10)), ended(Reason::MaxAge, false));
}

#[test]
fn end_during_the_start_is_final() {
    for force in [false, true] {
        let mut life = job("starting", TERMS);
        assert_eq!(life.apply(end(force), at(1)), ended(Reason::CONTROL_API, force));
        // The servers were started nevertheless. The driver ends them like everything else that it holds.
        assert_eq!(life.apply(Event::Started, at(2)), Effect::Nothing);
        assert_eq!(*life.state(), ending(force));
        assert_eq!(life.deadline(), None);
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Started),
        Just(Event::Renewed(None)),
        (1..300u64).prop_map(|seconds| Event::Renewed(Some(Duration::from_secs(seconds)))),
        Just(Event::UseBegan),
        Just(Event::UseEnded),
        Just(owner_lost()),
        Just(Event::Tick),
        any::<bool>().prop_map(end),
        Just(Event::Released),
    ]
}

fn times() -> impl Strategy<Value = JobTimes> {
    (0..200u64, 0..200u64, 0..2_000u64).prop_map(|(ttl, idle, max_age)| only(ttl, idle, max_age))
}

proptest! {
    /// It ends exactly once, gets at most one `Hurry` and only while it ends, and never lives again.
    #[test]
    fn job_ends_exactly_once(times in times(), history in prop::collection::vec((event(), 0..60u64), 0..60)) {
        let mut life = JobLife::begin(at(0), times);
        let (mut now, mut ends, mut hurries, mut first) = (0, 0, 0, None);
        for (event, pause) in history {
            now += pause;
            let was_alive = life.is_alive();
            let had_ended = matches!(life.state(), State::Ended(_));
            match life.apply(event, at(now)) {
                Effect::Nothing => {}
                Effect::End { reason, .. } => {
                    prop_assert!(was_alive);
                    ends += 1;
                    first = Some(reason);
                }
                Effect::Hurry => {
                    prop_assert!(!was_alive && !had_ended);
                    hurries += 1;
                }
            }
            prop_assert!(was_alive || !life.is_alive(), "it lives again: {:?}", life);
            prop_assert!(!had_ended || matches!(life.state(), State::Ended(_)), "{:?}", life);
            prop_assert_eq!(ends, i32::from(!life.is_alive()));
            prop_assert!(hurries <= 1);
            if let State::Ending { reason, .. } | State::Ended(reason) = life.state() {
                prop_assert_eq!(Some(reason), first.as_ref());
            }
        }
    }

    /// It ends only with a reason: a request, a lost owner, or a time limit that has passed by an independent
    /// calculation.
    #[test]
    fn job_ends_only_with_a_reason(times in times(), history in prop::collection::vec((event(), 0..60u64), 0..60)) {
        let mut life = JobLife::begin(at(0), times.clone());
        let (mut now, mut uses, mut quiet, mut lease, mut ttl) = (0, 0u32, None, None, times.ttl);
        for (event, pause) in history {
            now += pause;
            let asked = matches!(event, Event::End { .. } | Event::OwnerLost(_));
            let live = *life.state() == State::Live;
            let late = lease.is_some_and(|until| at(now) >= until);
            match &event {
                Event::UseBegan => uses += 1,
                Event::UseEnded => uses = uses.saturating_sub(1),
                Event::Renewed(new) if !late => ttl = new.or(ttl),
                _ => {}
            }
            let starts = event == Event::Started && *life.state() == State::Starting;
            if starts || (live && matches!(event, Event::Renewed(_)) && !late) {
                lease = ttl.map(|ttl| at(now) + ttl);
            }
            if starts || matches!(event, Event::UseBegan | Event::UseEnded) {
                quiet = Some(at(now));
            }
            let effect = life.apply(event, at(now));
            let Effect::End { reason, .. } = effect else { continue };
            let over = |since: Option<Moment>, time: Option<Duration>| {
                since.zip(time).is_some_and(|(since, time)| at(now) >= since + time)
            };
            match reason {
                Reason::LeaseExpired => prop_assert!(late || lease.is_some_and(|until| at(now) >= until)),
                Reason::Idle => prop_assert!(uses == 0 && over(quiet, times.idle)),
                Reason::MaxAge => prop_assert!(over(Some(at(0)), times.max_age)),
                _ => prop_assert!(asked),
            }
        }
    }

    /// With a maximum age, time alone ends a job.
    #[test]
    fn time_ends_a_job_with_a_maximum_age(times in times(), history in prop::collection::vec((event(), 0..60u64), 0..60)) {
        prop_assume!(times.max_age.is_some());
        let mut life = JobLife::begin(at(0), times);
        let mut now = 0;
        for (event, pause) in history {
            now += pause;
            life.apply(event, at(now));
        }
        life.apply(Event::Tick, at(now + 1_000_000));
        prop_assert!(!life.is_alive());
    }
}
