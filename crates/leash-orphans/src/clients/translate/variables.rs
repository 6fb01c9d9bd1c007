//! Variables in the texts of each client, in the way in which a gateway writes them: `${NAME}` and `${NAME:-default}`.

/// The variable that stands for a dollar sign that is not part of a variable. A gateway has no other way to write one
/// in front of a brace.
pub const DOLLAR: &str = "LEASH_DOLLAR_SIGN";

/// The value of [`DOLLAR`]; `None` for any other variable.
pub fn dollar(name: &str) -> Option<String> {
    (name == DOLLAR).then(|| "$".to_owned())
}

/// A text of this client's file as a gateway writes it.
pub(super) fn translated(client: &str, text: &str) -> String {
    match client {
        // `${NAME}` and `${NAME:-default}`, as a gateway does.
        "claude-code" | "copilot" => text.to_owned(),
        // cursor.com/docs/context/mcp, code.visualstudio.com/docs/reference/variables-reference.
        "cursor" | "vscode" | "vscode-insiders" | "windsurf" => {
            text.replace("${env:", "${").replace("${userHome}", "${HOME}")
        }
        "gemini" => braced(text),
        // `{env:NAME}` is replaced in the text of the file; a variable that is not set is empty.
        "opencode" => with_defaults(&literal(text)),
        _ => literal(text),
    }
}

/// A text without variables.
fn literal(text: &str) -> String {
    text.replace("${", &format!("${{{DOLLAR}}}{{"))
}

/// `$NAME` becomes `${NAME}`.
fn braced(text: &str) -> String {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        made.push_str(before);
        made.push('$');
        let end = after.find(|letter| !is_name(letter)).unwrap_or(after.len());
        let (name, behind) = after.split_at(end);
        if name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            made.push_str(&format!("{{{name}}}"));
            rest = behind;
        } else {
            rest = after;
        }
    }
    made + rest
}

/// `{env:NAME}` becomes `${NAME:-}`.
fn with_defaults(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{env:") {
        let Some((name, behind)) = after.split_once('}') else { break };
        made.push_str(&format!("{before}${{{name}:-}}"));
        rest = behind;
    }
    made + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_each_client_are_translated() {
        for (client, text, expected) in [
            ("claude-code", "${A:-b} $C", "${A:-b} $C"),
            ("cursor", "Bearer ${env:A} ${userHome}/x ${workspaceFolder}", "Bearer ${A} ${HOME}/x ${workspaceFolder}"),
            ("vscode", "${input:key}", "${input:key}"),
            ("gemini", "$A/${B}/$1$", "${A}/${B}/$1$"),
            ("opencode", "{env:A}-${B} {env:", "${A:-}-${LEASH_DOLLAR_SIGN}{B} {env:"),
            ("codex", "$A ${B}", "$A ${LEASH_DOLLAR_SIGN}{B}"),
        ] {
            assert_eq!(translated(client, text), expected);
        }
        assert_eq!((dollar(DOLLAR), dollar("HOME")), (Some("$".to_owned()), None));
    }
}
