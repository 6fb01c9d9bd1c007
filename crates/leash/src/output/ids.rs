//! Ids as people read and type them: ids that a program made are shown with their first characters, and accepted by a
//! unique beginning. Names that users chose are shown whole.

use std::collections::BTreeSet;

use leash_model::id;

/// The characters of a short id: enough to tell sessions apart, and not enough to use one as a credential.
const SHORT: usize = 8;

/// The most ids that an error lists.
const LISTED: usize = 10;

/// The id of a session, and the number that a gateway adds for each part of it.
fn split(id: &str) -> (&str, &str) {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match id.rfind('.') {
        Some(dot) if is_number(&id[dot + 1..]) => id.split_at(dot),
        _ => (id, ""),
    }
}

/// True for an id in the form of a UUID: hosts make such ids.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(is_hex)
}

/// True if a program made the id, and not a user.
pub(crate) fn is_made(id: &str) -> bool {
    let (whole, _) = split(id);
    id::is_random(whole) || is_uuid(whole)
}

/// An id that is shown alone. A UUID stays whole: those that a host makes within a minute may begin alike.
pub(crate) fn short(id: &str) -> String {
    let (whole, number) = split(id);
    if id::is_random(whole) { format!("{}{number}", &whole[..SHORT]) } else { id.to_owned() }
}

/// True if a word names the id by its beginning. For an id with a number, the beginning may be in front of the number.
pub(crate) fn begins(id: &str, word: &str) -> bool {
    let ((whole, number), (beginning, typed)) = (split(id), split(word));
    id.starts_with(word) || (!typed.is_empty() && typed == number && whole.starts_with(beginning))
}

/// The error about a beginning that several ids have.
pub(crate) fn ambiguous(word: &str, ids: &[&str]) -> String {
    let short = ShortIds::new(ids.iter().copied());
    let mut listed: Vec<String> = ids.iter().map(|id| short.of(id)).collect();
    listed.sort();
    listed.truncate(LISTED);
    listed.extend((ids.len() > LISTED).then(|| format!("and {} more", ids.len() - LISTED)));
    format!("`{word}` is the beginning of {} sessions: {}", ids.len(), listed.join(", "))
}

/// The ids that are shown or alive together: a short id is longer where two begin alike.
#[derive(Debug, Default)]
pub(crate) struct ShortIds(BTreeSet<String>);

impl ShortIds {
    /// The short forms among these ids.
    pub(crate) fn new<'a>(ids: impl IntoIterator<Item = &'a str>) -> ShortIds {
        ShortIds(ids.into_iter().map(|id| split(id).0.to_owned()).collect())
    }

    /// The short form of an id.
    pub(crate) fn of(&self, id: &str) -> String {
        let (whole, number) = split(id);
        if !is_made(id) {
            return id.to_owned();
        }
        // Its neighbours in the order begin most like it.
        let before = self.0.range(..whole.to_owned()).next_back();
        let after = self.0.range(whole.to_owned()..).find(|other| *other != whole);
        let alike = |other: &String| other.bytes().zip(whole.bytes()).take_while(|(one, two)| one == two).count();
        let shared = before.into_iter().chain(after).map(alike).max().unwrap_or_default();
        // A dash at the end would look like a mistake.
        let end = whole.len().min(SHORT.max(shared + 1));
        let end = if whole[..end].ends_with('-') { end + 1 } else { end };
        format!("{}{number}", &whole[..end])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: &str = "0123456789abcdefghjkmnpqrs";
    const TWO: &str = "0123456789zzzzzzzzzzzzzzzz";
    const UUID: &str = "0199a8f2-1c3e-7d10-9c55-0242ac120002";
    const NEXT: &str = "0199a8f2-1c3f-7d10-9c55-0242ac120002";

    #[test]
    fn made_ids_are_short_and_names_are_whole() {
        for (id, alone) in [
            (ONE, "01234567"),
            (&format!("{ONE}.12"), "01234567.12"),
            (UUID, UUID),
            ("red", "red"),
            ("a-long-name-of-a-user.1", "a-long-name-of-a-user.1"),
            ("0123456789", "0123456789"),
        ] {
            assert_eq!(short(id), alone);
        }
        let among = |ids: &[&str], id: &str| ShortIds::new(ids.iter().copied()).of(id);
        assert_eq!(among(&[ONE], ONE), "01234567");
        assert_eq!(among(&[ONE, TWO], ONE), "0123456789a");
        assert_eq!(among(&[ONE, TWO], &format!("{TWO}.3")), "0123456789z.3");
        assert_eq!(among(&[ONE, &format!("{ONE}.1"), &format!("{ONE}.2")], ONE), "01234567");
        assert_eq!(among(&[UUID], UUID), "0199a8f2");
        assert_eq!(among(&[UUID, NEXT], UUID), "0199a8f2-1c3e");
        assert_eq!(among(&["red", "redder"], "red"), "red");
        assert_eq!(among(&[ONE, "012345678"], ONE), "0123456789");
    }

    #[test]
    fn a_beginning_names_an_id() {
        let numbered = format!("{ONE}.12");
        for (id, word, expected) in [
            (ONE, "0123", true),
            (ONE, "1234", false),
            (&numbered, "0123", true),
            (&numbered, "0123.12", true),
            (&numbered, "0123.1", false),
            (ONE, "0123.12", false),
            ("v1.2", "v1", true),
        ] {
            assert_eq!(begins(id, word), expected, "{id} {word}");
        }
    }

    #[test]
    fn an_ambiguous_beginning_lists_the_ids() {
        assert_eq!(ambiguous("01", &[ONE, "01"]), "`01` is the beginning of 2 sessions: 01, 01234567");
        let many: Vec<String> = (10..22).map(|number| format!("job-{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(ambiguous("j", &many).ends_with("job-18, job-19, and 2 more"));
    }

    proptest! {
        #[test]
        fn a_short_id_names_one_id(ids in prop::collection::btree_set("[01]{12}", 1..8)) {
            let ids: Vec<String> = ids.into_iter().map(|id| format!("{id}zzzzzzzzzzzzzz")).collect();
            let short = ShortIds::new(ids.iter().map(String::as_str));
            for id in &ids {
                prop_assert_eq!(ids.iter().filter(|other| begins(other, &short.of(id))).count(), 1);
            }
        }
    }
}
