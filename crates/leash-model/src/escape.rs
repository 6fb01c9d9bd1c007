//! Escapes text from other programs (names, command lines, labels, paths, responses) for a terminal: a process may
//! choose any name, and root lists the processes of all users.

use std::borrow::Cow;

/// Escapes a text as one line: no character moves the cursor, ends the line, or changes the text direction.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful)
}

/// Escapes a page of several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter != '\n' && is_harmful(letter))
}

/// Escapes a line in which tabs are part of the text: of a log, or of a user's file.
pub fn tabbed(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter != '\t' && is_harmful(letter))
}

/// Escapes a text as one line and cuts it to `most` bytes: for a name that another program chose.
pub fn name(text: &str, most: usize) -> String {
    // Cut before and after: an escaped letter has up to ten bytes.
    let mut shown = line(&text[..text.floor_char_boundary(most)]).into_owned();
    if text.len() > most || shown.len() > most {
        shown.truncate(shown.floor_char_boundary(most.saturating_sub("...".len())));
        shown.push_str("...");
    }
    shown
}

fn escaped(text: &str, is_harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_harmful(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// Control characters (C0, DEL, C1 with NEL), line and paragraph separators, invisible characters, and characters that
/// change the text direction.
fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(letter, '\u{61c}' | '\u{ad}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn harmful_letters_are_spelled_out() {
        let cases = [
            ("plain größe 日本 a\\b", "plain größe 日本 a\\b"),
            ("a\nb\tc\rd", r"a\nb\tc\rd"),
            ("\u{1b}[2J\u{7}\u{7f}", r"\u{1b}[2J\u{7}\u{7f}"),
            ("\u{9b}31m\u{85}", r"\u{9b}31m\u{85}"),
            ("\u{2028}\u{2029}\u{202e}\u{2066}", r"\u{2028}\u{2029}\u{202e}\u{2066}"),
            ("\u{200b}\u{200f}\u{feff}", r"\u{200b}\u{200f}\u{feff}"),
        ];
        for (text, shown) in cases {
            assert_eq!(line(text), shown);
        }
        assert_eq!(lines("a\n\u{1b}b"), "a\n\\u{1b}b");
        assert_eq!(tabbed("a\r\tb\u{1b}"), "a\\r\tb\\u{1b}");
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(name("claude", 6), "claude");
        assert_eq!(name("claude-code", 6), "cla...");
        assert_eq!(name("\u{1b}\u{1b}\u{1b}", 9), r"\u{1b}...");
        assert_eq!(name("äöü", 5), "ä...");
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left(text in ".{0,40}") {
            prop_assert!(!line(&text).contains(is_harmful));
            prop_assert!(name(&text, 12).len() <= 12);
        }
    }
}
