//! The mistakes of texts that are not JSON, have the wrong type or have no servers, and their positions.

use proptest::prelude::*;

use super::{check, environment};
use crate::config::read;

#[test]
fn a_mistake_names_its_file_line_and_column() {
    let text = r#"{
  "mcpServers": {
    "files": {
      "command": "npx",
      "leash": {"idel": "30m", "grace": "2"}
    }
  }
}"#;
    let mistakes = read(text, "leash.json", &environment).expect_err("two mistakes");
    let expected = r#"leash.json:5:17: unknown key `idel` in server `files`
  hint: did you mean `idle`?
leash.json:5:41: `grace` in server `files`: `2` has no unit
  hint: write a number and a unit, as in "500ms", "30s", "30m", "12h" or "7d""#;
    assert_eq!(mistakes.to_string(), expected);
}

#[test]
fn columns_are_characters() {
    check(
        "{\"mcpServers\": {\"a\": {\"command\": \"\u{e4}\u{1f600}\", §\"commnad\": 1}}}",
        &["unknown key `commnad` in server `a` | did you mean `command`?"],
    );
}

#[test]
fn a_byte_order_mark_is_ignored() {
    assert!(read("\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"c\"}}}", "f", &environment).is_ok());
}

#[test]
fn a_text_that_is_not_json_is_refused_with_a_hint() {
    let empty =
        r#"this is not JSON: EOF while parsing a value | the file is empty; it needs at least `{"mcpServers": {...}}`"#;
    check("§", &[empty]);
    check("\n \n§", &[empty]);
    for (text, told) in [
        ("{\n  §/* mine\n}", "key must be a string | JSON has no comments: remove them"),
        ("§# mine\n{}", "expected value | JSON has no comments: remove them"),
        ("{\"a\": [1,§,]}", "expected value | correct the file at this place"),
        ("{§'a': 1}", "key must be a string | JSON has double quotes only"),
        ("{\"a\" §1}", "expected `:` | correct the file at this place"),
        ("{\"\u{e4}\u{e4}\" §1}", "expected `:` | correct the file at this place"),
        ("{\"a\": 1\n§", "EOF while parsing an object | correct the file at this place"),
        ("{} §x", "trailing characters | correct the file at this place"),
    ] {
        check(text, &[&format!("this is not JSON: {told}")]);
    }
}

#[test]
fn comments_and_trailing_commas_are_accepted() {
    check(
        "// mine\n{\"mcpServers\": {\"a\": {\"command\": \"c\", /* of ü */ §\"arg\": [1,],},},}",
        &["unknown key `arg` in server `a` | did you mean `args`?"],
    );
    check("{\"mcpServers\": {\"a\": {\"command\": \"c // no\", \"args\": [\"/*\", \"x\",], }, // b\n}}", &[]);
}

#[test]
fn values_that_must_be_objects_are_checked() {
    check("§[]", &["the file must be an object, not an array"]);
    check(" §3", &["the file must be an object, not a number"]);
    check(
        r#"{"mcpServers": §[],
            "leash": §true}"#,
        &["`mcpServers` must be an object, not an array", "`leash` must be an object, not a boolean"],
    );
    check(r#"{"mcpServers": {"a": §"npx"}}"#, &["server `a` must be an object, not a text"]);
    check(
        r#"{"mcpServers": {"a": {"command": "c", "leash": §"1m"}}}"#,
        &["`leash` in server `a` must be an object, not a text"],
    );
}

#[test]
fn a_file_without_servers_is_refused() {
    check(r#"{§"mcpServers": {}}"#, &["there are no servers | a gateway needs at least one server"]);
    check(
        r#"{§"mcpServers": {"a": {"disabled": true}}}"#,
        &["every server is switched off | a gateway needs at least one server"],
    );
    for text in ["§{}", "\n §{\"mcpServers\": null}", "§{\"leash\": {}}"] {
        check(
            text,
            &[r#"the file has no `mcpServers` | a server is written as `{"mcpServers": {"NAME": {"command": ...}}}`"#],
        );
    }
}

#[test]
fn unknown_keys_at_top_level_are_refused_with_a_hint() {
    check(r#"{§"servers": {"a": {}}}"#, &["unknown key `servers` in the file | call it `mcpServers`"]);
    check(
        r#"{"mcpServers": {"a": {"command": "c"}}, "$schema": "x", "inputs": [],
            §"mcpServer": 1, §"foo": 2, §"idle": "1s", §"web": {"url": "http://h"}}"#,
        &[
            "unknown key `mcpServer` in the file | did you mean `mcpServers`?",
            "unknown key `foo` in the file",
            r#"unknown key `idle` in the file | write it into `leash`: `"leash": {"idle": ...}`"#,
            r#"unknown key `web` in the file | write it into `mcpServers`: `{"mcpServers": {"web": ...}}`"#,
        ],
    );
}

#[test]
fn a_key_that_is_given_twice_is_refused() {
    check(
        r#"{"mcpServers": {
            "a": {"command": "c"},
            §"a": {"command": "c",
                "args": [], §"args": []},
            §"\u0061": {"command": "d"}}}"#,
        &[
            "`a` is given twice in `mcpServers` | the first one is on line 2; remove one of them",
            "`args` is given twice in server `a` | the first one is on line 4; remove one of them",
            "`a` is given twice in `mcpServers` | the first one is on line 2; remove one of them",
        ],
    );
}

#[test]
fn half_a_surrogate_pair_is_refused() {
    check(
        r#"{"mcpServers": {"a": {"command": §"\ud800"}, §"\ud800": 1}}"#,
        &["`command` in server `a` is not a valid text", "a key in `mcpServers` is not a valid text"],
    );
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in ".*") {
        let _ = read(&text, "f", &environment);
    }

    #[test]
    fn a_mistake_of_any_cut_text_has_a_position_in_the_text(cut in 0usize..EXAMPLE.len()) {
        let text = &EXAMPLE[..cut];
        let mistakes = read(text, "f", &environment).expect_err("half a file");
        let mistake = &mistakes.all()[0];
        prop_assert!(mistake.line >= 1 && mistake.line <= text.lines().count().max(1) + 1);
        prop_assert!(mistake.column >= 1);
    }

    #[test]
    fn any_value_in_any_field_is_read_without_a_panic(field in 0usize..FIELDS.len(), value in VALUE) {
        let name = FIELDS[field];
        for text in [
            format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"c\", {name:?}: {value}}}}}}}"),
            format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"c\", \"leash\": {{{name:?}: {value}}}}}}}}}"),
            format!("{{\"mcpServers\": {{\"a\": {{\"url\": \"http://h\"}}}}, \"leash\": {{{name:?}: {value}}}}}"),
        ] {
            if let Err(mistakes) = read(&text, "f", &environment) {
                prop_assert!(mistakes.all().iter().all(|mistake| !mistake.what.contains("not JSON")), "{}", mistakes);
            }
        }
    }
}

const EXAMPLE: &str =
    "{\"mcpServers\": {\n\"a\": {\"command\": \"c\", \"args\": [\"${HOME}\"], \"leash\": {\"idle\": \"3s\"}}}}";

const FIELDS: [&str; 34] = [
    "command",
    "args",
    "env",
    "cwd",
    "type",
    "url",
    "headers",
    "disabled",
    "leash",
    "idle",
    "maxAge",
    "maxSessions",
    "maxSessionsPerClient",
    "grace",
    "linger",
    "initTimeout",
    "keepAlive",
    "keepAliveFailures",
    "revive",
    "owner",
    "replay",
    "contain",
    "require",
    "spare",
    "memory",
    "pids",
    "cpu",
    "listen",
    "token",
    "allowedHosts",
    "allowedOrigins",
    "maxBody",
    "drain",
    "takeover",
];

const VALUE: &str = "null|true|-?(0|[1-9][0-9]{0,30})|0\\.5|\"[a-z0-9:${}/#@.-]{0,8}\"|\\[\"[a-z]{0,3}\"\\]|\\[\\[\\]\\]|\\{\"[a-z]{0,3}\": \"[a-z$]{0,3}\"\\}";
