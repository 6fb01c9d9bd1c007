//! Tests of the keeper's decisions: a table of all cells, and the sessions of a whole world.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::keeper::{Headers, ResumeFacts};
use crate::origin::Origin;

const TAKEOVER: Duration = Duration::from_millis(2000);

fn at(ms: u64) -> Moment {
    Moment::from_boot(Duration::from_millis(ms))
}

fn machine(is_gateway: bool, takeover: Option<Duration>) -> Machine {
    Machine { state: State::Waiting, held: HeldSessions::default(), takeover, is_gateway }
}

/// The message that a session exists, with or without the facts to resume it.
fn hold(key: &str, resumable: bool) -> Event {
    let resume_facts = ResumeFacts {
        token: "t".to_owned(),
        credentials: Headers::default(),
        uid: None,
        origin: Origin::User(0),
        owners: vec![],
        lost: None,
        unknown_client: false,
        client: None,
        born_ms: 0,
        revival: None,
    };
    let session = HeldSession::stream("x", 5, &"http://h/mcp".parse().expect("an address"));
    Event::Message(KeeperMessage::hold(key, &session.resumable(resumable.then_some(resume_facts))).expect("JSON"))
}

fn owner_gone() -> Event {
    Event::OwnerGone(Reason::TerminalClosed)
}

fn letter(state: &State) -> char {
    match state {
        State::Waiting => 'W',
        State::OwnerLost { .. } => 'L',
        State::ProcessEnds => 'P',
        State::Killed => 'K',
        State::Offering { .. } => 'O',
        State::Ending => 'E',
        State::Done => 'D',
    }
}

/// A gateway's keeper with a session, in a state that it reached at 0 ms.
fn reached(state: char) -> Machine {
    let mut keeper = machine(true, Some(TAKEOVER));
    let cover = |is_ours| Event::Cover { is_ours };
    let history = match state {
        'W' => vec![],
        'L' => vec![owner_gone()],
        'P' => vec![Event::Message(KeeperMessage::Ending)],
        'K' => vec![Event::ProcessGone],
        'O' => vec![Event::ProcessGone, cover(true)],
        'E' => vec![Event::ProcessGone, cover(true), Event::Blind],
        _ => vec![Event::ProcessGone, cover(false)],
    };
    keeper.apply(hold("a", true), at(0));
    for event in history {
        keeper.apply(event, at(0));
    }
    assert_eq!(letter(&keeper.state), state);
    keeper
}

/// The effects of a move between two states.
fn effects(from: char, to: char) -> Vec<Effect> {
    match (from, to) {
        ('W' | 'L' | 'P', 'K') => vec![Effect::MakeRoom, Effect::ReadCover],
        ('L', 'E') => vec![Effect::MakeRoom, Effect::End(Reason::TerminalClosed)],
        ('P', 'E') => vec![Effect::MakeRoom, Effect::End(Reason::Shutdown)],
        ('K' | 'O', 'E') => vec![Effect::End(Reason::SupervisorKilled)],
        ('W' | 'L' | 'P' | 'K' | 'O', 'D') => vec![Effect::Exit],
        _ => vec![],
    }
}

#[test]
fn every_state_and_event_has_a_decision() {
    let columns: [fn() -> Event; 12] = [
        || hold("b", true),
        || Event::Message(KeeperMessage::Ending),
        || Event::Message(KeeperMessage::Done),
        || Event::ProcessGone,
        owner_gone,
        || Event::Blind,
        || Event::Tick,
        || Event::Tick,
        || Event::Cover { is_ours: true },
        || Event::Cover { is_ours: false },
        || Event::Asked,
        || Event::CannotAccept,
    ];
    // In the order of the columns. The second tick comes after every deadline, everything else before.
    for (from, row) in [
        ('W', "WPDKLLWWWWWW"),
        ('L', "LPDKLLLELLLL"),
        ('P', "PPDEPPPPPPPP"),
        ('K', "KKKKKKKKODKK"),
        ('O', "OOOOOEOEODOE"),
        ('E', "EEEEEEEEEEEE"),
        ('D', "DDDDDDDDDDDD"),
    ] {
        for ((number, column), to) in columns.iter().enumerate().zip(row.chars()) {
            let (event, ms) = (column(), if number == 7 { 10_000 } else { 1 });
            let (mut keeper, name) = (reached(from), format!("{from} {event:?}"));
            let is_handover = from == 'O' && matches!(event, Event::Asked);
            let expected = if is_handover { vec![Effect::HandOver] } else { effects(from, to) };
            assert_eq!(keeper.apply(event, at(ms)), expected, "{name}");
            assert_eq!(letter(&keeper.state), to, "{name}");
        }
    }
}

#[test]
fn killed_process_is_the_reason_even_if_an_owner_is_gone() {
    for (history, is_gateway) in [
        (vec![owner_gone(), Event::ProcessGone], true),
        (vec![Event::Blind, Event::ProcessGone], true),
        // A connection that dies while it ends its session was killed, too.
        (vec![Event::Message(KeeperMessage::Ending), Event::ProcessGone], false),
    ] {
        let mut keeper = machine(is_gateway, None);
        history.into_iter().for_each(|event| drop(keeper.apply(event, at(0))));
        let effects = keeper.apply(Event::Cover { is_ours: true }, at(0));
        assert_eq!(effects, [Effect::End(Reason::SupervisorKilled)]);
    }
}

#[test]
fn first_loss_is_the_reason_and_has_one_second() {
    let mut keeper = machine(false, None);
    keeper.apply(Event::Blind, at(0));
    keeper.apply(owner_gone(), at(500));
    assert_eq!(keeper.apply(Event::Tick, at(999)), []);
    assert_eq!(keeper.apply(Event::Tick, at(1000)), [Effect::MakeRoom, Effect::End(Reason::Starved)]);
}

#[test]
fn keeper_waits_for_a_gateway_only_if_a_session_can_be_resumed() {
    for (resumable, takeover, offers) in
        [(true, Some(TAKEOVER), true), (false, Some(TAKEOVER), false), (true, None, false), (false, None, false)]
    {
        let mut keeper = machine(true, takeover);
        keeper.apply(hold("a", resumable), at(0));
        keeper.apply(hold("b", false), at(0));
        keeper.apply(Event::ProcessGone, at(0));
        keeper.apply(Event::Cover { is_ours: true }, at(5));
        assert_eq!(keeper.deadline(), offers.then(|| at(2005)), "{resumable} {takeover:?}");
    }
}

#[test]
fn handover_that_ends_after_the_deadline_counts_if_the_book_is_taken() {
    for (is_ours, expected) in [(false, Effect::Exit), (true, Effect::End(Reason::SupervisorKilled))] {
        let mut keeper = reached('O');
        assert_eq!(keeper.apply(Event::Asked, at(1999)), [Effect::HandOver]);
        assert_eq!(keeper.apply(Event::Cover { is_ours }, at(9000)), [expected]);
    }
}

#[test]
fn messages_decide_what_is_held() {
    let mut keeper = machine(false, None);
    let held = |keeper: &Machine| keeper.held.sessions.keys().map(ToString::to_string).collect::<BTreeSet<_>>();
    for key in ["a", "b", "a"] {
        keeper.apply(hold(key, false), at(0));
    }
    keeper.apply(Event::Message(KeeperMessage::Ended("b".into(), None)), at(0));
    assert_eq!(held(&keeper), ["a".to_owned()].into());
    keeper.apply(Event::Message(KeeperMessage::Anew), at(0));
    assert!(keeper.held.is_empty());
}

/// A step of the world around a keeper.
#[derive(Clone, Debug)]
enum Step {
    /// The process opens a session, which another gateway may or may not resume.
    Open(u8, bool),
    /// The process opens a session and cannot write it into the book, because the disk is full.
    OpenUnwritten(u8),
    /// The process ends a session.
    Close(u8),
    /// The process tells everything again.
    Retell,
    /// The process begins to end its sessions.
    BeginEnd,
    /// The process has nothing left to do and says so. A session that it could not end is in the book.
    Leave,
    /// The process is stopped (SIGSTOP): it sends nothing any more.
    Stop,
    Kill,
    LoseOwner,
    Blind,
    /// Time passes.
    Wait(u64),
    /// A new gateway connects. It takes the book over, or dies before.
    Ask(bool),
    /// A process connects, and no descriptor is free.
    AskInVain,
}

/// A keeper, its process, the servers and the book.
struct World {
    keeper: Machine,
    now: u64,
    is_alive: bool,
    is_stopped: bool,
    /// The sessions that the process has open at servers.
    open: BTreeSet<u8>,
    /// The sessions in the book.
    book: BTreeSet<u8>,
    /// Another gateway has the book, and with it the sessions.
    is_taken: bool,
    /// The process said that nothing is left.
    is_left: bool,
    made_room: usize,
    has_exited: bool,
}

impl World {
    fn step(&mut self, step: Step) {
        let talks = self.is_alive && !self.is_stopped && !self.has_exited;
        match step {
            Step::Open(key, resumable) if talks => {
                self.book.insert(key);
                self.open.insert(key);
                self.feed(hold(&key.to_string(), resumable));
            }
            Step::OpenUnwritten(key) if talks => {
                self.open.insert(key);
                self.feed(hold(&key.to_string(), true));
            }
            Step::Close(key) if talks && self.open.remove(&key) => {
                self.book.remove(&key);
                self.feed(Event::Message(KeeperMessage::Ended(key.to_string().into(), None)));
            }
            Step::Retell if talks => {
                self.feed(Event::Message(KeeperMessage::Anew));
                self.open.clone().iter().for_each(|key| self.feed(hold(&key.to_string(), true)));
            }
            Step::BeginEnd if talks => self.feed(Event::Message(KeeperMessage::Ending)),
            Step::Leave if talks && self.open.is_subset(&self.book) => {
                self.is_left = true;
                self.feed(Event::Message(KeeperMessage::Done));
            }
            Step::Stop => self.is_stopped = true,
            Step::Kill if self.is_alive => {
                self.is_alive = false;
                self.feed(Event::ProcessGone);
            }
            Step::LoseOwner => self.feed(owner_gone()),
            Step::Blind => self.feed(Event::Blind),
            Step::Wait(ms) => {
                self.now += ms;
                self.feed(Event::Tick);
            }
            Step::Ask(takes) if matches!(self.keeper.state, State::Offering { .. }) => self.ask(Some(takes)),
            Step::AskInVain if matches!(self.keeper.state, State::Offering { .. }) => self.ask(None),
            _ => {}
        }
    }

    fn ask(&mut self, accepted: Option<bool>) {
        assert_eq!(self.keeper.apply(Event::Asked, at(self.now)), [Effect::HandOver]);
        match accepted {
            Some(takes) => {
                self.is_taken = takes;
                self.feed(Event::Cover { is_ours: !takes });
            }
            None => self.feed(Event::CannotAccept),
        }
    }

    fn feed(&mut self, event: Event) {
        for effect in self.keeper.apply(event, at(self.now)) {
            assert!(!self.has_exited, "{effect:?} after the exit");
            match effect {
                Effect::MakeRoom => self.made_room += 1,
                Effect::ReadCover => self.feed(Event::Cover { is_ours: !self.is_taken }),
                Effect::HandOver => panic!("no gateway asked"),
                Effect::End(_) => {
                    assert!(!self.is_taken, "ends the sessions of another gateway");
                    let held = &self.keeper.held.sessions;
                    self.open.retain(|key| !held.contains_key(&*key.to_string()));
                    self.has_exited = true;
                }
                Effect::Exit => {
                    assert!(self.is_taken || self.is_left, "leaves sessions that it holds");
                    self.has_exited = true;
                }
            }
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..5u8, any::<bool>()).prop_map(|(key, resumable)| Step::Open(key, resumable)),
        1 => (0..5u8).prop_map(Step::OpenUnwritten),
        3 => (0..5u8).prop_map(Step::Close),
        1 => Just(Step::Retell),
        1 => Just(Step::BeginEnd),
        1 => Just(Step::Leave),
        1 => Just(Step::Stop),
        1 => Just(Step::Kill),
        1 => Just(Step::LoseOwner),
        1 => Just(Step::Blind),
        3 => (0..3000u64).prop_map(Step::Wait),
        3 => any::<bool>().prop_map(Step::Ask),
        1 => Just(Step::AskInVain),
    ]
}

proptest! {
    /// Whatever happens, and in whatever order: when the process is dead, every session that is open at a server was
    /// ended by the keeper, or another gateway has it, or the process left it in the book.
    #[test]
    fn every_held_session_is_ended_handed_over_or_left_in_the_book(
        steps in proptest::collection::vec(any_step(), 0..30),
        is_gateway: bool,
        takeover: bool,
    ) {
        let mut world = World {
            keeper: machine(is_gateway, takeover.then_some(TAKEOVER)),
            now: 0,
            is_alive: true,
            is_stopped: false,
            open: BTreeSet::new(),
            book: BTreeSet::new(),
            is_taken: false,
            is_left: false,
            made_room: 0,
            has_exited: false,
        };
        steps.into_iter().for_each(|step| world.step(step));
        world.step(Step::Kill);
        world.step(Step::Wait(TAKEOVER.as_millis() as u64));
        prop_assert!(world.has_exited, "{:?}", world.keeper.state);
        let is_left = |key| world.is_left && world.book.contains(key);
        prop_assert!(world.is_taken || world.open.iter().all(is_left), "{:?} are open", world.open);
        prop_assert_eq!(world.made_room, usize::from(!world.is_left));
    }
}
