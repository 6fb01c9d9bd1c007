//! Tests of the whole reader, from text to settings or mistakes.

mod mistakes_of_gateways;
mod mistakes_of_servers;
mod mistakes_of_texts;
mod reference;
mod settings;

use super::{Settings, read};

/// The environment of these tests.
fn environment(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/me".to_owned()),
        "TOKEN" => Some("s3cret".to_owned()),
        "EMPTY" => Some(String::new()),
        "BROKEN" => Some("s3cret\n".to_owned()),
        _ => None,
    }
}

fn good(text: &str) -> Settings {
    read(text, "leash.json", &environment).unwrap_or_else(|mistakes| panic!("{mistakes}\nin {text}"))
}

/// Every mistake of a text, as `what | hint`. Each must be at its `§`, which is not part of the text.
fn check(marked: &str, expected: &[&str]) {
    let (mut text, mut places, mut line, mut column) = (String::new(), Vec::new(), 1, 1);
    for c in marked.chars() {
        if c == '§' {
            places.push((line, column));
            continue;
        }
        text.push(c);
        (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    let found = read(&text, "leash.json", &environment).map_or_else(|mistakes| mistakes.all().to_vec(), |_| Vec::new());
    let told: Vec<String> = found.iter().map(told).collect();
    assert_eq!(told, expected, "in {text}");
    assert_eq!(
        found.iter().map(|mistake| (mistake.line, mistake.column)).collect::<Vec<_>>(),
        places,
        "{told:#?}\nin {marked}"
    );
    assert!(!told.concat().contains("s3cret"), "a mistake shows a secret value: {told:?}");
}

fn told(mistake: &super::ConfigMistake) -> String {
    match &mistake.hint {
        Some(hint) => format!("{} | {hint}", mistake.what),
        None => mistake.what.clone(),
    }
}

/// The mistakes of one server, called `a`.
fn check_server(server: &str, expected: &[&str]) {
    check(&format!("{{\"mcpServers\": {{\n\"a\": {server}\n}}}}"), expected);
}

/// The mistakes of the terms of a command.
fn check_terms(terms: &str, expected: &[&str]) {
    check_server(&format!("{{\"command\": \"c\", \"leash\":\n{{{terms}}}}}"), expected);
}

/// The mistakes of the settings of a gateway.
fn check_gateway(leash: &str, expected: &[&str]) {
    check(&format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"c\"}}}}, \"leash\":\n{{{leash}}}}}"), expected);
}
