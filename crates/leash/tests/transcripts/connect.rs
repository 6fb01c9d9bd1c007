//! The output of `leash connect`: its help page and its errors.

use expect_test::expect;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::check;

#[test]
fn help() {
    check(
        &["connect", "--help"],
        &expect![[r#"
            $ leash connect --help
            Give a stdio host an HTTP server; the session there is always ended

            leash POSTs every line of the host as it is, and writes every message of the
            server as a line. When the owner is gone (the host closed stdin, exited, crashed
            or was killed; the terminal was closed; leash was told to end or was killed),
            leash DELETEs the session at the server; if leash itself is killed, its keeper
            does that.

            leash speaks Streamable HTTP (2025-03-26 to 2026-07-28) and HTTP+SSE
            (2024-11-05). When the server has lost the session, leash opens it again on the
            host's behalf.

            The exit code is 0 when the host is done and the session is ended, 1 when the
            session could not be ended or was lost (--no-revive), 128 + n after signal n,
            125 when leash failed.

            Usage: leash connect [OPTIONS] <URL>

            Arguments:
              <URL>
                      The server's address, http or https

            Options:
                  --header <HEADER>
                      Send this header with every request, as `Name: value`; may be repeated

                  --header-env <HEADER=VARIABLE>
                      Send this header with the value of a variable; may be repeated

                      Other users of the machine can see the value of --header, but not that
                      of a variable.

                  --bearer-env <VARIABLE>
                      Send `Authorization: Bearer` with the token in this variable

                  --transport <TRANSPORT>
                      The transport of the server; auto detects it

                      Possible values:
                      - auto: Streamable HTTP, and if that is refused, HTTP+SSE
                      - http: Streamable HTTP
                      - sse:  HTTP+SSE of 2024-11-05

                      [default: auto]

                  --revive
                      Open the session again when the server has lost it; the default

                  --no-revive
                      Exit when the server has lost the session, so that the host notices

                  --owner <OWNER>
                      The owners of the session: parent, ancestor, stdin, tty, pid:N or
                      none; may be repeated

                      The default is the parent, the nearest ancestor that is not a wrapper
                      (sh -c, npx, env...), the other end of stdin, and the terminal if the
                      parent is in its session. Owners given here replace parent, ancestor
                      and terminal; stdin stays watched, because its end is how MCP ends a
                      server. `none` watches no process: the session ends with stdin, by
                      `leash end`, or by a signal.

                  --grace <DURATION>
                      How long requests may still be answered after the host closed stdin

                      [default: 2s]

                  --max-age <DURATION>
                      End the session when it has lived this long

                  --session <ID>
                      Join the session with this id [default: a session of its own]

                      `leash end ID` ends all members of a session, wherever they were
                      started. {VARIABLE} and {VARIABLE:-default} are replaced by the
                      environment, so that one line of configuration names every host
                      session: --session '{CLAUDE_CODE_SESSION_ID}'.

                  --session-env <VARIABLE>
                      Join the session that this variable names; unset, it is a session of
                      its own

                  --name <NAME>
                      A name for listings [default: the host of the URL]

                  --label <KEY=VALUE>
                      A label for listings and receipts; may be repeated

              -v, --verbose
                      Say on stderr what happens

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

#[test]
fn no_url() {
    check(
        &["connect"],
        &expect![[r#"
        $ leash connect
        error: the following required arguments were not provided:
          <URL>

        Usage: leash connect <URL>

        hint: `leash connect --help` explains the command and its options
        [2]
    "#]],
    );
}

#[test]
fn not_a_url() {
    check(
        &["connect", "example.com/mcp"],
        &expect![[r#"
            $ leash connect example.com/mcp
            error: the URL does not start with `http://` or `https://`

            hint: write it as in `https://example.com/mcp`
            [2]
        "#]],
    );
    check(
        &["connect", "https://user:hush@example.com/mcp"],
        &expect![[r#"
            $ leash connect https://user:hush@example.com/mcp
            error: the URL contains a user name or a password

            hint: send them as a header: --header 'Authorization: Basic ...'
            [2]
        "#]],
    );
}

#[test]
fn not_a_header() {
    check(
        &["connect", "--header", "hush", "http://h/"],
        &expect![[r#"
        $ leash connect --header hush http://h/
        error: a --header has no `:`

        hint: write it as --header 'Name: value'
        [2]
    "#]],
    );
    check(
        &["connect", "--header", "Mcp-Session-Id: 1", "http://h/"],
        &expect![[r#"
        $ leash connect --header Mcp-Session-Id: 1 http://h/
        error: header `Mcp-Session-Id` cannot be set here

        hint: remove it: it belongs to each message, and leash takes care of it
        [2]
    "#]],
    );
}

#[test]
fn no_token() {
    check(
        &["connect", "--bearer-env", "NO_SUCH_TOKEN", "http://h/"],
        &expect![[r#"
        $ leash connect --bearer-env NO_SUCH_TOKEN http://h/
        error: the variable `NO_SUCH_TOKEN` of --bearer-env is not set

        hint: set NO_SUCH_TOKEN in the environment in which the host starts leash
        [2]
    "#]],
    );
}

#[test]
fn a_token_and_a_header() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("TOKEN", "hush");
    let words = ["connect", "--bearer-env", "TOKEN", "--header", "authorization: Basic hush", "http://h/"];
    expect![[r#"
        $ leash connect --bearer-env TOKEN --header authorization: Basic hush http://h/
        error: header `Authorization` is given twice

        hint: names are the same in upper and lower case; keep one of them
        [2]
    "#]]
    .assert_eq(&scene.transcript(&words));
}

#[test]
fn not_a_transport() {
    check(
        &["connect", "--transport", "websocket", "http://h/"],
        &expect![[r#"
        $ leash connect --transport websocket http://h/
        error: invalid value 'websocket' for '--transport <TRANSPORT>'
          [possible values: auto, http, sse]

        hint: `leash connect --help` explains the command and its options
        [2]
    "#]],
    );
}

#[test]
fn not_an_owner() {
    check(
        &["connect", "--owner", "pid:4194304", "http://h/"],
        &expect![[r#"
        $ leash connect --owner pid:4194304 http://h/
        error: owner `pid:4194304` does not exist

        hint: --owner pid:N names a process that must be alive when leash starts
        [125]
    "#]],
    );
    check(
        &["connect", "--owner", "none", "--owner", "parent", "http://h/"],
        &expect![[r#"
            $ leash connect --owner none --owner parent http://h/
            error: `--owner none` cannot be combined with another owner

            hint: remove `--owner none`, or the other owners
            [2]
        "#]],
    );
}

#[test]
fn no_ledger() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("LEASH_RUNTIME_DIR", "/dev/null");
    expect![[r#"
        $ leash connect http://h/
        error: runtime directory `/dev/null` is not a directory

        hint: set LEASH_RUNTIME_DIR to a directory that can be written; the ledger must exist before a session does
        [125]
    "#]]
    .assert_eq(&scene.transcript(&["connect", "http://h/"]));
}

/// Without a request leash does not connect, and prints nothing.
#[test]
fn nothing_to_do() {
    check(
        &["connect", "--name", "x", "--session", "job-1", "http://127.0.0.1:9/mcp"],
        &expect![[r#"
        $ leash connect --name x --session job-1 http://127.0.0.1:9/mcp
        [0]
    "#]],
    );
}
