use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

fn endpoint() -> Uri {
    Uri::from_static("http://h/mcp")
}

/// A connection by Streamable HTTP in this state, whose session has the number 1.
fn life(state: &State) -> Life {
    let mut life = Life::new(Transport::Streamable(endpoint()), true);
    life.session = Some(Session { id: Some("s-1".to_owned()), version: None });
    life.generation = 1;
    match state {
        State::Ending(_) | State::LeftToKeeper(_) => life.leaving = vec![1],
        State::Ended(_) => {}
        State::Opening | State::Live | State::Reviving | State::Paused => life.current = Some(1),
    }
    Life { state: state.clone(), ..life }
}

/// Applies an event. Returns the effects, after the new state if it is another one.
fn after(life: &mut Life, event: Event) -> String {
    let before = life.state.clone();
    let effects = life.apply(event).into_iter().map(|effect| format!("{effect:?}"));
    let state = (life.state != before).then(|| format!("-> {:?}", life.state));
    state.into_iter().chain(effects).collect::<Vec<_>>().join(" ")
}

fn accepted(session: Option<SessionNumber>, awaited: bool) -> Event {
    let session = session.map(|number| (number, format!("s-{number}")));
    Event::InitializeAccepted { endpoint: endpoint(), session, awaited }
}

fn lost(gone: Option<Gone>) -> Event {
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
    check(&lost(Some(Gone::Forgotten)), [&gone, &gone_revive, &gone, &gone_retry], nothing);
    check(&Event::StreamClosed { generation: 0 }, [""; 4], nothing);
    check(&Event::SessionLost { generation: 0, gone: Some(Gone::Forgotten) }, [""; 4], nothing);
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
        let mut explicit = Life { revives: false, ..life(&state) };
        let end = "-> Ending(UpstreamForgot)";
        let expected = format!("{end} RecordGone(1, Forgotten) AnnounceEnd(UpstreamForgot)");
        assert_eq!(after(&mut explicit, lost(Some(Gone::Forgotten))), expected);
        let mut vague = Life { revives: false, ..life(&state) };
        assert_eq!(after(&mut vague, lost(None)), format!("{end} AnnounceEnd(UpstreamForgot) Delete(1)"));
    }
}

/// A connection by HTTP+SSE in this state, whose stream is closed.
fn closed(state: &State) -> Life {
    Life { transport: Transport::HttpSse(None), current: None, ..life(state) }
}

#[test]
fn closed_stream_of_http_sse_is_opened_again_until_it_works() {
    let mut life = Life { transport: Transport::HttpSse(Some(endpoint())), ..life(&State::Live) };
    let expected = "-> Reviving RecordGone(1, StreamClosed) SuspendOutbox Revive";
    assert_eq!(after(&mut life, Event::StreamClosed { generation: 1 }), expected);
    assert_eq!(life.transport, Transport::HttpSse(None));
    assert_eq!(after(&mut life, Event::RevivalFailed), "-> Paused ResumeOutbox");
    assert_eq!(after(&mut life, Event::PauseOver), "-> Reviving SuspendOutbox");
    // The stream was opened and closed again before the handshake was complete.
    assert_eq!(after(&mut life, Event::Revived), "-> Paused ResumeOutbox");
    // A message needs the session, so the pause ends early.
    assert_eq!(after(&mut life, lost(Some(Gone::StreamClosed))), "-> Reviving SuspendOutbox EndPause");
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
    let mut life = Life::new(Transport::Unknown, true);
    life.apply(Event::PostAccepted(endpoint()));
    assert_eq!(life.transport, Transport::Streamable(endpoint()));
    life.apply(Event::PostAccepted(Uri::from_static("http://h/other")));
    assert_eq!(life.transport, Transport::Streamable(endpoint()));
}

/// One step of a generated history.
#[derive(Clone, Debug)]
enum Step {
    SendInitialize,
    /// The task that waits for the response is dropped.
    AbandonInitialize(usize),
    AnswerInitialize {
        which: usize,
        names_session: bool,
        refuses: bool,
        by_host: bool,
    },
    OpenStream,
    CloseStream(usize),
    Send,
    /// `explicit`: a server that has lost the session answers 404, not 400.
    Answer {
        which: usize,
        explicit: bool,
    },
    /// The upstream forgets a session.
    Forget(usize),
    RevivalOver {
        worked: bool,
    },
    PauseOver,
    AnswerDelete {
        which: usize,
        cut_short: bool,
    },
    End,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flag = any::<bool>;
    let which = any::<usize>;
    let answered = (which(), flag(), prop::bool::weighted(0.2), flag());
    let step = prop_oneof![
        4 => Just(Step::SendInitialize),
        1 => which().prop_map(Step::AbandonInitialize),
        4 => answered.prop_map(|(which, names_session, refuses, by_host)| {
            Step::AnswerInitialize { which, names_session, refuses, by_host }
        }),
        1 => Just(Step::OpenStream),
        1 => which().prop_map(Step::CloseStream),
        4 => Just(Step::Send),
        4 => (which(), flag()).prop_map(|(which, explicit)| Step::Answer { which, explicit }),
        2 => which().prop_map(Step::Forget),
        2 => flag().prop_map(|worked| Step::RevivalOver { worked }),
        1 => Just(Step::PauseOver),
        2 => (which(), prop::bool::weighted(0.1)).prop_map(|(which, cut_short)| Step::AnswerDelete { which, cut_short }),
    ];
    // At most one end, anywhere in the history.
    (prop::collection::vec(step, 0..60), which(), flag()).prop_map(|(mut steps, place, ends)| {
        if ends {
            steps.insert(place % (steps.len() + 1), Step::End);
        }
        steps
    })
}

/// The world around a connection: the upstream with its sessions, and the messages on their way.
struct World {
    life: Life,
    newest: SessionNumber,
    /// The sessions that exist at the upstream.
    open: BTreeSet<SessionNumber>,
    /// The sessions for which leash has sent a DELETE.
    deleted: BTreeSet<SessionNumber>,
    /// The sessions for whose DELETE leash had no more time.
    cut_short: BTreeSet<SessionNumber>,
    /// Each `initialize` on its way, and whether its caller waits.
    initializes: Vec<bool>,
    /// Each other message on its way, with the generation and the session in which it was sent.
    messages: Vec<(u64, Option<SessionNumber>)>,
    /// The open streams, each with its generation.
    streams: Vec<(u64, SessionNumber)>,
    deletes: Vec<SessionNumber>,
    suspended: bool,
    /// A task is opening the lost session again.
    reviving: bool,
}

/// Takes one of the values, if there is one.
fn take<T>(values: &mut Vec<T>, which: usize) -> Option<T> {
    (!values.is_empty()).then(|| values.remove(which % values.len()))
}

impl World {
    fn new(transport: Transport, revives: bool) -> World {
        World {
            life: Life::new(transport, revives),
            newest: 0,
            open: BTreeSet::new(),
            deleted: BTreeSet::new(),
            cut_short: BTreeSet::new(),
            initializes: Vec::new(),
            messages: Vec::new(),
            streams: Vec::new(),
            deletes: Vec::new(),
            suspended: false,
            reviving: false,
        }
    }

    fn apply(&mut self, event: Event) -> Result<(), TestCaseError> {
        for effect in self.life.apply(event) {
            match effect {
                Effect::Delete(session) => {
                    prop_assert!(self.deleted.insert(session), "session {} is deleted twice", session);
                    self.deletes.push(session);
                }
                Effect::RecordGone(session, _) => {
                    prop_assert!(!self.open.contains(&session), "session {} is not gone", session);
                }
                Effect::SuspendOutbox => self.suspended = true,
                Effect::ResumeOutbox => self.suspended = false,
                Effect::Revive => prop_assert!(!std::mem::replace(&mut self.reviving, true), "two revivals"),
                Effect::EndPause => prop_assert!(self.reviving),
                Effect::Hold(_)
                | Effect::HoldUntilEnded(_)
                | Effect::RecordVersion(_)
                | Effect::StopListener
                | Effect::AnnounceEnd(_) => {}
            }
        }
        let revives = matches!(self.life.state, State::Reviving | State::Paused);
        prop_assert!(self.reviving || !revives, "no task opens the session again");
        self.reviving &= revives;
        if self.life.end_reason().is_none() {
            prop_assert_eq!(self.suspended, self.life.state == State::Reviving);
        }
        Ok(())
    }

    fn open_session(&mut self) -> SessionNumber {
        self.newest += 1;
        self.open.insert(self.newest);
        self.newest
    }

    fn answer_delete(&mut self, session: SessionNumber, cut_short: bool) -> Result<(), TestCaseError> {
        let fates = if cut_short { &mut self.cut_short } else { &mut self.open };
        if cut_short {
            fates.insert(session)
        } else {
            fates.remove(&session)
        };
        self.apply(Event::SessionEnded { session, cut_short })
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::SendInitialize => self.initializes.push(true),
            Step::AbandonInitialize(which) => {
                if take(&mut self.initializes, which).is_some() {
                    self.initializes.push(false);
                }
            }
            Step::AnswerInitialize { which, names_session, refuses, by_host } => {
                let Some(awaited) = take(&mut self.initializes, which) else { return Ok(()) };
                let session = names_session.then(|| self.open_session());
                self.apply(accepted(session, awaited))?;
                if awaited {
                    let answered = Event::HandshakeAnswered { by_host, version: None };
                    self.apply(if refuses { Event::HandshakeRefused } else { answered })?;
                }
            }
            Step::OpenStream => {
                let session = self.open_session();
                self.apply(Event::StreamOpened { endpoint: endpoint(), session })?;
                self.streams.push((self.life.generation, session));
            }
            Step::CloseStream(which) => {
                let Some((generation, session)) = take(&mut self.streams, which) else { return Ok(()) };
                self.open.remove(&session);
                self.apply(Event::StreamClosed { generation })?;
            }
            Step::Send => self.messages.push((self.life.generation, self.life.current)),
            Step::Answer { which, explicit } => {
                let Some((generation, session)) = take(&mut self.messages, which) else { return Ok(()) };
                let lost = session.is_some_and(|session| !self.open.contains(&session));
                let gone = explicit.then_some(Gone::Forgotten);
                let refused = Event::SessionLost { generation, gone };
                self.apply(if lost { refused } else { Event::PostAccepted(endpoint()) })?;
            }
            Step::Forget(which) => {
                let mut open: Vec<_> = self.open.iter().copied().collect();
                if let Some(session) = take(&mut open, which) {
                    self.open.remove(&session);
                }
            }
            Step::RevivalOver { worked } => {
                if self.life.state == State::Reviving {
                    self.apply(if worked { Event::Revived } else { Event::RevivalFailed })?;
                }
            }
            Step::PauseOver => self.apply(Event::PauseOver)?,
            Step::AnswerDelete { which, cut_short } => {
                let Some(session) = take(&mut self.deletes, which) else { return Ok(()) };
                self.answer_delete(session, cut_short)?;
            }
            Step::End => self.apply(Event::End(Reason::StdinClosed))?,
        }
        Ok(())
    }

    /// Ends the connection. The responses to all `initialize` on their way come late, and each opens a session.
    fn end(&mut self) -> Result<(), TestCaseError> {
        self.step(Step::End)?;
        while let Some(awaited) = self.initializes.pop() {
            let session = self.open_session();
            self.apply(accepted(Some(session), awaited))?;
        }
        while let Some(session) = self.deletes.pop() {
            self.answer_delete(session, false)?;
        }
        self.apply(Event::Drained)
    }
}

fn transports() -> impl Strategy<Value = Transport> {
    let streamable = Transport::Streamable(endpoint());
    prop_oneof![Just(Transport::Unknown), Just(streamable), Just(Transport::HttpSse(None))]
}

proptest! {
    /// Whatever happens: every session of which leash has learnt is gone from the upstream at the end, or leash has left it
    /// to the keeper. leash never takes an open session for gone, and never deletes one twice.
    #[test]
    fn every_learnt_session_is_deleted_or_known_to_be_gone(
        transport in transports(),
        revives in any::<bool>(),
        steps in steps(),
    ) {
        let mut world = World::new(transport, revives);
        for step in steps {
            world.step(step)?;
        }
        world.end()?;
        let left: Vec<_> = world.open.difference(&world.cut_short).collect();
        prop_assert!(left.is_empty(), "sessions {left:?} are open");
        let reason = world.life.end_reason().expect("the end has begun").clone();
        let over = if world.cut_short.is_empty() { State::Ended(reason) } else { State::LeftToKeeper(reason) };
        prop_assert_eq!(world.life.state, over);
    }
}
