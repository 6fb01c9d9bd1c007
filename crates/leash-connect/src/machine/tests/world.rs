use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

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
    let deleted = (which(), prop::bool::weighted(0.1));
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
        2 => deleted.prop_map(|(which, cut_short)| Step::AnswerDelete { which, cut_short }),
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
    life: ConnectionLife,
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
    fn new(transport: UpstreamTransport, revives: bool) -> World {
        World {
            life: ConnectionLife::new(transport, revives),
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
                let gone = explicit.then_some(GoneReason::Forgotten);
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

fn transports() -> impl Strategy<Value = UpstreamTransport> {
    let streamable = UpstreamTransport::Streamable(endpoint());
    prop_oneof![Just(UpstreamTransport::Unknown), Just(streamable), Just(UpstreamTransport::HttpSse(None))]
}

proptest! {
    /// Whatever happens: every session of which leash has learnt is gone from the upstream at the end, or leash has left
    /// it to the keeper. leash never takes an open session for gone, and never deletes one twice.
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
