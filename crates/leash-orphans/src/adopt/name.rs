//! The name under which `leash run` lists a server: the name of its entry, or one derived from it that leash and every
//! client accept.

use leash_model::limits::LABEL_LENGTH;

/// The name of a server for `--name`. `others` are the names of all entries of the file: a derived name never equals
/// one of them.
pub(super) fn name_for(name: &str, others: &[&str]) -> String {
    if (1..=LABEL_LENGTH).contains(&name.len()) && name.chars().all(is_plain) {
        return name.to_owned();
    }
    let hash = hash(name.as_bytes());
    // Only a file that was made for this purpose contains such a name; then the number makes it different.
    (0_u64..)
        .map(|number| {
            let end = format!("-{:016x}", hash.wrapping_add(number));
            format!("{}{end}", beginning(name, LABEL_LENGTH - end.len()))
        })
        .find(|made| !others.contains(&made.as_str()))
        .unwrap_or_default()
}

/// True if a character stays unchanged in an argument. Clients replace `${NAME}`, `$NAME`, `{env:NAME}` and `%NAME%`
/// in arguments, a NUL ends an argument, and control characters and line ends are not allowed in a name.
fn is_plain(letter: char) -> bool {
    !letter.is_control() && !matches!(letter, '$' | '{' | '}' | '%' | '`' | '\\' | '\u{2028}' | '\u{2029}')
}

/// The beginning of a name with every other character replaced.
fn beginning(name: &str, most: usize) -> String {
    let mut text = String::new();
    for letter in name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }) {
        if text.len() + letter.len_utf8() > most {
            break;
        }
        text.push(letter);
    }
    if text.is_empty() { "server".to_owned() } else { text }
}

/// FNV-1a, 64 bits: the same on every machine and in every version.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_run_accepts_are_kept() {
        for name in ["github", "my server", "a/b", "größe", "-x", "=", &"x".repeat(LABEL_LENGTH)] {
            assert_eq!(name_for(name, &[]), name);
        }
    }

    #[test]
    fn invalid_names_become_valid_and_stay_different() {
        let long = ["x".repeat(LABEL_LENGTH + 1), "x".repeat(LABEL_LENGTH + 2), "ü".repeat(200)];
        let names = ["", "a\0b", "a\nb", "a\u{1b}b", "${HOME}", "$HOME", "{env:HOME}", "a\u{85}b", "a-b"];
        let all: Vec<&str> = names.into_iter().chain(long.iter().map(String::as_str)).collect();
        let made: Vec<String> = all.iter().map(|name| name_for(name, &all)).collect();
        for (at, one) in made.iter().enumerate() {
            assert!((1..=LABEL_LENGTH).contains(&one.len()) && one.chars().all(is_plain), "{one:?}");
            assert!(!made[..at].contains(one), "{one} twice in {made:?}");
        }
        assert_eq!(made, all.iter().map(|name| name_for(name, &all)).collect::<Vec<_>>());
    }

    #[test]
    fn a_derived_name_differs_from_all_entries() {
        let made = name_for("a\nb", &[]);
        assert_ne!(name_for("a\nb", &[&made]), made);
    }
}
