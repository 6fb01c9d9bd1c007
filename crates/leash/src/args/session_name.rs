//! A session's id as typed: text, and environment variables in braces, so that one line of configuration gives every
//! host session its own name.

use std::env::VarError;

use leash_model::id;

/// An id that may contain variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionName {
    pieces: Vec<NamePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePart {
    Text(String),
    Variable { name: String, default: Option<String> },
}

/// The reason why an id could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unresolved {
    pub(crate) text: String,
    pub(crate) hint: String,
}

impl SessionName {
    /// An id without variables.
    pub(crate) fn literal(id: String) -> SessionName {
        SessionName { pieces: vec![NamePart::Text(id)] }
    }

    /// Parses the id of a new session; an id without variables is checked here.
    pub(super) fn parse_id(text: &str) -> Result<SessionName, String> {
        let name = SessionName::parse(text)?;
        match &name.pieces[..] {
            [] => Err("it is empty".to_owned()),
            [NamePart::Text(text)] => id::check_session(text).map(|()| name),
            _ => Ok(name),
        }
    }

    /// Parses a word that may name a session: an id, or the beginning of one.
    pub(super) fn parse_word(text: &str) -> Result<SessionName, String> {
        super::values::short(text)?;
        SessionName::parse(text)
    }

    fn parse(text: &str) -> Result<SessionName, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let inner = from.strip_prefix('{').ok_or("a `}` has no `{` before it: write `}}` for a brace")?;
            let (inner, after) =
                inner.split_once('}').ok_or("a `{` is not closed: write {VARIABLE}, or `{{` for a brace")?;
            if !plain.is_empty() {
                pieces.push(NamePart::Text(std::mem::take(&mut plain)));
            }
            pieces.push(variable(inner)?);
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(NamePart::Text(plain));
        }
        Ok(SessionName { pieces })
    }

    /// The id, with variables from the environment.
    pub(crate) fn resolve(&self) -> Result<String, Unresolved> {
        let id = self.expand(&|name| std::env::var(name))?;
        match self.names().first() {
            // It was checked when it was parsed, or may be any word.
            None => Ok(id),
            Some(_) => self.check(id),
        }
    }

    /// The text with its variables replaced.
    fn expand(&self, lookup: &dyn Fn(&str) -> Result<String, VarError>) -> Result<String, Unresolved> {
        let mut id = String::new();
        for piece in &self.pieces {
            match piece {
                NamePart::Text(text) => id.push_str(text),
                // As in a shell, an empty variable counts as unset.
                NamePart::Variable { name, default } => match (lookup(name), default) {
                    (Ok(value), _) if !value.is_empty() => id.push_str(&value),
                    (Ok(_) | Err(VarError::NotPresent), Some(default)) => id.push_str(default),
                    (Ok(_), None) => return Err(missing(name, "is empty")),
                    (Err(VarError::NotPresent), None) => return Err(missing(name, "is not set")),
                    (Err(VarError::NotUnicode(_)), _) => return Err(missing(name, "is not text")),
                },
            }
        }
        Ok(id)
    }

    /// Checks that the result is an id. The error does not repeat it: a variable may hold a secret by mistake.
    fn check(&self, id: String) -> Result<String, Unresolved> {
        match id::check_session(&id) {
            Ok(()) => Ok(id),
            Err(why) => Err(Unresolved {
                text: format!("the session id from {} is not valid: {why}", self.names().join(" and ")),
                hint: "use a variable that holds an id, such as {CLAUDE_CODE_SESSION_ID}".to_owned(),
            }),
        }
    }

    /// True if a part of it comes from the environment.
    pub(crate) fn has_variables(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, NamePart::Variable { .. }))
    }

    /// The variables as written.
    fn names(&self) -> Vec<String> {
        let name = |piece: &NamePart| match piece {
            NamePart::Text(_) => None,
            NamePart::Variable { name, .. } => Some(format!("`{{{name}}}`")),
        };
        self.pieces.iter().filter_map(name).collect()
    }
}

fn missing(name: &str, how: &str) -> Unresolved {
    Unresolved {
        text: format!("the variable `{name}` in the session's id {how}"),
        hint: format!("set {name} where leash is started, or give a default: {{{name}:-main}}"),
    }
}

/// `NAME` or `NAME:-DEFAULT`.
fn variable(inner: &str) -> Result<NamePart, String> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if !starts || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return Err(format!("`{{{inner}}}` names no variable: write {{VARIABLE}} or {{VARIABLE:-default}}"));
    }
    if default.is_some_and(|default| default.contains('{')) {
        return Err(format!("the default of `{name}` has a brace in it: it is plain text"));
    }
    Ok(NamePart::Variable { name: name.to_owned(), default: default.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn expand(text: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let known: BTreeMap<&str, &str> = variables.iter().copied().collect();
        let lookup = |name: &str| known.get(name).map(|value| (*value).to_owned()).ok_or(VarError::NotPresent);
        let name = SessionName::parse(text)?;
        let id = name.expand(&lookup).map_err(|unresolved| unresolved.text)?;
        Ok(id)
    }

    fn check(text: &str, expected: &str) {
        let variables = [("A", "one"), ("B_2", "two"), ("EMPTY", ""), ("_", "under")];
        assert_eq!(expand(text, &variables).as_deref(), Ok(expected), "{text}");
    }

    fn refuse(text: &str, why: &str) {
        let error = expand(text, &[("EMPTY", "")]).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }

    #[test]
    fn variables_are_replaced() {
        check("plain", "plain");
        check("", "");
        check("{A}", "one");
        check("{_}", "under");
        check("{A}{B_2}", "onetwo");
        check("job-{A}.{B_2}@host", "job-one.two@host");
    }

    #[test]
    fn defaults_replace_unset_and_empty_variables() {
        check("{A:-x}", "one");
        check("{NONE:-x}", "x");
        check("{NONE:-}", "");
        check("{EMPTY:-x}", "x");
        check("{NONE:-a:-b}", "a:-b");
        check("{NONE:-x}-{A:-y}", "x-one");
    }

    #[test]
    fn a_doubled_brace_is_one_brace() {
        check("{{A}}", "{A}");
        check("{{{A}}}", "{one}");
        check("}}{{", "}{");
    }

    #[test]
    fn errors_name_the_missing_or_malformed_variable() {
        refuse("{NONE}", "`NONE` in the session's id is not set");
        refuse("{EMPTY}", "`EMPTY` in the session's id is empty");
        refuse("x{NONE}y{ALSO}", "`NONE`");
        refuse("{A", "not closed");
        refuse("A}", "no `{`");
        refuse("{}", "names no variable");
        refuse("{1A}", "names no variable");
        refuse("{A-B}", "names no variable");
        refuse("{ A }", "names no variable");
        refuse("{:-x}", "names no variable");
        refuse("{A:-{B}}", "has a brace");
        refuse("{${A}}", "names no variable");
    }

    #[test]
    fn the_result_is_an_id_or_an_error_without_the_value() {
        let name = SessionName::parse_id("{A}").expect("it is well formed");
        assert_eq!(name.check("job-1".to_owned()).as_deref(), Ok("job-1"));
        for bad in ["", "a b", "../x", "s3cret value", &"x".repeat(129)] {
            let unresolved = name.check(bad.to_owned()).expect_err(bad);
            assert!(unresolved.text.contains("`{A}`"), "{unresolved:?}");
            assert!(bad.is_empty() || !unresolved.text.contains(bad), "{unresolved:?}");
        }
        assert!(SessionName::parse_id("").is_err());
        assert!(SessionName::parse_id("a b").is_err());
        assert!(SessionName::parse_id("{{a}}").is_err(), "an id has no braces");
        assert!(SessionName::parse_word("a b").is_ok(), "an unknown session is reported later");
    }

    proptest! {
        /// Every text can be written so that it stands for itself.
        #[test]
        fn text_with_doubled_braces_stands_for_itself(text in ".{0,40}") {
            let written = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(expand(&written, &[]), Ok(text));
        }

        /// The text between two variables stays, whatever the values are: values are not expanded again.
        #[test]
        fn values_are_not_expanded_again(a in ".{1,20}", b in ".{1,20}", between in "[a-z.-]{0,10}") {
            let text = format!("<{{A}}{between}{{B:-x}}>");
            prop_assert_eq!(expand(&text, &[("A", &a), ("B", &b)]), Ok(format!("<{a}{between}{b}>")));
        }

        /// No text makes the parser panic, and every well-formed text can be expanded.
        #[test]
        fn any_text_is_parsed_or_refused(text in "[{}:A-C-]{0,12}") {
            if let Ok(name) = SessionName::parse(&text) {
                let expanded = name.expand(&|_| Ok("v".to_owned()));
                prop_assert!(expanded.is_ok());
            }
        }
    }
}
