//! `leash top`.

mod keys;
mod lines;
mod memory_history;
mod screen;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Scope;
use std::time::Duration;

use leash_model::clock::{self, Moment, timeout_until};
use leash_tree::platform::linux;
use leash_tree::platform::poll::PollSet;
use ratatui::crossterm::event;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::process::Signal;

use self::screen::ScreenLooks;
use self::state::{Effect, Event, TopState};
use self::terminal::Screen;
use super::actions::{self, told};
use super::attach;
use super::feed::{Looker, follow};
use crate::args::Top;
use crate::exit_code;
use crate::output::printer::Printer;
use crate::output::terminal::{in_colour, is_utf8};

/// A window that changed its size is drawn again; the others end the command.
const SIGNALS: [Signal; 4] = [Signal::WINCH, Signal::INT, Signal::TERM, Signal::HUP];

/// Without any event the screen is drawn again after this time, because the data may have become old. A look comes
/// every second.
const REDRAW: Duration = Duration::from_millis(1500);

pub(crate) fn top(args: &Top) -> u8 {
    let printer = Printer::new(false);
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        printer.error_text(
            "`leash top` needs a terminal for its stdin and stdout",
            Some("`leash ps --watch` prints the same into a file or a pipe"),
        );
        return exit_code::USAGE;
    }
    match run(args, printer) {
        Ok(()) => exit_code::OK,
        Err(error) => {
            printer.error_text(format!("cannot use the terminal: {error}"), None);
            exit_code::LEASH_FAILED
        }
    }
}

/// Shows the screen until the user quits, and waits for ends that are under way.
fn run(args: &Top, printer: Printer) -> io::Result<()> {
    let signals = linux::listen(&SIGNALS.map(Signal::as_raw))?;
    // Written when an event is in the channel; closed by `stop`, which ends the looks.
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let (sender, receiver) = mpsc::channel();
    let looks = ScreenLooks { in_colour: in_colour(&io::stdout()), utf8: is_utf8() };
    std::thread::scope(|scope| {
        let (wake, stop) = (&wake, &stop);
        let look = sender.clone();
        let looker = Looker::new(!args.leashed, attach::socket(None));
        scope.spawn(move || {
            let stop = [(stop.as_fd(), PollFlags::IN)];
            follow(looker, &stop, |found| tell(&look, wake, Event::Look(found)));
        });
        let mut driver = TopDriver { state: TopState::new(args.read_only), signals, receiver, sender, wake, looks };
        let shown = Screen::open().and_then(|mut screen| driver.run(&mut screen, scope));
        let _ = rustix::io::write(stop, &1_u64.to_ne_bytes());
        if driver.state.pending > 0 {
            printer.note("waiting until what you ended is gone");
        }
        shown
    })
}

/// Sends an event to the driver. False if it has gone.
fn tell(sender: &Sender<Event>, wake: &OwnedFd, event: Event) -> bool {
    let is_sent = sender.send(event).is_ok();
    // The counter of an eventfd is never full here, because the driver reads it.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    is_sent
}

/// The sources of events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TopSource {
    Keys,
    Signals,
    Wake,
}

struct TopDriver<'w> {
    state: TopState,
    signals: OwnedFd,
    receiver: Receiver<Event>,
    sender: Sender<Event>,
    wake: &'w OwnedFd,
    looks: ScreenLooks,
}

impl<'w> TopDriver<'w> {
    fn run<'scope>(&mut self, screen: &mut Screen, scope: &'scope Scope<'scope, '_>) -> io::Result<()>
    where
        'w: 'scope,
    {
        loop {
            screen.draw(|frame| screen::draw(frame, &self.state, self.looks, clock::unix_ms()))?;
            let Some(events) = self.wait()? else { return Ok(()) };
            for event in events {
                match self.state.apply(event) {
                    Some(Effect::Quit) => return Ok(()),
                    Some(effect) => self.perform(effect, scope),
                    None => {}
                }
            }
        }
    }

    /// Waits for events; `None` if a signal or a closed terminal ends the command.
    fn wait(&mut self) -> io::Result<Option<Vec<Event>>> {
        let now = Moment::now();
        let mut set = PollSet::default();
        set.add(TopSource::Keys, rustix::stdio::stdin(), PollFlags::IN);
        set.add(TopSource::Signals, self.signals.as_fd(), PollFlags::IN);
        set.add(TopSource::Wake, self.wake.as_fd(), PollFlags::IN);
        let ready = set.wait(Some(&timeout_until(now + REDRAW, now))).unwrap_or_default();
        let mut events = Vec::new();
        for (source, answer) in ready {
            match source {
                TopSource::Keys if answer.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) => {
                    return Ok(None);
                }
                TopSource::Keys => {
                    while event::poll(Duration::ZERO)? {
                        events.extend(keys::meaning(event::read()?));
                    }
                }
                TopSource::Signals => {
                    while let Some(received) = linux::receive(self.signals.as_fd()) {
                        if received.signal != Signal::WINCH.as_raw() {
                            return Ok(None);
                        }
                    }
                }
                TopSource::Wake => {
                    let _ = rustix::io::read(self.wake, &mut [0; 8]);
                    events.extend(self.receiver.try_iter());
                }
            }
        }
        Ok(Some(events))
    }

    /// Performs an effect on a thread of its own, because it may take as long as the grace of a server.
    fn perform<'scope>(&self, effect: Effect, scope: &'scope Scope<'scope, '_>)
    where
        'w: 'scope,
    {
        let (sender, wake) = (self.sender.clone(), self.wake);
        let work = move || {
            let event = match effect {
                Effect::Quit => return,
                Effect::Explain { key, pid } => Event::Explained { key, lines: actions::explain(pid) },
                Effect::Logs { key, word } => Event::Logged { key, lines: actions::log_lines(&word) },
                Effect::End { target, name } => Event::Done(told(actions::end(target, attach::socket(None)), &name)),
                Effect::Reap { root, name } => Event::Done(told(actions::reap(root), &name)),
            };
            tell(&sender, wake, event);
        };
        if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
            // The user may try again.
            tell(&self.sender, self.wake, Event::Done(format!("cannot start a thread: {error}")));
        }
    }
}
