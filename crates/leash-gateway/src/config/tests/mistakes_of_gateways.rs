//! The mistakes of the `leash` object at top level.

use super::{check, check_gateway};

#[test]
fn invalid_addresses_are_refused() {
    let hint = r#"write an IP address and a port, as in "127.0.0.1:5327" or "[::1]:5327""#;
    for wrong in ["5327", ":5327", "::1:5327", "127.0.0.1", "h:80", "localhost:x", "127.0.0.1:99999", ""] {
        check_gateway(
            &format!(r#""listen": §"{wrong}""#),
            &[&format!("`listen` in `leash`: `{wrong}` is not an address | {hint}")],
        );
    }
    for fine in ["localhost:80", "127.0.0.1:0", "[::1]:5327", "127.1.2.3:1", "[::ffff:127.0.0.1]:1"] {
        check_gateway(&format!(r#""listen": "{fine}""#), &[]);
    }
}

#[test]
fn an_exposed_address_needs_a_token() {
    let hint = r#"set `token` in `leash`, for example to "${LEASH_TOKEN}", or listen on 127.0.0.1"#;
    for listen in ["0.0.0.0:80", "[::]:80", "192.168.0.1:0"] {
        check_gateway(
            &format!(r#""listen": §"{listen}""#),
            &[&format!("{listen} can be reached from other machines, and there is no token | {hint}")],
        );
        check_gateway(&format!(r#""listen": "{listen}", "token": "${{TOKEN}}""#), &[]);
    }
}

#[test]
fn invalid_tokens_are_refused() {
    check_gateway(
        r#""listen": "0.0.0.0:1", "token": §"${NO}""#,
        &[
            "`token` in `leash`: variable `NO` is not set | set it before leash is started, or give a default: `${NO:-...}`",
        ],
    );
    check_gateway(
        r#""listen": "0.0.0.0:1", "token": §"${EMPTY}""#,
        &["`token` in `leash` is empty | remove it, or set the variable"],
    );
    check_gateway(
        r#""token": §"${BROKEN}""#,
        &[
            "`token` in `leash` has a character that a bearer token cannot have | use plain ASCII without spaces; a variable may hold a line break",
        ],
    );
}

#[test]
fn invalid_hosts_and_origins_are_refused() {
    let host = r#"write what `Host` will say, as in "gateway.example" or "gateway.example:8443""#;
    check_gateway(
        r#""allowedHosts": ["h.example", "h:1", "[::1]:1", §"https://h", §"*", §""]"#,
        &[
            &format!("`allowedHosts` in `leash`: `https://h` is not a host | {host}"),
            &format!("`allowedHosts` in `leash`: `*` is not a host | {host}"),
            "`allowedHosts` in `leash` has an empty text in it",
        ],
    );
    let origin = r#"write scheme and host without a path, as in "https://app.example""#;
    check_gateway(
        r#""allowedOrigins": ["https://h", "vscode-webview://x", §"https://h/", §"h", §"null"]"#,
        &[
            &format!("`allowedOrigins` in `leash`: `https://h/` is not an origin | {origin}"),
            &format!("`allowedOrigins` in `leash`: `h` is not an origin | {origin}"),
            &format!("`allowedOrigins` in `leash`: `null` is not an origin | {origin}"),
        ],
    );
    check_gateway(r#""allowedHosts": §"h""#, &["`allowedHosts` in `leash` must be an array of texts, not a text"]);
}

#[test]
fn invalid_limits_are_refused() {
    let duration = r#"write a number and a unit, as in "500ms", "30s", "30m", "12h" or "7d""#;
    check_gateway(
        r#""maxBody": §"0", "maxSessions": §0, "drain": §"x", "idle": §1"#,
        &[
            r#"`maxBody` in `leash`: `0` is out of range | write a number and a unit, as in "64K", "4M" or "2G""#,
            "`maxSessions` in `leash` must be a whole number, at least 1, not 0",
            &format!("`drain` in `leash`: `x` does not start with a whole number | {duration}"),
            &format!("`idle` in `leash` must be a duration in double quotes, not a number | {duration}"),
        ],
    );
}

#[test]
fn unknown_keys_are_refused_with_a_hint() {
    check_gateway(
        r#"§"Listen": "x", §"command": "c""#,
        &[
            "unknown key `Listen` in `leash` | did you mean `listen`?",
            "unknown key `command` in `leash` | `command` is a key of a server: write it next to `leash`, not into it",
        ],
    );
}

#[test]
fn mistakes_of_all_parts_are_reported_at_once() {
    check(
        r#"{"leash": {"revive": §1},
            "mcpServers": {
                §§"b c": {},
                "a": {"command": §1, "leash": {"pids": §0}}},
            §"x": 1}"#,
        &[
            "`revive` in `leash` must be `true` or `false`, not a number",
            "`b c` cannot be the name of a server | it becomes its path, `/NAME/mcp`: at most 64 letters, digits, `.`, `_` and `-`, not only dots",
            "server `b c` has neither `command` nor `url` | write what starts it (`command`, `args`) or where it is (`url`)",
            "`command` in server `a` must be a text in double quotes, not a number",
            "`pids` in server `a` must be a whole number, at least 1, not 0",
            "unknown key `x` in the file",
        ],
    );
}
