//! Finds secrets in single texts: arguments, addresses, values and comments. A text in which the client only inserts a
//! variable holds no secret.

use super::HIDDEN;
use crate::clients::text::Format;

/// Headers that contain no secret, whatever their value is.
pub(in crate::adopt) const HARMLESS: [&str; 4] = ["accept", "content-type", "user-agent", "mcp-protocol-version"];

/// Parts of names of query parameters that contain secrets.
const SECRET_PARAMETERS: [&str; 8] = ["key", "token", "secret", "password", "passwd", "auth", "sig", "credential"];

/// Endings of a word in a name whose value is a secret, as in `--api-key` or `clientSecret`.
const SECRET_WORDS: [&str; 11] = [
    "key",
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "credential",
    "auth",
    "authorization",
    "bearer",
];

/// Words in a name whose value is only the name or the place of a secret, as in `--token-env` or `key_file`.
const PLACES: [&str; 9] = ["env", "envs", "var", "vars", "file", "path", "name", "names", "url"];

/// Beginnings of keys that services give out. A key has a digit, too.
const PREFIXES: [&str; 27] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "lin_api_",
    "ntn_",
    "figd_",
    "tvly-",
];

/// True if the value of this name is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    let is_secret = |word: &&str| SECRET_WORDS.iter().any(|end| word.trim_end_matches('s').ends_with(end));
    words.iter().any(|word| is_secret(word) || *word == "pat") && !words.iter().any(|word| PLACES.contains(word))
}

/// True if a client would insert a variable into the text.
pub(in crate::adopt) fn refers(text: &str) -> bool {
    let dollar = text.match_indices('$').any(|(at, _)| {
        text[at + 1..].starts_with(|letter: char| letter == '{' || letter == '_' || letter.is_ascii_alphabetic())
    });
    dollar || text.contains("{env:") || text.contains("{file:")
}

/// The value of a variable or a header as it is shown.
pub(super) fn value(text: &str) -> String {
    match text {
        "" => String::new(),
        _ if refers(text) => tokens(text),
        _ => HIDDEN.to_owned(),
    }
}

/// The arguments of a program as they are shown.
pub(super) fn arguments(words: &[&str]) -> Vec<String> {
    let mut before = "";
    let mut shown = Vec::with_capacity(words.len());
    for word in words {
        shown.push(argument(before, word));
        before = word;
    }
    shown
}

/// One argument as it is shown. `before` is the one before it.
fn argument(before: &str, word: &str) -> String {
    let is_value = before.starts_with('-') && !before.contains('=') && !word.starts_with('-');
    match before {
        "-e" | "--env" | "-E" if is_value => return assigned(word, '='),
        "-H" | "--header" if is_value => return assigned(word, ':'),
        _ if is_value && is_secret_name(before) => return value(word),
        _ => {}
    }
    if let Some((name, rest)) = word.split_once('=').filter(|(name, _)| !name.contains([':', '/', '?'])) {
        let shown = match name {
            "--env" => assigned(rest, '='),
            "--header" => assigned(rest, ':'),
            // Names of variables, as in `--header-env=Authorization=VARIABLE`.
            _ if name.ends_with("-env") => tokens(rest),
            _ if is_secret_name(name) => value(rest),
            _ => argument("", rest),
        };
        return format!("{name}={shown}");
    }
    match word.split_once(':') {
        // A header in one word.
        Some((name, rest)) if is_secret_name(name) && !name.contains(['/', ' ']) && !rest.starts_with("//") => {
            assigned(word, ':')
        }
        // A whole command line, as for `sh -c`.
        _ if word.contains(' ') => credentials(&arguments(&word.split(' ').collect::<Vec<_>>()).join(" ")),
        _ => credentials(&url(word)),
    }
}

/// `NAME=VALUE` or `Name: value` as it is shown.
fn assigned(word: &str, sign: char) -> String {
    match word.split_once(sign) {
        Some((name, rest)) if HARMLESS.contains(&name.to_ascii_lowercase().as_str()) => format!("{name}{sign}{rest}"),
        Some((name, rest)) => {
            let blank = &rest[..rest.len() - rest.trim_start().len()];
            format!("{name}{sign}{blank}{}", value(rest.trim_start()))
        }
        None => tokens(word),
    }
}

/// Hides the word after `Bearer` or `Basic`, and tokens.
fn credentials(text: &str) -> String {
    for scheme in ["Bearer ", "bearer ", "Basic ", "basic "] {
        if let Some((before, rest)) = text.split_once(scheme) {
            let end = rest.find([' ', '"', '\'']).unwrap_or(rest.len());
            return format!("{}{scheme}{}{}", tokens(before), value(&rest[..end]), tokens(&rest[end..]));
        }
    }
    tokens(text)
}

/// An address as it is shown: without a password, and without secrets in its path and its parameters.
fn url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (before, query) = rest.split_once('?').map_or((rest, None), |(before, query)| (before, Some(query)));
    let (authority, path) = before.split_once('/').map_or((before, None), |(host, path)| (host, Some(path)));
    let mut shown = format!("{scheme}://{}", host(authority));
    if let Some(path) = path {
        let parts: Vec<&str> = path.split('/').map(|part| if looks_random(part) { HIDDEN } else { part }).collect();
        shown.push_str(&format!("/{}", parts.join("/")));
    }
    if let Some(query) = query {
        let pairs: Vec<String> = query.split('&').map(parameter).collect();
        shown.push_str(&format!("?{}", pairs.join("&")));
    }
    shown
}

/// The host of an address; of a user name and a password only the name.
fn host(authority: &str) -> String {
    match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, password)) => format!("{name}:{}@{host}", value(password)),
            None => format!("{}@{host}", value(user)),
        },
        None => authority.to_owned(),
    }
}

fn parameter(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, rest)) if is_secret_parameter(name) => format!("{name}={}", value(rest)),
        _ => pair.to_owned(),
    }
}

fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_PARAMETERS.iter().any(|secret| name.contains(secret))
}

/// True if a part of a path looks like a key rather than a word: long, with letters and digits mixed.
fn looks_random(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let letters = part.bytes().filter(u8::is_ascii_alphabetic).count();
    part.len() >= 20 && digits >= 4 && letters >= 4
}

/// True if an address, without its scheme, holds a secret.
pub(in crate::adopt) fn holds_secret(rest: &str) -> bool {
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = before.split_once('/').unwrap_or((before, ""));
    let is_named = |pair: &str| is_secret_parameter(pair.split('=').next().unwrap_or_default());
    authority.contains('@') || query.split('&').any(is_named) || path.split('/').any(looks_random)
}

/// Hides every part of a text that looks like a key.
fn tokens(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let (before, from) = rest.split_at(start);
        let (run, after) = from.split_at(from.find(|letter| !is_part(letter)).unwrap_or(from.len()));
        shown.push_str(before);
        shown.push_str(if is_token(run) { HIDDEN } else { run });
        rest = after;
    }
    shown + rest
}

/// True if a run of letters, digits, `-` and `_` looks like a key.
fn is_token(run: &str) -> bool {
    let digits = |part: &str| part.bytes().filter(u8::is_ascii_digit).count();
    let letters = |part: &str| part.bytes().filter(u8::is_ascii_alphabetic).count();
    let is_long = |part: &str| part.len() >= 32 || (part.len() >= 16 && digits(part) >= 2 && letters(part) >= 2);
    let is_issued = run.len() >= 12 && digits(run) > 0 && PREFIXES.iter().any(|prefix| run.starts_with(prefix));
    let parts: Vec<usize> = run.split('-').map(str::len).collect();
    let is_uuid = parts == [8, 4, 4, 4, 12] && run.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    is_issued || is_uuid || run.split(['-', '_']).any(is_long)
}

/// Hides texts in quotes. There are none between two values, except in parts of a file that leash does not parse
/// (TOML's arrays of tables).
fn quoted(code: &str) -> String {
    let mut shown = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(['"', '\'']) {
        let (before, from) = rest.split_at(start);
        let quote = &from[..1];
        shown.push_str(&format!("{before}{quote}{HIDDEN}{quote}"));
        rest = from[1..].split_once(quote).map_or("", |(_, after)| after);
    }
    shown + rest
}

/// The text between two values as it is shown: punctuation and comments. In a comment, a line ends after a name whose
/// value is a secret.
pub(super) fn comment(format: Format, text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        // In JSON, everything between two values that is not punctuation is a comment.
        let start = match format {
            Format::Toml | Format::Yaml => line.find('#').unwrap_or(line.len()),
            _ => 0,
        };
        let (code, comment) = line.split_at(start);
        let code = quoted(code);
        let end = comment.match_indices([':', '=']).find(|(at, _)| {
            let before = comment[..*at].trim_end_matches(['"', '\'', ' ']);
            let name = before.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && !"-_".contains(letter)).next();
            name.is_some_and(is_secret_name)
        });
        let Some((at, _)) = end else { return format!("{code}{}", tokens(comment)) };
        let newline = if line.ends_with('\n') { "\n" } else { "" };
        format!("{code}{} {HIDDEN}{newline}", tokens(&comment[..=at]))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognised() {
        for name in
            ["--api-key", "apikey", "GITHUB_TOKEN", "clientSecret", "--password", "Authorization", "pat", "X-Auth"]
        {
            assert!(is_secret_name(name), "{name}");
        }
        for name in
            ["--author", "keyboard", "bearer_token_env_var", "env_keys", "--key-file", "headers", "--name", "type"]
        {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn secrets_in_arguments_are_hidden() {
        for (words, shown) in [
            ("-y server --api-key abc --verbose", "-y server --api-key *** --verbose"),
            ("--api-key=abc --token ${TOKEN} --token-env NAME", "--api-key=*** --token ${TOKEN} --token-env NAME"),
            (
                "run -i --rm -e A=b -e GITHUB_TOKEN --env=C=d image",
                "run -i --rm -e A=*** -e GITHUB_TOKEN --env=C=*** image",
            ),
            (
                "postgresql://u:pw@h:5/db https://h/mcp?a=1&apiKey=2",
                "postgresql://u:***@h:5/db https://h/mcp?a=1&apiKey=***",
            ),
            ("--url=https://u@h/x https://h/s/ab12cd34ef56ab12cd34/sse", "--url=https://***@h/x https://h/s/***/sse"),
            ("ghp_0123456789abcdef 0123456789abcdef0123 sk-ant-api03-x1", "*** *** ***"),
            ("d4b9a2c4-7e1f-4f0e-9a55-0123456789ab", "***"),
            (
                "-y @modelcontextprotocol/server-everything@2026.8.31",
                "-y @modelcontextprotocol/server-everything@2026.8.31",
            ),
            (
                "--model claude-3-5-sonnet-20241022 /home/ana/My-2024-Documents",
                "--model claude-3-5-sonnet-20241022 /home/ana/My-2024-Documents",
            ),
            (
                "run --session-env=CLAUDE_CODE_SESSION_ID --name=auth -- npx",
                "run --session-env=CLAUDE_CODE_SESSION_ID --name=auth -- npx",
            ),
            (
                "--header-env=Authorization=LEASH_HEADER_AUTHORIZATION",
                "--header-env=Authorization=LEASH_HEADER_AUTHORIZATION",
            ),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(arguments(&words).join(" "), shown);
        }
        let header = |word: &str| arguments(&["--header", word])[1].clone();
        assert_eq!(header("Authorization: Bearer abc"), "Authorization: ***");
        assert_eq!(header("Authorization:${AUTH}"), "Authorization:${AUTH}");
        assert_eq!(header("Accept: text/plain"), "Accept: text/plain");
        assert_eq!(arguments(&["npx -y x --api-key abc -v"]), ["npx -y x --api-key *** -v"]);
        assert_eq!(arguments(&["curl -H 'X: Bearer abc' x"]), ["curl -H 'X: Bearer ***' x"]);
    }

    #[test]
    fn secrets_in_comments_are_hidden() {
        for (format, text, shown) in [
            (Format::Json, ", // the old key: abc\n  ", ", // the old key: ***\n  "),
            (Format::Json, " /* \"API_TOKEN\": \"x\" */ ", " /* \"API_TOKEN\": ***"),
            (Format::Json, ": ", ": "),
            (Format::Json, " // from npm: always\n", " // from npm: always\n"),
            (Format::Toml, " = # token = 1\n", " = # token = ***\n"),
            (Format::Toml, "\n[keys]\nkey = ", "\n[keys]\nkey = "),
            (Format::Toml, "\n[[x]]\nname = \"a b\"\nn = ''\n", "\n[[x]]\nname = \"***\"\nn = '***'\n"),
        ] {
            assert_eq!(comment(format, text), shown);
        }
    }
}
