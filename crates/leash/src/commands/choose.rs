//! Resolves the words of a command line to sessions.

use leash_model::alive::{AliveSession, SessionMember};
use leash_tree::session::Target;

use crate::args::Pair;
use crate::output::ids;

/// A word that the user wrote for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// True if it may be the beginning of an id. A value from a variable is a whole id.
    pub(super) may_begin: bool,
}

/// The session or member with this id, or the only one whose id begins with the word. Names that users chose are not
/// abbreviated: `job-1` does not mean `job-10`. The error describes the problem with the word.
pub(super) fn by_word(alive: &[AliveSession], Word { text: word, may_begin }: &Word) -> Result<Target, String> {
    if alive.iter().any(|session| session.id == *word) {
        return Ok(Target::Session(word.to_owned()));
    }
    let members = || alive.iter().flat_map(|session| &session.members);
    // An upstream session of a gateway cannot be ended alone.
    let runs = || members().filter(|member| !member.is_upstream()).map(|member| &member.run);
    if runs().any(|run| run == word) {
        return Ok(Target::Run(word.to_owned()));
    }
    let unknown = || format!("no session `{word}` is alive");
    if !may_begin {
        return Err(unknown());
    }
    // Ids that a program made: those of runs and connections that joined no session, those of a gateway, and UUIDs.
    let is_made = |session: &&AliveSession| {
        let made = |member: &SessionMember| member.is_upstream() || member.run == session.id;
        session.held.is_some() || ids::is_made(&session.id) || session.members.iter().any(made)
    };
    let begins = |id: &&String| ids::begins(id, word);
    let sessions: Vec<&String> = alive.iter().filter(is_made).map(|session| &session.id).filter(begins).collect();
    // A run that is its own session is already counted there.
    let is_session = |run: &String| alive.iter().any(|session| session.id == *run);
    let runs: Vec<&String> = runs().filter(begins).filter(|run| !is_session(run)).collect();
    match (&sessions[..], &runs[..]) {
        ([], []) => Err(unknown()),
        ([session], []) => Ok(Target::Session((*session).clone())),
        ([], [run]) => Ok(Target::Run((*run).clone())),
        (sessions, runs) => {
            Err(ids::ambiguous(word, &sessions.iter().chain(runs).map(|id| id.as_str()).collect::<Vec<_>>()))
        }
    }
}

/// Every session that can be ended and has a member with all the labels, or has them itself.
pub(super) fn by_labels(alive: &[AliveSession], wanted: &[Pair]) -> Vec<Target> {
    let has_all = |session: &AliveSession| {
        let held = session.held.iter().map(|held| &held.labels);
        let mut labels = session.members.iter().map(|member| &member.labels).chain(held);
        labels.any(|labels| {
            wanted.iter().all(|Pair { key, value }| labels.get(key).is_some_and(|has| matches(value, has)))
        })
    };
    all(alive, has_all)
}

/// Every session that can be ended and that the caller wants.
pub(super) fn all(alive: &[AliveSession], is_wanted: impl Fn(&AliveSession) -> bool) -> Vec<Target> {
    let sessions = alive.iter().filter(|session| session.can_be_ended() && is_wanted(session));
    sessions.map(|session| Target::Session(session.id.clone())).collect()
}

/// True if a text matches a pattern in which `*` stands for any text, including none.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
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
    use std::path::PathBuf;

    use leash_model::alive::MemberKind;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn member(session: &str, run: &str, labels: &[(&str, &str)]) -> SessionMember {
        SessionMember {
            session: session.to_owned(),
            run: run.to_owned(),
            name: String::new(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            client: None,
            owners: Vec::new(),
            attendants: Vec::new(),
            abandoned: false,
            started_ms: 0,
            runtime_dir: PathBuf::new(),
            receipts: PathBuf::new(),
            kind: MemberKind::Connection { open: None },
        }
    }

    /// An upstream session that a gateway has open for a client.
    fn upstream(session: &str, abandoned: bool) -> SessionMember {
        let open = json!({ "session": session, "server": "", "url": "", "id": "", "started_ms": 0 });
        let kind = MemberKind::Upstream { open: serde_json::from_value(open).expect("an entry") };
        SessionMember { abandoned, kind, ..member(session, &format!("{session}.1"), &[]) }
    }

    fn some() -> Vec<AliveSession> {
        let held = json!({
            "id": "held", "state": "live", "owner": { "kind": "none" }, "labels": { "team": "blue" }, "startedAtMs": 1,
            "idleForMs": 0, "servers": [],
        });
        let members = vec![
            member("job-1", "aa1", &[("team", "red"), ("role", "web")]),
            member("job-1", "aa2", &[("team", "red")]),
            member("job-2", "bb1", &[("team", "blue"), ("role", "web")]),
            member("cc1", "cc1", &[]),
            upstream("dd1", false),
            upstream("ee1", true),
        ];
        AliveSession::join(members, vec![serde_json::from_value(held).expect("a session of a gateway")])
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
        check("dd", Some(session("dd1")));
        check("dd1.1", None);
        check("job-", None);
        check("aa", None);
        check("zz", None);
        assert_eq!(by_word(&some(), &word("aa")).unwrap_err(), "`aa` is the beginning of 2 sessions: aa1, aa2");
        assert_eq!(by_word(&some(), &word("zz")).unwrap_err(), "no session `zz` is alive");
    }

    #[test]
    fn a_chosen_name_is_not_abbreviated() {
        let one = AliveSession::join(vec![member("job-10", "dd1", &[])], Vec::new());
        assert_eq!(by_word(&one, &word("job-1")).unwrap_err(), "no session `job-1` is alive");
        assert_eq!(by_word(&one, &word("job-10")), Ok(session("job-10")));
        // A host made this id.
        let uuid = "0199a8f2-1c3e-7d10-9c55-0242ac120002";
        let one = AliveSession::join(vec![member(uuid, "dd1", &[])], Vec::new());
        assert_eq!(by_word(&one, &word("0199a8f2")), Ok(session(uuid)));
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
        let ids = all(&some(), |_| true);
        assert_eq!(ids.iter().map(Target::id).collect::<Vec<_>>(), ["job-1", "job-2", "cc1", "ee1", "held"]);
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
