//! `${NAME}` and `${NAME:-default}`, by the rules of Claude Code's `.mcp.json`.
//!
//! The default is used only if the variable is not set; an empty variable is set. An inserted value is not expanded
//! again. `$NAME`, `$$`, `${}` and a `${` that is never closed are ordinary text. A variable that is not set and a
//! nested default are mistakes here; Claude Code would pass on a text that the user did not mean.

/// The reason that a text cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpandError {
    /// The variable is not set, and there is no default.
    NotSet(String),
    /// The text between the braces is not the name of a variable.
    NotAName(String),
    /// A default contains a variable.
    Nested(String),
}

impl ExpandError {
    pub(super) fn what(&self) -> String {
        match self {
            ExpandError::NotSet(name) => format!("variable `{name}` is not set"),
            ExpandError::NotAName(inner) => format!("`${{{inner}}}` names no variable"),
            ExpandError::Nested(inner) => format!("the default in `${{{inner}}}` is a variable itself"),
        }
    }

    pub(super) fn hint(&self) -> String {
        match self {
            ExpandError::NotSet(name) => {
                format!("set it before leash is started, or give a default: `${{{name}:-...}}`")
            }
            ExpandError::NotAName(inner) => match inner.strip_prefix("env:") {
                Some(name) if is_name(name) => format!("write `${{{name}}}`"),
                _ => "only `${NAME}` and `${NAME:-default}` are expanded; `$NAME` is left alone".to_owned(),
            },
            ExpandError::Nested(_) => "a default is taken as it is; use one variable, or a plain default".to_owned(),
        }
    }
}

/// Expands every variable in `text`, or returns all that cannot be expanded.
pub(super) fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, Vec<ExpandError>> {
    let (mut expanded, mut failed) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some((before, inner, after)) = next(rest) {
        expanded.push_str(before);
        match value(inner, variable) {
            Ok(value) => expanded.push_str(&value),
            Err(why) => failed.push(why),
        }
        rest = after;
    }
    expanded.push_str(rest);
    if failed.is_empty() { Ok(expanded) } else { Err(failed) }
}

/// The variables that [`expand`] looks up for `text`.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    let inner = std::iter::successors(next(text), |(_, _, after)| next(after)).map(|(_, inner, _)| inner);
    inner.map(|inner| inner.split_once(":-").map_or(inner, |(name, _)| name)).filter(|name| is_name(name))
}

/// The text before the next `${...}`, the text in it, and the text after it.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find("${")?;
        let inner = open + 2;
        let close = inner + text[inner..].find('}')?;
        if close > inner {
            return Some((&text[..open], &text[inner..close], &text[close + 1..]));
        }
        from = close;
    }
}

fn value(inner: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) {
        return Err(ExpandError::NotAName(inner.to_owned()));
    }
    if default.is_some_and(|default| default.contains("${")) {
        // The brace that ended `inner` belongs to the nested variable, so the whole text has one more.
        return Err(ExpandError::Nested(format!("{inner}}}")));
    }
    variable(name).or_else(|| default.map(str::to_owned)).ok_or_else(|| ExpandError::NotSet(name.to_owned()))
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/me".to_owned()),
            "EMPTY" => Some(String::new()),
            "REF" => Some("${HOME}".to_owned()),
            _ => None,
        }
    }

    fn check(text: &str, expected: &str) {
        let told = match expand(text, &environment) {
            Ok(expanded) => expanded,
            Err(failed) => failed.iter().map(|why| format!("! {}", why.what())).collect::<Vec<_>>().join(" "),
        };
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn variables_and_defaults_are_expanded() {
        check("${HOME}/x", "/home/me/x");
        check("a${HOME}b${HOME}", "a/home/meb/home/me");
        check("${NO:-else}", "else");
        check("${NO:-}", "");
        check("${NO:-a:-b}", "a:-b");
        check("${NO:-https://h/?a=$b}", "https://h/?a=$b");
        check("${HOME:-else}", "/home/me");
        check("\u{e4}${HOME}\u{e4}", "\u{e4}/home/me\u{e4}");
    }

    #[test]
    fn every_variable_is_named() {
        for (text, expected) in [
            ("plain $HOME ${} ${", &[][..]),
            ("${A}", &["A"]),
            ("x${A}${B:-c}y${A}", &["A", "B", "A"]),
            ("${env:A} ${1}", &[]),
        ] {
            assert_eq!(names(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn an_empty_variable_is_set() {
        check("${EMPTY}", "");
        check("${EMPTY:-else}", "");
    }

    #[test]
    fn values_are_not_expanded_again() {
        check("${REF}", "${HOME}");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in ["", "$HOME", "$$", "$", "${", "${}", "${HOME", "{HOME}", "a}b", "$ {HOME}"] {
            check(text, text);
        }
        check("$${HOME}", "$/home/me");
        check("${}${HOME}", "${}/home/me");
    }

    #[test]
    fn every_reference_that_cannot_be_expanded_is_reported() {
        check("${NO}", "! variable `NO` is not set");
        check("${NO} ${ALSO} ${HOME}", "! variable `NO` is not set ! variable `ALSO` is not set");
        check("${_R%/}", "! `${_R%/}` names no variable");
        check("${input:api-key}", "! `${input:api-key}` names no variable");
        check("${1}", "! `${1}` names no variable");
        check("${:-x}", "! `${:-x}` names no variable");
        check("${NO:-${HOME}}", "! the default in `${NO:-${HOME}}` is a variable itself");
        assert_eq!(ExpandError::NotAName("env:X".to_owned()).hint(), "write `${X}`");
    }

    proptest! {
        #[test]
        fn text_without_a_reference_is_unchanged(text in "[^$]*") {
            prop_assert_eq!(expand(&text, &environment), Ok(text));
        }

        #[test]
        fn any_text_is_expanded_without_a_panic(text in "[${}:A-Z-]{0,12}") {
            let _ = expand(&text, &environment);
        }
    }
}
