//! The terminal in the state that a full screen needs, and back.

use std::io::{self, Stdout};
use std::panic;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal};

/// A full screen. Dropping it gives the terminal back as it was.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        // A release build aborts on a panic and drops nothing. The message must not vanish with the screen, either.
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            restore();
            before(about);
        }));
        terminal::enable_raw_mode()?;
        // From here on there is something to restore.
        let opened = execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        opened.map(|terminal| Screen { terminal }).inspect_err(|_| restore())
    }

    /// Draws a frame; only cells that have changed are written. A new size is noticed here.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. If it is closed, there is nothing to give back.
fn restore() {
    let _ = execute!(io::stdout(), DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}
