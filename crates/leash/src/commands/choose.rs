//! Resolves the words of a command line to sessions.

use std::collections::BTreeMap;

use leash_tree::session::{Joined, Target};

use crate::args::Pair;

/// A member of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) session: String,
    /// Its own id, if it can be ended alone.
    pub(super) run: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
}

impl From<&Joined> for Known {
    fn from(member: &Joined) -> Known {
        Known {
            session: member.session().to_owned(),
            run: Some(member.run().to_owned()),
            labels: member.labels().clone(),
        }
    }
}

/// A word that the user wrote for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// True if it may be the beginning of an id. A value from a variable is a whole id.
    pub(super) may_begin: bool,
}

/// The session or member with this id, or the only one whose id begins with the word. Names that users chose are not
/// abbreviated: `job-1` does not mean `job-10`. The error describes the problem with the word.
pub(super) fn by_word(known: &[Known], Word { text: word, may_begin }: &Word) -> Result<Target, String> {
    if known.iter().any(|one| one.session == *word) {
        return Ok(Target::Session(word.to_owned()));
    }
    let runs = || known.iter().filter_map(|one| one.run.as_deref());
    if runs().any(|run| run == word) {
        return Ok(Target::Run(word.to_owned()));
    }
    let unknown = || format!("no session `{word}` is alive");
    if !may_begin {
        return Err(unknown());
    }
    let begins = |ids: &mut dyn Iterator<Item = &str>| {
        let mut ids: Vec<String> = ids.filter(|id| id.starts_with(word.as_str())).map(str::to_owned).collect();
        ids.sort();
        ids.dedup();
        ids
    };
    // Ids that leash made: those of runs and connections that joined no session, and those of a daemon.
    let made = known.iter().filter(|one| one.run.as_ref().is_none_or(|run| *run == one.session));
    let sessions = begins(&mut made.map(|one| one.session.as_str()));
    // A run that is its own session is already counted there.
    let runs = begins(&mut runs().filter(|run| !known.iter().any(|one| one.session == *run)));
    match (&sessions[..], &runs[..]) {
        ([], []) => Err(unknown()),
        ([session], []) => Ok(Target::Session(session.clone())),
        ([], [run]) => Ok(Target::Run(run.clone())),
        (sessions, runs) => Err(format!("`{word}` is the beginning of {} sessions", sessions.len() + runs.len())),
    }
}

/// Every session with a member that has all the labels.
pub(super) fn by_labels(known: &[Known], wanted: &[Pair]) -> Vec<Target> {
    let has = |one: &Known, label: &Pair| one.labels.get(&label.key).is_some_and(|value| matches(&label.value, value));
    sessions(known.iter().filter(|one| wanted.iter().all(|label| has(one, label))))
}

/// Every session.
pub(super) fn all(known: &[Known]) -> Vec<Target> {
    sessions(known.iter())
}

fn sessions<'k>(known: impl Iterator<Item = &'k Known>) -> Vec<Target> {
    let mut targets = Vec::new();
    for one in known {
        let target = Target::Session(one.session.clone());
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets
}

/// True if a text matches a pattern in which `*` stands for any text, including none.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    // The earliest match of each piece leaves the most for the pieces that follow.
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(session: &str, run: &str, labels: &[(&str, &str)]) -> Known {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Known { session: session.to_owned(), run: Some(run.to_owned()), labels }
    }

    fn some() -> Vec<Known> {
        vec![
            known("job-1", "aa1", &[("team", "red"), ("role", "web")]),
            known("job-1", "aa2", &[("team", "red")]),
            known("job-2", "bb1", &[("team", "blue"), ("role", "web")]),
            known("cc1", "cc1", &[]),
            Known { session: "held".to_owned(), labels: [("team".to_owned(), "blue".to_owned())].into(), run: None },
        ]
    }

    fn word(text: &str) -> Word {
        Word { text: text.to_owned(), may_begin: true }
    }

    fn check(text: &str, target: Option<Target>) {
        assert_eq!(by_word(&some(), &word(text)).ok(), target, "{text}");
    }

    fn session(id: &str) -> Target {
        Target::Session(id.to_owned())
    }

    #[test]
    fn a_word_names_a_session_a_run_or_the_beginning_of_an_id() {
        check("job-1", Some(session("job-1")));
        check("aa2", Some(Target::Run("aa2".to_owned())));
        check("bb", Some(Target::Run("bb1".to_owned())));
        check("cc", Some(session("cc1")));
        check("cc1", Some(session("cc1")));
        check("hel", Some(session("held")));
        check("job-", None);
        check("aa", None);
        check("zz", None);
        assert_eq!(by_word(&some(), &word("aa")).unwrap_err(), "`aa` is the beginning of 2 sessions");
        assert_eq!(by_word(&some(), &word("zz")).unwrap_err(), "no session `zz` is alive");
    }

    #[test]
    fn a_chosen_name_is_not_abbreviated() {
        let one = [known("job-10", "dd1", &[])];
        assert_eq!(by_word(&one, &word("job-1")).unwrap_err(), "no session `job-1` is alive");
        assert_eq!(by_word(&one, &word("job-10")), Ok(session("job-10")));
        // A value from a variable is a whole id.
        let whole = |text: &str| Word { may_begin: false, ..word(text) };
        assert_eq!(by_word(&some(), &whole("cc")).unwrap_err(), "no session `cc` is alive");
        assert_eq!(by_word(&some(), &whole("cc1")), Ok(session("cc1")));
        assert_eq!(by_word(&some(), &whole("bb1")), Ok(Target::Run("bb1".to_owned())));
    }

    #[test]
    fn labels_must_all_match_one_member() {
        let check = |labels: &[&str], sessions: &[&str]| {
            let labels: Vec<Pair> = labels.iter().map(|label| label.parse().expect("a label")).collect();
            let found = by_labels(&some(), &labels);
            assert_eq!(found.iter().map(Target::id).collect::<Vec<_>>(), sessions, "{labels:?}");
        };
        check(&["team=red"], &["job-1"]);
        check(&["team=blue"], &["job-2", "held"]);
        check(&["team=*"], &["job-1", "job-2", "held"]);
        check(&["team=*", "role=w*b"], &["job-1", "job-2"]);
        check(&["team=red", "role=mail"], &[]);
        check(&["none=*"], &[]);
        assert_eq!(all(&some()).len(), 4);
    }

    #[test]
    fn a_star_matches_any_text() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "a", false),
            ("aa*aa", "aaa", false),
            ("*b*", "abc", true),
            ("*b*b", "ab", false),
            ("a*b*c", "a1b2b3c", true),
            ("a**c", "abc", true),
            ("?", "a", false),
            ("[a]", "[a]", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// The naive algorithm, which is slow.
    fn slowly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| slowly(rest, &text[skip..])),
            Some((byte, rest)) => text.first() == Some(byte) && slowly(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_naive_algorithm(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &text), slowly(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
