//! `leash serve` on the command line, as a person sees it.

use expect_test::{Expect, expect};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

/// Runs a command on a scene with a configuration and compares its output.
fn check(config: &str, words: &[&str], expected: &Expect) {
    let scene = or_skip!(Scene::set(Who::User));
    std::fs::write(scene.dir().join(".mcp.json"), config).expect("cannot write the configuration");
    let path = std::env::var("PATH").unwrap_or_default();
    expected.assert_eq(&scene.transcript(words).replace(&path, "PATH"));
}

#[test]
fn help() {
    check(
        "",
        &["serve", "--help"],
        &expect![[r#"
            $ leash serve --help
            Serve MCP servers over HTTP; no session outlives its client

            Every server of the configuration is at http://ADDRESS/NAME/mcp (Streamable
            HTTP, 2025-03-26 to 2026-07-28). A stdio server gets a process tree per session,
            ended with the session; a session at an HTTP server is DELETEd on every end. A
            session ends when its client says so, when the client's process is gone, when it
            was idle, when it is too old, and with the gateway.

            The configuration is read from --config, else ./.mcp.json, else
            $XDG_CONFIG_HOME/leash/leash.json; it is read again on SIGHUP and when the file
            changes. --config also takes the file of an MCP client as it is: ~/.claude.json,
            Cursor's mcp.json, VS Code's, Codex's config.toml and others. One server needs
            no file: -- COMMAND or --url URL.

            Programs create their own sessions through the control socket, control.sock in
            the runtime directory: POST /v1/sessions with their mcpServers, DELETE when the
            job is done. Only processes of the same user and of root can use it.

            Usage: leash serve [OPTIONS] [-- <COMMAND>...]

            Options:
                  --config <FILE>
                      The configuration: {"mcpServers": {...}, "leash": {...}}, or the file
                      of an MCP client

                  --listen <ADDRESS>
                      Where to listen [default: 127.0.0.1:5327]; an address that others can
                      reach needs a token

                  --port <PORT>
                      Listen on this port of 127.0.0.1

                  --token-env <VARIABLE>
                      Ask clients for the bearer token in this variable

                  --local-users <USERS>
                      Without a token, serve requests of the gateway's user and root (own),
                      or of every user of this machine (any) [default: own]

                      Possible values:
                      - own: The gateway's own user, and root
                      - any: Every user of this machine

                  --no-page
                      Show no page to browsers of this user (`leash status --open` prints a
                      link to it)

                  --strict
                      Serve nothing if one server cannot be served [default: warn, and
                      answer 503 for this server]

                  --check
                      Report every mistake in the configuration and exit

              -v, --verbose
                      Say on stderr what happens

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')

            Sessions as an API:
                  --control <PATH>
                      Put the control socket here [default: control.sock in the runtime
                      directory]

                  --no-control
                      Create no control socket

                  --control-listen <ADDRESS>
                      Serve the control API on this address as well; it always needs a token

                  --control-token-env <VARIABLE>
                      Ask callers of --control-listen for the bearer token in this variable

                  --on-demand
                      Run for a program that needs a gateway: exit when the last session is
                      gone and the starter is dead

                      leash reads a configuration only if one is named, and listens on any
                      free port unless --listen names one. If another gateway has the
                      control socket, this one exits at once with code 0. It exits when
                      there has been no session and no starter for 5 seconds.

                  --starter <PID>
                      The process that started it, with --on-demand [default: the parent
                      process]

            One server, without a file:
                  --name <NAME>
                      Its name, which is its path: /NAME/mcp [default: that of its package,
                      script, module, image or program, or its host]

                  --url <URL>
                      It is an HTTP server at this address

                  --transport <TRANSPORT>
                      The transport of the HTTP server

                      Possible values:
                      - http: Streamable HTTP
                      - sse:  HTTP+SSE of 2024-11-05

                      [default: http]

                  --header <HEADER>
                      Send this header to the HTTP server, as `Name: value`; may be repeated

                  --idle <DURATION>
                      End a session that was idle for this long, or `never` [default: 30m]

                  --abandoned <DURATION>
                      End a session without traffic and connection for this long, even if
                      its client's process lives, or `never` [default: 12h]

                  --max-age <DURATION>
                      End a session of this age

                  --max-sessions <COUNT>
                      Most sessions at once

                  --max-sessions-per-client <COUNT>
                      Most sessions at once of one client [default: nine tenths of all]

                  --grace <DURATION>
                      Time between the steps of an end (end of input, SIGTERM, SIGKILL)
                      [default: 2s]

                  --linger <DURATION>
                      Time from the exit of the client's process to the end of its session
                      [default: 5s]

                  --init-timeout <DURATION>
                      How long the server may take to answer `initialize` [default: 60s]

                  --keep-alive <DURATION>
                      Ping clients that listen this often; three unanswered pings end the
                      session

                  --revive
                      Open a session anew on the client's behalf when the HTTP server has
                      lost it

                  --owner <OWNER>
                      The owner of a session: the client's process if leash can find it
                      (auto), or only its traffic

                      Possible values:
                      - auto:    The client's process where it can be known
                      - traffic: Its traffic alone

                      [default: auto]

              [COMMAND]...
                      The server and its arguments
            [0]
        "#]],
    );
}

#[test]
fn a_good_configuration() {
    check(
        r#"{"mcpServers": {"a": {"command": "sh"}}}"#,
        &["serve", "--check"],
        &expect![[r#"
        $ leash serve --check
        1 server and no mistakes
        [0]
    "#]],
    );
}

#[test]
fn every_mistake_at_once() {
    let config = r#"{
  "mcpServers": {
    "a": { "comand": "sh" },
    "b": { "command": "no-such-program-here", "leash": { "idle": "30 minutes" } },
    "c": { "url": "ftp://example.com", "headers": { "X": "${LEASH_NO_SUCH_VARIABLE}" } }
  },
  "leash": { "listen": "0.0.0.0:5327" }
}"#;
    check(
        config,
        &["serve"],
        &expect![[r#"
            $ leash serve
            error: 7 mistakes in the configuration; nothing was started
            DIR/.mcp.json:3:5: server `a` has neither `command` nor `url`
              hint: write what starts it (`command`, `args`) or where it is (`url`)
            DIR/.mcp.json:3:12: unknown key `comand` in server `a`
              hint: did you mean `command`?
            DIR/.mcp.json:4:5: server `b`: command `no-such-program-here` was not found
              hint: it is in none of the directories of PATH: PATH
            DIR/.mcp.json:4:66: `idle` in server `b`: `30 minutes` has an unknown unit
              hint: write a number and a unit, as in "500ms", "30s", "30m", "12h" or "7d"
            DIR/.mcp.json:5:19: `url` in server `c`: the URL does not start with `http://` or `https://`
              hint: write it as in `https://example.com/mcp`
            DIR/.mcp.json:5:58: `X` in `headers` of server `c`: variable `LEASH_NO_SUCH_VARIABLE` is not set
              hint: set it before leash is started, or give a default: `${LEASH_NO_SUCH_VARIABLE:-...}`
            DIR/.mcp.json:7:24: 0.0.0.0:5327 can be reached from other machines, and there is no token
              hint: set `token` in `leash`, for example to "${LEASH_TOKEN}", or listen on 127.0.0.1
            [2]
        "#]],
    );
}

#[test]
fn no_configuration() {
    check(
        "",
        &["serve", "--config", "none.json"],
        &expect![[r#"
        $ leash serve --config none.json
        error: cannot read `DIR/none.json`: No such file or directory (os error 2)

        hint: name another file with --config
        [2]
    "#]],
    );
}

#[test]
fn not_json() {
    check(
        "{",
        &["serve"],
        &expect![[r#"
            $ leash serve
            error: 1 mistake in the configuration; nothing was started
            DIR/.mcp.json:1:2: this is not JSON: EOF while parsing an object
              hint: correct the file at this place
            [2]
        "#]],
    );
}

#[test]
fn a_name_without_a_server() {
    check(
        "",
        &["serve", "--name", "x"],
        &expect![[r#"
        $ leash serve --name x
        error: --name needs a server

        hint: leash serve --name NAME -- COMMAND, or leash serve --name NAME --url URL
        [2]
    "#]],
    );
}

#[test]
fn a_server_without_a_name() {
    check(
        "",
        &["serve", "--check", "--", "cat"],
        &expect![[r#"
        $ leash serve --check -- cat
        1 server and no mistakes
        [0]
    "#]],
    );
}

#[test]
fn terms_without_a_server() {
    check(
        "",
        &["serve", "--idle", "5s"],
        &expect![[r#"
        $ leash serve --idle 5s
        error: the following required arguments were not provided:
          <--name <NAME>|--url <URL>|COMMAND>

        Usage: leash serve --idle <DURATION> <--name <NAME>|--url <URL>|COMMAND>

        hint: `leash serve --help` explains the command and its options
        [2]
    "#]],
    );
}

#[test]
fn addresses_to_listen_at() {
    check(
        "",
        &["serve", "--port", "1", "--listen", "127.0.0.1:1", "--", "cat"],
        &expect![[r#"
        $ leash serve --port 1 --listen 127.0.0.1:1 -- cat
        error: the argument '--port <PORT>' cannot be used with '--listen <ADDRESS>'

        Usage: leash serve --port <PORT> -- <COMMAND>...

        hint: `leash serve --help` explains the command and its options
        [2]
    "#]],
    );
    check(
        "",
        &["serve", "--listen", "5000", "--", "cat"],
        &expect![[r#"
        $ leash serve --listen 5000 -- cat
        error: invalid value '5000' for '--listen <ADDRESS>': write an address and a port, as in 127.0.0.1:5327

        hint: `leash serve --help` explains the command and its options
        [2]
    "#]],
    );
}

/// A user may not bind a low port, unless the machine allows it.
#[test]
fn a_port_that_needs_a_privilege() {
    let start = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    or_skip!(if start.trim() == "1024" { Ok(()) } else { Err("every user may bind low ports here") });
    check(
        "",
        &["serve", "--listen", "127.0.0.1:80", "--", "cat"],
        &expect![[r#"
        $ leash serve --listen 127.0.0.1:80 -- cat
        error: cannot listen on `127.0.0.1:80`
          Caused by: Permission denied (os error 13)

        hint: ports below 1024 need a privilege: choose another one, as in --port 8080
        [125]
    "#]],
    );
}

#[test]
fn an_unknown_program() {
    check(
        "",
        &["serve", "--name", "x", "--", "no-such-program-here"],
        &expect![[r#"
        $ leash serve --name x -- no-such-program-here
        error: 1 mistake in the configuration; nothing was started
        command: server `x`: command `no-such-program-here` was not found
          hint: it is in none of the directories of PATH: PATH
        [2]
    "#]],
    );
}

#[test]
fn a_token_that_is_not_there() {
    check(
        "",
        &["serve", "--token-env", "LEASH_NO_TOKEN", "--name", "x", "--", "cat"],
        &expect![[r#"
        $ leash serve --token-env LEASH_NO_TOKEN --name x -- cat
        error: the variable `LEASH_NO_TOKEN` of --token-env is not set

        hint: export LEASH_NO_TOKEN=$(openssl rand -hex 32)
        [2]
    "#]],
    );
}
