//! Ids: 128 random bits, in letters and digits that a double click selects and that people can read aloud.

use rustix::rand::{GetRandomFlags, getrandom};

/// Crockford's base 32: no i, l, o or u.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A new id of 26 characters.
pub fn random() -> String {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        // A signal may interrupt getrandom before the kernel's pool is ready at early boot: try again.
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or(0);
    }
    let number = u128::from_le_bytes(bytes);
    (0..26).map(|digit| char::from(ALPHABET[(number >> (digit * 5)) as usize & 31])).collect()
}

/// True if a text has the form of an id from [`random`].
pub fn is_random(text: &str) -> bool {
    text.len() == 26 && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

/// Checks that a text can be the id of a session. The error says what is wrong with it.
pub fn check_session(text: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.:@+".contains(c);
    match text {
        "" => Err("it is empty".to_owned()),
        _ if text.len() > 128 => Err("it is longer than 128 characters".to_owned()),
        _ if !text.chars().all(fine) => Err("only letters, digits and - _ . : @ + are allowed".to_owned()),
        // The id is a part of paths, in which these two have another meaning.
        "." | ".." => Err("it is only dots".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_long_and_different() {
        let (a, b) = (random(), random());
        assert_eq!(a.len(), 26);
        assert_ne!(a, b);
        assert_eq!(check_session(&a), Ok(()));
    }

    #[test]
    fn other_texts_are_not_random_ids() {
        assert!(is_random(&random()));
        for text in
            ["", "results", "0123456789abcdefghjkmnpqrs-", "0123456789ABCDEFGHJKMNPQRS", "0123456789abcdefghjkmnpqr"]
        {
            assert!(!is_random(text), "{text}");
        }
    }

    #[test]
    fn session_names_are_checked() {
        assert!(check_session("job-42@host:1").is_ok());
        for bad in ["", "a b", ".", "..", "../x", "a/b", "ü", &"x".repeat(129)] {
            assert!(check_session(bad).is_err(), "{bad}");
        }
    }
}
