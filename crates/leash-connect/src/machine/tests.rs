use super::*;

mod world;

fn endpoint() -> Uri {
    Uri::from_static("http://h/mcp")
}

/// A connection by Streamable HTTP in this state, whose session has the number 1.
fn life(state: &State) -> ConnectionLife {
    let mut life = ConnectionLife::new(UpstreamTransport::Streamable(endpoint()), true);
    life.session = Some(SessionHeaders { id: Some("s-1".to_owned()), version: None });
    life.generation = 1;
    match state {
        State::Ending(_) | State::LeftToKeeper(_) => life.leaving = vec![1],
        State::Ended(_) => {}
        State::Opening | State::Live | State::Reviving | State::Paused => life.current = Some(1),
    }
    ConnectionLife { state: state.clone(), ..life }
}

/// Applies an event. Returns the effects, after the new state if it is another one.
fn after(life: &mut ConnectionLife, event: Event) -> String {
    let before = life.state.clone();
    let effects = life.apply(event).into_iter().map(|effect| format!("{effect:?}"));
    let state = (life.state != before).then(|| format!("-> {:?}", life.state));
    state.into_iter().chain(effects).collect::<Vec<_>>().join(" ")
}

fn accepted(session: Option<SessionNumber>, awaited: bool) -> Event {
    let session = session.map(|number| (number, format!("s-{number}")));
    Event::InitializeAccepted { endpoint: endpoint(), session, awaited }
}

fn lost(gone: Option<GoneReason>) -> Event {
    Event::SessionLost { generation: 1, gone }
}

/// Checks an event in the states in which leash uses the session, and in those after the end has begun.
fn check(event: &Event, in_use: [&str; 4], over: [&str; 3]) {
    let why = || Reason::MaxAge;
    let states = [
        State::Opening,
        State::Live,
        State::Reviving,
        State::Paused,
        State::Ending(why()),
        State::Ended(why()),
        State::LeftToKeeper(why()),
    ];
    for (state, expected) in states.iter().zip(in_use.into_iter().chain(over)) {
        assert_eq!(after(&mut life(state), event.clone()), expected, "{state:?} {event:?}");
    }
}

#[test]
fn every_event_is_decided_in_every_state() {
    let nothing = ["", "", ""];
    check(&accepted(Some(2), true), ["StopListener Hold(Some(2)) Delete(1)"; 4], ["HoldUntilEnded(2) Delete(2)"; 3]);
    check(&accepted(None, true), ["StopListener Hold(None) Delete(1)"; 4], nothing);
    check(&accepted(Some(2), false), ["HoldUntilEnded(2) Delete(2)"; 4], ["HoldUntilEnded(2) Delete(2)"; 3]);
    check(&accepted(None, false), [""; 4], nothing);
    let stream = Event::StreamOpened { endpoint: endpoint(), session: 2 };
    check(&stream, ["StopListener Hold(Some(2)) Delete(1)"; 4], ["HoldUntilEnded(2) Delete(2)"; 3]);
    let version = || Some("v".to_owned());
    let record = r#"RecordVersion("v")"#;
    let first = format!("-> Live {record}");
    let by_host = Event::HandshakeAnswered { by_host: true, version: version() };
    check(&by_host, [&first, record, record, record], nothing);
    let by_leash = Event::HandshakeAnswered { by_host: false, version: version() };
    check(&by_leash, [record; 4], nothing);
    check(&Event::HandshakeAnswered { by_host: true, version: None }, ["-> Live", "", "", ""], nothing);
    check(&Event::HandshakeRefused, [""; 4], nothing);
    check(&Event::PostAccepted(endpoint()), [""; 4], nothing);
    let revive = "-> Reviving SuspendOutbox Revive";
    let retry = "-> Reviving SuspendOutbox EndPause";
    check(&lost(None), ["", revive, "", retry], nothing);
    let [gone, gone_revive, gone_retry] =
        [("", ""), ("-> Reviving ", " SuspendOutbox Revive"), ("-> Reviving ", " SuspendOutbox EndPause")]
            .map(|(before, after)| format!("{before}RecordGone(1, Forgotten){after}"));
    check(&lost(Some(GoneReason::Forgotten)), [&gone, &gone_revive, &gone, &gone_retry], nothing);
    check(&Event::StreamClosed { generation: 0 }, [""; 4], nothing);
    check(&Event::SessionLost { generation: 0, gone: Some(GoneReason::Forgotten) }, [""; 4], nothing);
    check(&Event::Revived, ["", "", "-> Live ResumeOutbox", ""], nothing);
    check(&Event::RevivalFailed, ["", "", "-> Live ResumeOutbox", ""], nothing);
    check(&Event::PauseOver, ["", "", "-> Live ResumeOutbox", "-> Live ResumeOutbox"], nothing);
    let end = "-> Ending(StdinClosed) AnnounceEnd(StdinClosed) Delete(1)";
    check(&Event::End(Reason::StdinClosed), [end; 4], nothing);
    check(&Event::SessionEnded { session: 1, cut_short: false }, [""; 4], nothing);
    check(&Event::SessionEnded { session: 1, cut_short: true }, [""; 4], nothing);
    check(&Event::Drained, [""; 4], ["-> LeftToKeeper(MaxAge)", "", ""]);
}

#[test]
fn connection_is_over_when_all_sessions_ended() {
    let ending = State::Ending(Reason::MaxAge);
    for (cut_short, over) in [(false, "-> Ended(MaxAge)"), (true, "-> LeftToKeeper(MaxAge)")] {
        let mut life = life(&ending);
        life.apply(Event::SessionEnded { session: 1, cut_short });
        assert_eq!(after(&mut life, Event::Drained), over);
    }
}

#[test]
fn lost_session_ends_the_connection_if_leash_may_not_revive_it() {
    for state in [State::Opening, State::Live] {
        let mut explicit = ConnectionLife { revives: false, ..life(&state) };
        let end = "-> Ending(UpstreamForgot)";
        let expected = format!("{end} RecordGone(1, Forgotten) AnnounceEnd(UpstreamForgot)");
        assert_eq!(after(&mut explicit, lost(Some(GoneReason::Forgotten))), expected);
        let mut vague = ConnectionLife { revives: false, ..life(&state) };
        assert_eq!(after(&mut vague, lost(None)), format!("{end} AnnounceEnd(UpstreamForgot) Delete(1)"));
    }
}

/// A connection by HTTP+SSE in this state, whose stream is closed.
fn closed(state: &State) -> ConnectionLife {
    ConnectionLife { transport: UpstreamTransport::HttpSse(None), current: None, ..life(state) }
}

#[test]
fn closed_stream_of_http_sse_is_opened_again_until_it_works() {
    let mut life = ConnectionLife { transport: UpstreamTransport::HttpSse(Some(endpoint())), ..life(&State::Live) };
    let expected = "-> Reviving RecordGone(1, StreamClosed) SuspendOutbox Revive";
    assert_eq!(after(&mut life, Event::StreamClosed { generation: 1 }), expected);
    assert_eq!(life.transport, UpstreamTransport::HttpSse(None));
    assert_eq!(after(&mut life, Event::RevivalFailed), "-> Paused ResumeOutbox");
    assert_eq!(after(&mut life, Event::PauseOver), "-> Reviving SuspendOutbox");
    // The stream was opened and closed again before the handshake was complete.
    assert_eq!(after(&mut life, Event::Revived), "-> Paused ResumeOutbox");
    // A message needs the session, so the pause ends early.
    assert_eq!(after(&mut life, lost(Some(GoneReason::StreamClosed))), "-> Reviving SuspendOutbox EndPause");
    assert_eq!(after(&mut life, Event::PauseOver), "");
    let opened = Event::StreamOpened { endpoint: endpoint(), session: 2 };
    assert_eq!(after(&mut life, opened), "StopListener Hold(Some(2))");
    assert_eq!(after(&mut life, Event::Revived), "-> Live ResumeOutbox");
    // The end of the first stream is old news.
    assert_eq!(after(&mut life, Event::StreamClosed { generation: 1 }), "");
}

#[test]
fn host_that_opens_a_session_itself_ends_the_revival() {
    let mut life = closed(&State::Paused);
    life.apply(Event::StreamOpened { endpoint: endpoint(), session: 2 });
    assert_eq!(after(&mut life, Event::PauseOver), "-> Live ResumeOutbox");
}

#[test]
fn transport_is_learnt_once() {
    let mut life = ConnectionLife::new(UpstreamTransport::Unknown, true);
    life.apply(Event::PostAccepted(endpoint()));
    assert_eq!(life.transport, UpstreamTransport::Streamable(endpoint()));
    life.apply(Event::PostAccepted(Uri::from_static("http://h/other")));
    assert_eq!(life.transport, UpstreamTransport::Streamable(endpoint()));
}
