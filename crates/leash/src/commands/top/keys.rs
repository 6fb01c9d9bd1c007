//! The events of the terminal as `leash top` knows them.

use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{Event, TopKey};

/// The meaning of an event; `None` if it has none.
pub(super) fn meaning(event: event::Event) -> Option<Event> {
    match event {
        event::Event::Key(key) if key.kind != KeyEventKind::Release => of_key(key).map(Event::Key),
        event::Event::Paste(text) => Some(Event::Paste(text)),
        _ => None,
    }
}

fn of_key(KeyEvent { code, modifiers, .. }: KeyEvent) -> Option<TopKey> {
    if modifiers.contains(KeyModifiers::CONTROL) {
        return (code == KeyCode::Char('c')).then_some(TopKey::Interrupt);
    }
    // A key with Alt is not the same key.
    if modifiers.intersects(KeyModifiers::ALT | KeyModifiers::META | KeyModifiers::SUPER) {
        return None;
    }
    Some(match code {
        KeyCode::Up => TopKey::Up,
        KeyCode::Down => TopKey::Down,
        KeyCode::PageUp => TopKey::PageUp,
        KeyCode::PageDown => TopKey::PageDown,
        KeyCode::Home => TopKey::First,
        KeyCode::End => TopKey::Last,
        KeyCode::Enter => TopKey::Enter,
        KeyCode::Esc => TopKey::Escape,
        KeyCode::Backspace => TopKey::Backspace,
        KeyCode::Char(letter) => TopKey::Char(letter),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: KeyCode, modifiers: KeyModifiers, expected: Option<TopKey>) {
        assert_eq!(of_key(KeyEvent::new(code, modifiers)), expected, "{code:?} {modifiers:?}");
    }

    #[test]
    fn key_with_a_modifier_is_another_key() {
        check(KeyCode::Char('e'), KeyModifiers::NONE, Some(TopKey::Char('e')));
        check(KeyCode::Char('G'), KeyModifiers::SHIFT, Some(TopKey::Char('G')));
        check(KeyCode::Char('e'), KeyModifiers::CONTROL, None);
        check(KeyCode::Char('e'), KeyModifiers::ALT, None);
        check(KeyCode::Char('c'), KeyModifiers::CONTROL, Some(TopKey::Interrupt));
        check(KeyCode::Home, KeyModifiers::NONE, Some(TopKey::First));
        check(KeyCode::F(1), KeyModifiers::NONE, None);
    }
}
