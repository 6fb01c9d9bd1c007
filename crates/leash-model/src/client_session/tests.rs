//! Tables with the effect of each event, and properties of the visible behaviour.

use proptest::prelude::*;

use super::*;

const TERMS: SessionTimes = SessionTimes {
    idle: Some(Duration::from_secs(100)),
    abandoned: Some(Duration::from_secs(20_000)),
    max_age: Some(Duration::from_secs(10_000)),
    linger: Duration::from_secs(5),
    init_timeout: Duration::from_secs(60),
};

fn at(seconds: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(seconds))
}

fn client_gone(pid: i32) -> Reason {
    Reason::OwnerGone { pid, role: Role::Client }
}

/// Applies events at given seconds, and checks the time and reason of the session's end.
fn check(events: &[(u64, Event)], expected: Option<(u64, Reason)>) {
    let mut life = SessionLife::begin(at(0));
    for (second, event) in events {
        assert_eq!(life.apply(event.clone(), at(*second), &TERMS), Effect::Nothing, "{event:?} at {second}");
    }
    let expected = expected.map(|(second, reason)| (at(second), reason));
    assert_eq!(life.deadline(&TERMS), expected, "after {events:?}");
    if let Some((when, reason)) = expected {
        let before = Moment::from_boot(when.since(at(0)) - Duration::from_millis(1));
        assert_eq!(life.apply(Event::Tick, before, &TERMS), Effect::Nothing, "a moment too early");
        assert_eq!(life.apply(Event::Tick, when, &TERMS), Effect::End(reason));
    }
}

#[test]
fn unused_session_ends_after_its_idle_time() {
    use Event::*;
    check(&[], Some((60, Reason::NotInitialized)));
    check(&[(1, Opened)], Some((101, Reason::Idle)));
    // A request in flight is never cut off, however long it takes. The idle time runs from its end.
    check(&[(1, Opened), (2, RequestBegan)], Some((10_000, Reason::MaxAge)));
    check(&[(1, Opened), (2, RequestBegan), (502, RequestEnded)], Some((602, Reason::Idle)));
    // Two at once: the end of the last one counts.
    check(&[(1, Opened), (2, RequestBegan), (3, RequestBegan), (9, RequestEnded)], Some((10_000, Reason::MaxAge)));
    // A listener counts as use while it is connected.
    check(&[(1, Opened), (2, ListenBegan)], Some((10_000, Reason::MaxAge)));
    check(&[(1, Opened), (2, ListenBegan), (300, ListenEnded)], Some((400, Reason::Idle)));
}

/// The seconds since the last request after each event; an open stream for the server's messages changes nothing.
#[test]
fn session_is_idle_while_no_request_is_in_flight() {
    use Event::*;
    let mut life = SessionLife::begin(at(0));
    for (second, event, idle) in [
        (1, RequestBegan, None),
        (2, Opened, None),
        (3, RequestEnded, Some(0)),
        (4, ListenBegan, Some(1)),
        (9, Tick, Some(6)),
        (10, RequestBegan, None),
        (11, RequestBegan, None),
        (12, RequestEnded, None),
        (13, RequestEnded, Some(0)),
        (20, ListenEnded, Some(7)),
        (21, End(Reason::MemoryPressure), None),
    ] {
        life.apply(event.clone(), at(second), &TERMS);
        assert_eq!(life.idle(at(second)), idle.map(Duration::from_secs), "{event:?} at {second}");
    }
    assert_eq!(SessionLife::begin(at(0)).idle(at(9)), None, "no client can use it yet");
}

#[test]
fn resumed_session_keeps_its_age_and_starts_its_idle_time() {
    use Event::*;
    let check = |born: u64, events: &[Event], expected: (u64, Reason)| {
        let mut life = SessionLife::resume(at(born), at(9000));
        for event in events {
            assert_eq!(life.apply(event.clone(), at(9000), &TERMS), Effect::Nothing, "{event:?}");
        }
        assert_eq!(life.deadline(&TERMS), Some((at(expected.0), expected.1)), "born at {born}, {events:?}");
    };
    check(0, &[Held], (9100, Reason::Idle));
    check(0, &[Held, OwnerFound], (10_000, Reason::MaxAge));
    check(0, &[Held, OwnerFound, OwnerGone(7)], (9005, client_gone(7)));
    check(0, &[Held, OwnerUnknown, OwnerFound, OwnerGone(7)], (9100, Reason::Idle));
    let mut old = SessionLife::resume(at(0), at(10_000));
    assert_eq!(old.apply(Held, at(10_000), &TERMS), Effect::End(Reason::MaxAge));
}

#[test]
fn session_lives_until_its_last_client_process_ends() {
    use Event::*;
    check(&[(0, OwnerFound), (1, Opened)], Some((10_000, Reason::MaxAge)));
    check(&[(0, OwnerFound), (1, Opened), (50, OwnerGone(7))], Some((55, client_gone(7))));
    // Also with a request in flight: no process reads its response.
    check(&[(0, OwnerFound), (1, Opened), (2, RequestBegan), (50, OwnerGone(7))], Some((55, client_gone(7))));
    // Two processes use it.
    check(&[(0, OwnerFound), (1, Opened), (2, OwnerFound), (9, OwnerGone(7))], Some((10_000, Reason::MaxAge)));
    check(
        &[(0, OwnerFound), (1, Opened), (2, OwnerFound), (9, OwnerGone(7)), (10, OwnerGone(8))],
        Some((15, client_gone(8))),
    );
    // Another process takes the session over within the linger time.
    check(&[(0, OwnerFound), (1, Opened), (9, OwnerGone(7)), (12, OwnerFound)], Some((10_000, Reason::MaxAge)));
    // A client with an unknown process used it as well: it may come back until the idle time is over.
    check(&[(0, OwnerFound), (1, Opened), (2, OwnerUnknown), (9, OwnerGone(7))], Some((101, Reason::Idle)));
}

#[test]
fn session_that_a_living_client_has_forgotten_ends() {
    use Event::*;
    let owned = |then: &[(u64, Event)]| [&[(0, OwnerFound), (0, ConnectionBegan), (1, Opened)], then].concat();
    let check_owned = |then: &[(u64, Event)], end: (u64, Reason)| check(&owned(then), Some(end));
    let old = (10_000, Reason::MaxAge);
    // Its client has begun a newer one, but has a connection of this one, or none since a short time.
    check_owned(&[(9, OwnersMovedOn(true))], old.clone());
    check_owned(&[(9, OwnersMovedOn(true)), (50, ConnectionEnded)], (150, Reason::Abandoned));
    check_owned(&[(9, ConnectionEnded), (50, OwnersMovedOn(true))], (109, Reason::Abandoned));
    check_owned(&[(9, OwnersMovedOn(true)), (10, ConnectionBegan), (50, ConnectionEnded)], old.clone());
    // It is in use: a request, a listener, a new connection.
    let forgotten = [(9, OwnersMovedOn(true)), (10, ConnectionEnded)];
    let check_used = |then: &[(u64, Event)], end: (u64, Reason)| check_owned(&[&forgotten, then].concat(), end);
    check_used(&[(20, RequestBegan)], old.clone());
    check_used(&[(20, RequestBegan), (30, RequestEnded)], (130, Reason::Abandoned));
    check_used(&[(20, ListenBegan)], old.clone());
    check_used(&[(20, ConnectionBegan)], old.clone());
    // Another process of the client uses it, which has begun no newer one.
    check_used(&[(20, OwnerFound)], old.clone());
    check_used(&[(20, OwnerFound), (30, OwnerGone(7)), (30, OwnersMovedOn(true))], (110, Reason::Abandoned));
    // A client that has begun no newer one may come back for longer.
    check_owned(&[(9, ConnectionEnded)], old);
    let times = |idle, abandoned| SessionTimes { idle, abandoned, max_age: None, ..TERMS };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let table = [
        (seconds(100), seconds(500), false, Some(510)),
        (seconds(100), seconds(500), true, Some(110)),
        (seconds(100), seconds(50), true, Some(60)),
        (None, seconds(500), true, Some(510)),
        (seconds(100), None, false, None),
        (None, None, true, None),
    ];
    for (idle, abandoned, moved_on, end) in table {
        let mut life = SessionLife::begin(at(0));
        for (second, event) in owned(&[(9, OwnersMovedOn(moved_on)), (10, ConnectionEnded)]) {
            life.apply(event, at(second), &TERMS);
        }
        let deadline = life.deadline(&times(idle, abandoned));
        assert_eq!(deadline, end.map(|end| (at(end), Reason::Abandoned)), "{idle:?}, {abandoned:?}, {moved_on}");
    }
}

#[test]
fn client_death_during_opening_ends_the_session_after_the_answer() {
    let mut life = SessionLife::begin(at(0));
    life.apply(Event::OwnerFound, at(0), &TERMS);
    life.apply(Event::OwnerGone(7), at(1), &TERMS);
    // Still opening: the answer must be read, or the upstream session that it opens would be lost.
    assert_eq!(life.apply(Event::Tick, at(30), &TERMS), Effect::Nothing);
    assert_eq!(life.apply(Event::Opened, at(31), &TERMS), Effect::Nothing);
    assert_eq!(life.apply(Event::Tick, at(31), &TERMS), Effect::End(client_gone(7)));
}

#[test]
fn session_ends_once_for_the_first_reason() {
    let mut life = SessionLife::begin(at(0));
    life.apply(Event::Opened, at(1), &TERMS);
    assert_eq!(life.apply(Event::End(Reason::ClientDeleted), at(2), &TERMS), Effect::End(Reason::ClientDeleted));
    assert_eq!(life.apply(Event::End(Reason::Shutdown), at(3), &TERMS), Effect::Nothing);
    assert_eq!(life.apply(Event::Tick, at(99_999), &TERMS), Effect::Nothing);
    assert_eq!(life.apply(Event::Released, at(4), &TERMS), Effect::Nothing);
    assert_eq!(*life.state(), State::Ended(Reason::ClientDeleted));
}

#[test]
fn holding_that_comes_after_the_end_is_released() {
    let mut life = SessionLife::begin(at(0));
    assert_eq!(life.apply(Event::End(Reason::Shutdown), at(1), &TERMS), Effect::End(Reason::Shutdown));
    assert_eq!(life.apply(Event::Held, at(2), &TERMS), Effect::Release(Reason::Shutdown));
    assert_eq!(life.apply(Event::Opened, at(2), &TERMS), Effect::Nothing);
    life.apply(Event::Released, at(3), &TERMS);
    assert_eq!(life.apply(Event::Held, at(4), &TERMS), Effect::Release(Reason::Shutdown));
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Held),
        Just(Event::Opened),
        Just(Event::RequestBegan),
        Just(Event::RequestEnded),
        Just(Event::ListenBegan),
        Just(Event::ListenEnded),
        Just(Event::OwnerFound),
        (1..4).prop_map(Event::OwnerGone),
        Just(Event::OwnerUnknown),
        Just(Event::OwnersMovedOn(true)),
        Just(Event::OwnersMovedOn(false)),
        Just(Event::ConnectionBegan),
        Just(Event::ConnectionEnded),
        Just(Event::Tick),
        Just(Event::End(Reason::ClientDeleted)),
        Just(Event::End(Reason::Shutdown)),
        Just(Event::Released),
    ]
}

proptest! {
    /// Everything that was ever held is released exactly once, if time goes on after the last event.
    #[test]
    fn everything_held_is_released_once(history in prop::collection::vec((event(), 0..200u64), 0..40)) {
        let mut life = SessionLife::begin(at(0));
        let (mut now, mut held) = (0, 0i32);
        let mut perform = |life: &mut SessionLife, event: Event, now: u64| {
            held += i32::from(event == Event::Held);
            match life.apply(event, at(now), &TERMS) {
                Effect::Nothing => {}
                // The driver releases what is held at that moment.
                Effect::End(_) => held = 0,
                Effect::Release(_) => held -= 1,
            }
            assert!(held >= 0, "released twice");
        };
        for (event, pause) in history {
            now += pause;
            perform(&mut life, event, now);
        }
        // All requests and listeners end, and time goes on.
        while life.busy() {
            perform(&mut life, Event::RequestEnded, now);
            perform(&mut life, Event::ListenEnded, now);
        }
        perform(&mut life, Event::Tick, now + 100_000);
        prop_assert_eq!(held, 0, "{:?}", life);
        prop_assert!(!life.usable());
    }

    /// A request in flight is cut off only by the maximum age, by a request to end, or because no client process is
    /// left to read its response.
    #[test]
    fn request_in_flight_is_not_cut_off_as_idle(history in prop::collection::vec((event(), 0..500u64), 0..40)) {
        let mut life = SessionLife::begin(at(0));
        let mut now = 0;
        for (event, pause) in history {
            now += pause;
            if let Effect::End(Reason::Idle | Reason::Abandoned) = life.apply(event, at(now), &TERMS) {
                prop_assert_eq!(life.in_flight(), 0);
            }
        }
    }
}
