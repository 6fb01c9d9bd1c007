//! The mistakes of one server.

use super::{check, check_server, check_terms};

const KNOWN: &str = "leash knows command, args, env, cwd, type, url, headers, disabled, enabled, leash";
const DURATION: &str = r#"write a number and a unit, as in "500ms", "30s", "30m", "12h" or "7d""#;
const SIZE: &str = r#"write a number and a unit, as in "64K", "4M" or "2G""#;

#[test]
fn names_that_do_not_fit_into_a_path_are_refused() {
    let hint = "it becomes its path, `/NAME/mcp`: at most 64 letters, digits, `.`, `_` and `-`, not only dots";
    check(
        r#"{"mcpServers": {
            §"My Server": {"command": "c"},
            §"": {"command": "c"},
            §"metrics": {"url": "http://h"}}}"#,
        &[
            &format!("`My Server` cannot be the name of a server | {hint}"),
            "the name of a server is empty | it becomes its path, `/NAME/mcp`",
            "a server cannot be called `metrics` | that is a path of the gateway itself; choose another name",
        ],
    );
}

#[test]
fn a_server_needs_either_a_command_or_a_url() {
    let neither = |server: &str, hint: &str| {
        let what = format!("server `a` has neither `command` nor `url` | {hint}");
        check(&format!(r#"{{"mcpServers": {{§"a": {server}}}}}"#), &[&what]);
    };
    neither("{}", "write what starts it (`command`, `args`) or where it is (`url`)");
    neither(r#"{"type": "sse"}"#, "its `type` needs a `url`");
    neither(r#"{"type": "stdio"}"#, "its `type` needs a `command`");
    check_server(
        r#"{"command": "c", §"url": "http://h"}"#,
        &[
            "server `a` has both `command` and `url` | a server is either started here (`command`) or reached elsewhere (`url`): remove one",
        ],
    );
    check_server(r#"{"command": "c", "url": null, "env": null}"#, &[]);
}

#[test]
fn a_type_must_be_known_and_fit_the_server() {
    check_server(
        r#"{"type": §"stdio", "url": "http://h"}"#,
        &[r#"server `a` has a `url`, but its `type` is "stdio" | write "http" (or "sse" for the old transport)"#],
    );
    check_server(
        r#"{"type": §"http", "command": "c"}"#,
        &[r#"server `a` has a `command`, but its `type` is an HTTP type | write "stdio", or leave it out"#],
    );
    check_server(
        r#"{"type": §"streamable_http", "url": "http://h"}"#,
        &["`type` in server `a`: `streamable_http` is unknown | did you mean `streamable-http`?"],
    );
    check_server(
        r#"{"type": §"ws", "url": "http://h"}"#,
        &["`type` in server `a`: `ws` is unknown | one of stdio, http, streamable-http, streamableHttp, sse"],
    );
    check_server(
        r#"{"type": §3, "url": "http://h"}"#,
        &["`type` in server `a` must be a text in double quotes, not a number"],
    );
}

#[test]
fn commands_args_env_and_cwd_are_checked() {
    for empty in ["", " ", "${EMPTY}"] {
        check_server(&format!(r#"{{"command": §"{empty}"}}"#), &["`command` in server `a` is empty"]);
    }
    check_server(
        r#"{"command": §["npx"]}"#,
        &["`command` in server `a` must be a text in double quotes, not an array"],
    );
    check_server(
        r#"{"command": "c", "args": §"-y x"}"#,
        &["`args` in server `a` must be an array of texts, not a text"],
    );
    check_server(
        r#"{"command": "c", "args": ["a",
            §3, §"b\u0000"]}"#,
        &[
            "`args` in server `a` must be a text in double quotes, not a number",
            "`args` in server `a` has a NUL character in it",
        ],
    );
    check_server(
        r#"{"command": "c", "env": {"A": §1, §"": "x", §"B=": "x"}}"#,
        &[
            "`A` in `env` of server `a` must be a text in double quotes, not a number",
            "`` in `env` of server `a` cannot be the name of a variable",
            "`B=` in `env` of server `a` cannot be the name of a variable",
        ],
    );
    check_server(
        r#"{"command": "c", "env": §[], "cwd": §""}"#,
        &["`env` in server `a` must be an object, not an array", "`cwd` in server `a` is empty"],
    );
}

#[test]
fn variables_that_cannot_be_expanded_are_mistakes() {
    let unset = |field: &str, name: &str| {
        format!(
            "{field}: variable `{name}` is not set | set it before leash is started, or give a default: `${{{name}:-...}}`"
        )
    };
    check_server(
        r#"{"command": §"${NO}", "args": ["${NO:-x}", §§"${A} ${B}"], "env": {"X": §"${C}"}, "cwd": §"${D}"}"#,
        &[
            &unset("`command` in server `a`", "NO"),
            &unset("`args` in server `a`", "A"),
            &unset("`args` in server `a`", "B"),
            &unset("`X` in `env` of server `a`", "C"),
            &unset("`cwd` in server `a`", "D"),
        ],
    );
    check_server(
        r#"{"url": §"http://${HOST}/", "headers": {"X": §"${input:key}", "Y": §"${env:KEY}"}}"#,
        &[
            &unset("`url` in server `a`", "HOST"),
            "`X` in `headers` of server `a`: `${input:key}` names no variable | only `${NAME}` and `${NAME:-default}` are expanded; `$NAME` is left alone",
            "`Y` in `headers` of server `a`: `${env:KEY}` names no variable | write `${KEY}`",
        ],
    );
}

#[test]
fn invalid_urls_are_refused_without_showing_them() {
    for (url, told) in [
        (
            "ws://${TOKEN}/",
            "the URL does not start with `http://` or `https://` | write it as in `https://example.com/mcp`",
        ),
        (
            "https://me:${TOKEN}@h/",
            r#"the URL contains a user name or a password | send them as a header: `"headers": {"Authorization": "Basic ${CREDENTIALS}"}`"#,
        ),
        (
            "https://h/#${TOKEN}",
            "the URL has a fragment (`#...`), which is never sent | remove the `#` and what follows; write `%23` if it is part of the path",
        ),
    ] {
        check_server(&format!(r#"{{"url": §"{url}"}}"#), &[&format!("`url` in server `a`: {told}")]);
    }
}

#[test]
fn invalid_headers_are_refused() {
    check_server(
        r#"{"url": "https://h/", "headers": {§"A B": "x", §"Host": "x", §"X": "${BROKEN}", "k": "1", §"K": "2"}}"#,
        &[
            "`headers` of server `a`: `A B` is not a header name | a name has letters, digits and `-`, as in `X-Api-Key`",
            "`headers` of server `a`: header `Host` cannot be set here | remove it: it belongs to each message, and leash takes care of it",
            "`headers` of server `a`: the value of header `X` has a character that a header cannot carry | use plain ASCII; a variable may hold a line break",
            "`headers` of server `a`: header `K` is given twice | names are the same in upper and lower case; keep one of them",
        ],
    );
    check_server(
        r#"{"url": "https://h/", "headers": {"k": "1", §"k": "2"}}"#,
        &["`k` is given twice in `headers` of server `a` | the first one is on line 2; remove one of them"],
    );
    check_server(
        r#"{"url": "https://h/", "headers": {"k": §1}}"#,
        &["`k` in `headers` of server `a` must be a text in double quotes, not a number"],
    );
}

#[test]
fn fields_of_the_other_kind_of_server_are_refused() {
    let of_commands =
        |name: &str| format!("`{name}` in server `a` is for a `command`, and this server has a `url` | remove it");
    check_server(
        r#"{"url": "http://h", §"args": ["x"], §"env": {"A": "b"}, §"cwd": "/"}"#,
        &[&of_commands("args"), &of_commands("env"), &of_commands("cwd")],
    );
    check_server(
        r#"{"command": "c", §"headers": {"A": "b"}}"#,
        &["`headers` in server `a` is for a `url`, and this server has a `command` | remove it"],
    );
    check_server(r#"{"url": "http://h", "args": [ ], "env": {}, "cwd": ""}"#, &[]);
    let of_trees = |name: &str| {
        format!(
            "`{name}` in server `a` is for commands, and this server has a `url` | remove it: leash starts no process for this server"
        )
    };
    check_server(
        r#"{"url": "http://h", "leash": {§"contain": "leaf", §"pids": 3, §"pressureStop": "5m"}}"#,
        &[&of_trees("contain"), &of_trees("pids"), &of_trees("pressureStop")],
    );
}

#[test]
fn revive_is_refused_with_sse() {
    check_server(
        r#"{"type": "sse", "url": "http://h", "leash": {§"revive": true}}"#,
        &[
            r#"`revive` in server `a` does not work with `type` "sse" | its session is one connection, which leash cannot open again for the client: remove it"#,
        ],
    );
    check_server(r#"{"type": "sse", "url": "http://h", "leash": {"revive": false}}"#, &[]);
}

#[test]
fn unknown_keys_are_refused_with_a_hint() {
    check_server(
        r#"{"command": "c", §"arg": [], §"idle": "3s", §"foo": 1, §"transport": "sse", §"envFile": ".env"}"#,
        &[
            "unknown key `arg` in server `a` | did you mean `args`?",
            r#"unknown key `idle` in server `a` | write it into `leash`: `"leash": {"idle": ...}`"#,
            &format!("unknown key `foo` in server `a` | {KNOWN}"),
            "unknown key `transport` in server `a` | call it `type`",
            "unknown key `envFile` in server `a` | leash reads no such file: write the variables into `env`, or start leash with them",
        ],
    );
    check_server(
        r#"{§"httpUrl": "http://h"}"#,
        &[r#"unknown key `httpUrl` in server `a` | write `"type": "http"` and `"url"`"#],
    );
    check_terms(
        r#"§"listen": "x", §"command": "c", §"max_age": "1s", §"colour": 1"#,
        &[
            "unknown key `listen` in server `a` | `listen` is a setting of the whole gateway: write it into the `leash` at top level",
            "unknown key `command` in server `a` | `command` is a key of a server: write it next to `leash`, not into it",
            "unknown key `max_age` in server `a` | did you mean `maxAge`?",
            "unknown key `colour` in server `a` | leash knows idle, abandoned, maxAge, maxSessions, maxSessionsPerClient, grace, linger, initTimeout, keepAlive, keepAliveFailures, revive, owner, replay, pressureStop, contain, require, spare, memory, pids, cpu",
        ],
    );
}

#[test]
fn keys_of_clients_are_accepted() {
    check_server(
        r#"{"command": "c", "alwaysAllow": [], "timeout": 3, "description": "x", "trust": true, "disabled": false}"#,
        &[],
    );
}

#[test]
fn mistakes_of_a_disabled_server_are_ignored() {
    check(
        r#"{"mcpServers": {
            "off": {"disabled": true, "command": "${NO}", "foo": 1},
            "also": {"enabled": false},
            "on": {"command": "c"}}}"#,
        &[],
    );
    check_server(
        r#"{"disabled": §"yes", "command": "c"}"#,
        &["`disabled` in server `a` must be `true` or `false`, not a text"],
    );
}

#[test]
fn invalid_durations_are_refused() {
    check_terms(
        r#""idle": §30, "maxAge": §"30",
            "grace": §"2 weeks", "linger": §"-1s", "initTimeout": §"367d""#,
        &[
            &format!("`idle` in server `a` must be a duration in double quotes, not a number | {DURATION}"),
            &format!("`maxAge` in server `a`: `30` has no unit | {DURATION}"),
            &format!("`grace` in server `a`: `2 weeks` has an unknown unit | {DURATION}"),
            &format!("`linger` in server `a`: `-1s` does not start with a whole number | {DURATION}"),
            "`initTimeout` in server `a`: `367d` is too long | at most 366d",
        ],
    );
    check_terms(
        r#""idle": §null, "grace": §"never""#,
        &[
            &format!("`idle` in server `a` must be a duration in double quotes, not null | {DURATION}"),
            &format!("`grace` in server `a`: `never` does not start with a whole number | {DURATION}"),
        ],
    );
}

#[test]
fn zero_is_refused_where_never_is_meant() {
    check_terms(
        r#""idle": §"0", "maxAge": §"0s", "keepAlive": §"0", "initTimeout": §"0""#,
        &[
            r#"`idle` in server `a` cannot be 0 | write "never" to switch it off"#,
            r#"`maxAge` in server `a` cannot be 0 | write "never" to switch it off"#,
            r#"`keepAlive` in server `a` cannot be 0 | write "never" to switch it off"#,
            "`initTimeout` in server `a` cannot be 0 | give the server some time to start",
        ],
    );
    check_terms(
        r#""idle": "never", "maxAge": "never", "keepAlive": "never", "grace": "0", "linger": "0", "replay": 0"#,
        &[],
    );
    check_terms(r#""keepAlive": "auto""#, &[]);
}

#[test]
fn invalid_counts_and_sizes_are_refused() {
    check_terms(
        r#""maxSessions": §0, "maxSessionsPerClient": §0, "keepAliveFailures": §1.5, "pids": §"3",
            "memory": §"2 apples", "replay": §-1"#,
        &[
            "`maxSessions` in server `a` must be a whole number, at least 1, not 0",
            "`maxSessionsPerClient` in server `a` must be a whole number, at least 1, not 0",
            "`keepAliveFailures` in server `a` must be a whole number, at least 1, not 1.5",
            "`pids` in server `a` must be a whole number, at least 1, not a text",
            &format!("`memory` in server `a`: unknown unit `apples`: use K, M, G or T | {SIZE}"),
            &format!("`replay` in server `a`: unknown unit `-1`: use K, M, G or T | {SIZE}"),
        ],
    );
    check_terms(
        r#""keepAliveFailures": §4294967296, "replay": §"2G", "memory": §true"#,
        &[
            "`keepAliveFailures` in server `a` must be a whole number, at least 1, not 4294967296",
            "`replay` in server `a` is too large | at most 1G",
            &format!("`memory` in server `a` must be a size, not a boolean | {SIZE}"),
        ],
    );
    check_terms(r#""memory": 1048576"#, &[]);
}

#[test]
fn unknown_words_are_refused() {
    check_terms(
        r#""owner": §"nobody", "revive": §"yes", "contain": §"docker", "require": §1"#,
        &[
            r#"`owner` in server `a`: `nobody` is not one of auto, traffic | "auto" finds the client's process where it can, "traffic" never looks for it"#,
            "`revive` in server `a` must be `true` or `false`, not a text",
            "`contain` in server `a`: `docker` is not one of sealed, unit, leaf, reaper, group",
            "`require` in server `a` must be a text in double quotes, not a number",
        ],
    );
    check_terms(
        r#""spare": ["adb", §"", §"/usr/bin/adb", §3]"#,
        &[
            "`spare` in server `a` has an empty text in it",
            r#"`spare` in server `a`: this is not the name of a program | write the name of the program as `ps` shows it, as in "gpg-agent""#,
            "`spare` in server `a` must be a text in double quotes, not a number",
        ],
    );
}

#[test]
fn terms_that_no_containment_can_meet_are_refused() {
    for (terms, why) in [
        (r#""contain": "group", "require": "leaf""#, "`group`: weaker than the required containment"),
        (r#""contain": "unit", "spare": ["adb"]"#, "`unit`: `spare` does not work in it"),
        (
            r#""require": "sealed", "memory": "1G""#,
            "`sealed`: limits of memory, processes and processor time need a cgroup",
        ),
    ] {
        let hint = "look at `contain`, `require`, `spare`, `memory`, `pids` and `cpu` together";
        check_server(
            &format!(r#"{{"command": "c", §"leash": {{{terms}}}}}"#),
            &[&format!("no containment is left for server `a`; {why} | {hint}")],
        );
    }
    check_terms(r#""contain": "leaf", "require": "reaper", "memory": "1G", "spare": ["adb"]"#, &[]);
}
