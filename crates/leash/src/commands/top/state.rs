//! The state of `leash top`: pure. An event changes it and may ask for an effect; the driver in `top.rs` performs these.
//!
//! ```text
//!  List --/--> Filter --Enter, Esc--> List      List --?--> Help --Esc--> List
//!  List --Enter--> Details --Esc--> List        List --e, r--> Confirm --n, Esc--> List
//!                                                              Confirm --y--> effect, List
//! ```
//! A key has one meaning: where it does not apply, it does nothing. In the filter every character is text.

use std::collections::{HashMap, VecDeque};

use leash_model::feed::{DocumentKind, FeedLook, FeedRow, LiveFeed, RowKind, RowRemedy};
use leash_model::identity::Identity;
use leash_tree::session::Target;

use super::lines::{ListView, TopLine, lines};
use super::memory_history::MemoryHistory;
use crate::output::ids::short;
use crate::output::message;
use crate::output::printer::bytes;

/// The most events that are remembered.
const EVENTS: usize = 100;

/// The lines of a page up or down.
const PAGE: isize = 10;

/// The lines of a log that fit on the smallest usual screen.
const LOG_ROOM: usize = 18;

/// The most processes that a question names.
const NAMED: usize = 8;

/// A key, as far as `leash top` knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopKey {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    Char(char),
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Key(TopKey),
    /// The user pasted a text.
    Paste(String),
    Look(FeedLook),
    /// The last lines of the stderr of a row.
    Logged {
        key: String,
        lines: Vec<String>,
    },
    /// The answer of `leash why` about a row, one line each.
    Explained {
        key: String,
        lines: Vec<String>,
    },
    /// An end is over; one line for the user.
    Done(String),
}

/// Something that the driver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    /// Asks `leash why` about a row.
    Explain {
        key: String,
        pid: i32,
    },
    /// Reads the last lines that a server wrote to stderr. `word` is the id of its run or of its session.
    Logs {
        key: String,
        word: String,
    },
    /// Ends a session or a run.
    End {
        target: Target,
        name: String,
    },
    /// Ends an orphan.
    Reap {
        root: Identity,
        name: String,
    },
}

/// What the keys act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    List,
    /// The user types the filter; this was the filter before.
    Filter {
        before: String,
    },
    Help,
    /// The answer of `leash why`.
    Details {
        key: String,
        title: String,
        lines: Vec<String>,
        scroll: usize,
    },
    /// A question before something is ended.
    Confirm {
        key: String,
        question: Vec<String>,
        effect: Effect,
    },
}

/// A line about something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventLine {
    pub(super) at_ms: u64,
    pub(super) text: String,
}

/// The state.
#[derive(Debug)]
pub(super) struct TopState {
    pub(super) feed: LiveFeed,
    pub(super) memory: MemoryHistory,
    pub(super) view: ListView,
    pub(super) mode: Mode,
    /// The key of the selected row.
    pub(super) selected: Option<String>,
    /// The newest first.
    pub(super) events: VecDeque<EventLine>,
    /// A line for the user, until the next key.
    pub(super) notice: Option<String>,
    pub(super) read_only: bool,
    /// The ends that are under way.
    pub(super) pending: usize,
    /// The place of the selected row when it was last seen.
    place: usize,
}

impl TopState {
    pub(super) fn new(read_only: bool) -> TopState {
        TopState {
            feed: LiveFeed::default(),
            memory: MemoryHistory::default(),
            view: ListView::default(),
            mode: Mode::List,
            selected: None,
            events: VecDeque::new(),
            notice: None,
            read_only,
            pending: 0,
            place: 0,
        }
    }

    /// Applies an event.
    pub(super) fn apply(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Key(TopKey::Interrupt) => return Some(Effect::Quit),
            Event::Key(key) => {
                self.notice = None;
                return self.key(key);
            }
            Event::Paste(text) => {
                // Outside of the filter, a pasted text would be commands.
                if let Mode::Filter { .. } = self.mode {
                    self.view.filter.extend(text.chars().filter(|letter| !letter.is_control()));
                    self.select_near();
                }
            }
            Event::Look(look) => self.look(look),
            Event::Logged { key, lines } => {
                if let Mode::Details { key: wanted, lines: shown, scroll, .. } = &mut self.mode
                    && *wanted == key
                {
                    // The newest line is the last.
                    *scroll = lines.len().saturating_sub(LOG_ROOM);
                    *shown = lines;
                }
            }
            Event::Explained { key, lines } => {
                let known = self.row(&key).map(facts).unwrap_or_default();
                if let Mode::Details { key: wanted, lines: shown, .. } = &mut self.mode
                    && *wanted == key
                {
                    *shown = known.into_iter().chain(lines).collect();
                }
            }
            Event::Done(text) => {
                self.pending = self.pending.saturating_sub(1);
                self.notice = Some(text);
            }
        }
        None
    }

    /// The row with this key.
    pub(super) fn row(&self, key: &str) -> Option<&FeedRow> {
        self.feed.rows().iter().find(|row| row.key == key)
    }

    fn key(&mut self, key: TopKey) -> Option<Effect> {
        match &mut self.mode {
            Mode::List => self.list_key(key),
            Mode::Filter { .. } => {
                self.filter_key(key);
                None
            }
            Mode::Help => {
                if let TopKey::Escape | TopKey::Char('?') = key {
                    self.mode = Mode::List;
                }
                (key == TopKey::Char('q')).then_some(Effect::Quit)
            }
            Mode::Details { lines, scroll, .. } => {
                let last = lines.len().saturating_sub(1);
                match key {
                    TopKey::Up | TopKey::Char('k') => *scroll = scroll.saturating_sub(1),
                    TopKey::Down | TopKey::Char('j') => *scroll = (*scroll + 1).min(last),
                    TopKey::PageUp => *scroll = scroll.saturating_sub(PAGE.unsigned_abs()),
                    TopKey::PageDown => *scroll = (*scroll + PAGE.unsigned_abs()).min(last),
                    TopKey::First => *scroll = 0,
                    TopKey::Last => *scroll = last,
                    TopKey::Escape => self.mode = Mode::List,
                    TopKey::Char('q') => return Some(Effect::Quit),
                    TopKey::Enter | TopKey::Backspace | TopKey::Interrupt | TopKey::Char(_) => {}
                }
                None
            }
            Mode::Confirm { effect, .. } => {
                let effect = match key {
                    TopKey::Char('y') => Some(effect.clone()),
                    TopKey::Char('n') | TopKey::Escape => None,
                    TopKey::Char('q') => return Some(Effect::Quit),
                    // Any other key leaves the question open.
                    _ => return None,
                };
                self.mode = Mode::List;
                self.pending += usize::from(effect.is_some());
                effect
            }
        }
    }

    fn list_key(&mut self, key: TopKey) -> Option<Effect> {
        match key {
            TopKey::Up | TopKey::Char('k') => self.step(-1),
            TopKey::Down | TopKey::Char('j') => self.step(1),
            TopKey::PageUp => self.step(-PAGE),
            TopKey::PageDown => self.step(PAGE),
            TopKey::First => self.step(isize::MIN),
            TopKey::Last => self.step(isize::MAX),
            TopKey::Enter => return self.explain(),
            TopKey::Char('l') => return self.logs(),
            TopKey::Char('/') => self.mode = Mode::Filter { before: self.view.filter.clone() },
            TopKey::Char('t') => self.view.tree = !self.view.tree,
            TopKey::Char('s') => self.view.order = self.view.order.next(),
            TopKey::Char('?') => self.mode = Mode::Help,
            TopKey::Char('e') => self.ask(RowRemedy::End),
            TopKey::Char('r') => self.ask(RowRemedy::Reap),
            TopKey::Char('q') => return Some(Effect::Quit),
            // The filter is the only thing to leave here.
            TopKey::Escape => {
                self.view.filter.clear();
                self.select_near();
            }
            TopKey::Backspace | TopKey::Interrupt | TopKey::Char(_) => {}
        }
        None
    }

    fn filter_key(&mut self, key: TopKey) {
        let Mode::Filter { before } = &mut self.mode else { return };
        match key {
            TopKey::Char(letter) => self.view.filter.push(letter),
            TopKey::Backspace => drop(self.view.filter.pop()),
            TopKey::Enter => self.mode = Mode::List,
            TopKey::Escape => {
                self.view.filter = std::mem::take(before);
                self.mode = Mode::List;
            }
            TopKey::Up | TopKey::Down | TopKey::PageUp | TopKey::PageDown => {}
            TopKey::First | TopKey::Last | TopKey::Interrupt => {}
        }
        self.select_near();
    }

    /// The keys of the rows that are shown, in their order.
    fn shown(&self) -> Vec<String> {
        let lines = lines(self.feed.rows(), &self.view);
        let key = |line: &TopLine<'_>| match line {
            TopLine::Row { row, .. } => Some(row.key.clone()),
            TopLine::Client { .. } | TopLine::Others | TopLine::Process { .. } => None,
        };
        lines.iter().filter_map(key).collect()
    }

    /// Moves the selection by this many rows.
    fn step(&mut self, by: isize) {
        let keys = self.shown();
        let at = self.selected.as_ref().and_then(|selected| keys.iter().position(|key| key == selected));
        let last = keys.len().saturating_sub(1);
        self.place = at.unwrap_or(self.place).saturating_add_signed(by).min(last);
        self.selected = keys.get(self.place).cloned();
    }

    /// Selects the row at the same place if the selected one is not shown any more.
    fn select_near(&mut self) {
        self.step(0);
    }

    fn look(&mut self, look: FeedLook) {
        self.memory.note(&look.rows, look.at_ms);
        let before: HashMap<String, (String, String)> =
            self.feed.rows().iter().map(|row| (row.key.clone(), (row.name.clone(), row.state.clone()))).collect();
        let at_ms = look.at_ms;
        if let Some(change) = self.feed.take(look).filter(|document| document.kind == DocumentKind::Change) {
            let ended: Vec<&str> = change.ended.iter().map(|receipt| &*receipt.run).collect();
            let has_receipt = |key: &str| key.strip_prefix("run:").is_some_and(|run| ended.contains(&run));
            let mut texts: Vec<String> = change.added.iter().map(began).collect();
            let states = change.changed.iter().filter_map(|row| {
                let (_, old) = before.get(&row.key)?;
                (*old != row.state).then(|| format!("{}: {old}, now {}", titled(row), row.state))
            });
            texts.extend(states);
            let gone = change.removed.iter().filter(|key| !has_receipt(key));
            texts.extend(gone.filter_map(|key| Some(format!("{} is gone", before.get(key)?.0))));
            let receipts = change.ended.iter().map(|receipt| message::receipt_line(receipt).shown(false).into_owned());
            texts.extend(receipts);
            texts.into_iter().for_each(|text| self.events.push_front(EventLine { at_ms, text }));
            self.events.truncate(EVENTS);
        }
        self.select_near();
        if let Mode::Confirm { key, .. } = &self.mode
            && self.row(key).is_none()
        {
            self.mode = Mode::List;
            self.notice = Some("it has ended meanwhile".to_owned());
        }
    }

    fn explain(&mut self) -> Option<Effect> {
        let row = self.row(self.selected.as_ref()?)?;
        let (key, title) = (row.key.clone(), titled(row));
        let pid = row.root.map(|root| root.pid).or_else(|| row.processes.first().map(|process| process.pid));
        let mut lines = facts(row);
        if pid.is_some() {
            lines.push("asking leash why it is alive...".to_owned());
        }
        self.mode = Mode::Details { key: key.clone(), title, lines, scroll: 0 };
        pid.map(|pid| Effect::Explain { key, pid })
    }

    fn logs(&mut self) -> Option<Effect> {
        let row = self.row(self.selected.as_ref()?)?;
        let Some(word) = row.run.clone().or_else(|| row.session.clone()) else {
            self.notice = Some("leash does not keep the stderr of servers that other programs started".to_owned());
            return None;
        };
        let (key, title) = (row.key.clone(), format!("stderr of {}", titled(row)));
        self.mode = Mode::Details { key: key.clone(), title, lines: vec!["reading...".to_owned()], scroll: 0 };
        Some(Effect::Logs { key, word })
    }

    /// Asks before something is ended.
    fn ask(&mut self, remedy: RowRemedy) {
        let Some(row) = self.selected.as_ref().and_then(|key| self.row(key)) else { return };
        let refusal = match (remedy, row.remedy) {
            _ if self.read_only => Some("this is --read-only: nothing is ended".to_owned()),
            (wanted, possible) if wanted == possible => None,
            (RowRemedy::End, RowRemedy::Reap) => Some("it is an orphan of another program: r ends it".to_owned()),
            (RowRemedy::End, _) if row.kind == RowKind::Other => {
                Some("another program started it: leash does not end it".to_owned())
            }
            (RowRemedy::End, _) => Some("its gateway ends it".to_owned()),
            _ => Some("it is not proved to be an orphan: Enter shows why".to_owned()),
        };
        if refusal.is_some() {
            self.notice = refusal;
            return;
        }
        let members: Vec<&FeedRow> = match row.kind {
            RowKind::Session => self.feed.rows().iter().filter(|member| member.session == row.session).collect(),
            _ => vec![row],
        };
        let name = titled(row);
        let effect = match (row.root, &row.run, &row.session) {
            (Some(root), _, _) if row.kind == RowKind::Other => Effect::Reap { root, name: name.clone() },
            (_, Some(run), _) => Effect::End { target: Target::Run(run.clone()), name: name.clone() },
            (_, None, Some(session)) => Effect::End { target: Target::Session(session.clone()), name: name.clone() },
            _ => return,
        };
        self.mode = Mode::Confirm { key: row.key.clone(), question: question(row, &members, &name), effect };
    }
}

/// The name of a row with its session or its process.
fn titled(row: &FeedRow) -> String {
    match (&row.session, row.root) {
        (Some(session), _) if *session != row.name => format!("{} [{}]", row.name, short(session)),
        (Some(_), _) => row.name.clone(),
        (None, Some(root)) => format!("{} (pid {})", row.name, root.pid),
        (None, None) => row.name.clone(),
    }
}

fn began(row: &FeedRow) -> String {
    match row.kind {
        RowKind::Other => format!("{}: {}, not under leash", titled(row), row.state),
        _ => format!("{} began", titled(row)),
    }
}

/// What ends: sessions, processes and memory.
fn question(row: &FeedRow, members: &[&FeedRow], name: &str) -> Vec<String> {
    let processes: Vec<_> = members.iter().flat_map(|member| &member.processes).collect();
    let memory: u64 = processes.iter().map(|process| process.memory_bytes).sum();
    let (what, verb) = match row.kind {
        RowKind::Other => ("the orphan", "Reap"),
        RowKind::Session => ("the session", "End"),
        _ => ("the server", "End"),
    };
    let mut lines = vec![format!("{verb} {what} {name}?"), String::new()];
    if let Some(client) = &row.client {
        lines.push(format!("It works for {client}."));
    }
    if row.kind == RowKind::Session {
        let servers = members.iter().filter(|member| member.kind != RowKind::Session).count();
        lines.push(format!("It has {}.", message::counted(servers, "member")));
    }
    lines.push(format!("This ends {} and frees {}:", message::processes(processes.len()), bytes(memory)));
    let named = processes.iter().take(NAMED).map(|process| format!("  {} {}", process.pid, process.command));
    lines.extend(named);
    if processes.len() > NAMED {
        lines.push(format!("  and {} more", processes.len() - NAMED));
    }
    lines
}

/// What the feed knows about a row.
fn facts(row: &FeedRow) -> Vec<String> {
    let fact = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}: {value}"));
    let containment = row.containment.map(|containment| format!("containment: {}", containment.name()));
    let facts = [
        fact("session", &row.session),
        fact("run", &row.run),
        fact("client", &row.client),
        fact("owner", &row.owner),
        fact("url", &row.url),
        containment,
    ];
    facts.into_iter().flatten().chain([format!("state: {}", row.state), String::new()]).collect()
}

#[cfg(test)]
mod tests;
