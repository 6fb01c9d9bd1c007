//! The output about the control socket and of `leash attach`: help and errors.

use expect_test::{Expect, expect};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

/// Runs a command on a fresh scene and compares its output.
fn check(words: &[&str], expected: &Expect) {
    let scene = or_skip!(Scene::set(Who::User));
    let words: Vec<String> = words.iter().map(|word| word.replace("DIR", &scene.dir().display().to_string())).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // The number of bytes depends on the name of the directory.
    expected.assert_eq(&without_bytes(&scene.transcript(&words)));
}

/// `... 123 bytes ...` without the number, which depends on the directory of the tests.
fn without_bytes(text: &str) -> String {
    let Some((head, tail)) = text.split_once(" bytes, and the kernel") else { return text.to_owned() };
    let head = head.trim_end_matches(|c: char| c.is_ascii_digit());
    format!("{head}N bytes, and the kernel{tail}")
}

#[test]
fn help_of_attach() {
    check(
        &["attach", "--help"],
        &expect![[r#"
            $ leash attach --help
            Give a stdio host one server of a session that was made through the control API

            leash asks the running `leash serve` for the server's address over its control
            socket, and then acts as `leash connect` to that address: when it ends, for
            whatever reason, the connection to the server ends, too. The session itself
            stays until a program or a user ends it; then `leash attach` ends as well.

            The exit code is 0 when the host is done, 1 when the session or the server is
            not known or the session has ended, 128 + n after signal n, 125 when leash
            failed or no `leash serve` answers.

            Usage: leash attach [OPTIONS] <SESSION/SERVER>

            Arguments:
              <SESSION/SERVER>
                      The session's id, or a unique beginning of an id that leash made, and
                      the server's name

            Options:
                  --control <PATH>
                      The control socket of `leash serve` [default: control.sock in the
                      runtime directory]

                  --header <HEADER>
                      Send this header with every request, as `Name: value`; may be repeated

                  --bearer-env <VARIABLE>
                      Send `Authorization: Bearer` with the token in this variable

                  --owner <OWNER>
                      The owners of the connection: parent, ancestor, stdin, tty, pid:N or
                      none; may be repeated

                      The default is the same as that of `leash connect`.

                  --grace <DURATION>
                      How long requests may still be answered after the host closed stdin

                      [default: 2s]

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
fn attach_without_a_server() {
    check(
        &["attach", "job-1"],
        &expect![[r#"
        $ leash attach job-1
        error: invalid value 'job-1' for '<SESSION/SERVER>': write SESSION/SERVER

        hint: `leash attach --help` explains the command and its options
        [2]
    "#]],
    );
}

#[test]
fn attach_without_a_daemon() {
    check(
        &["attach", "job-1/files"],
        &expect![[r#"
            $ leash attach job-1/files
            error: no `leash serve` listens on `DIR/run/control.sock`

            hint: start `leash serve` and create the session again, or name another socket with --control
            [125]
        "#]],
    );
}

#[test]
fn attach_at_a_path_that_no_socket_can_have() {
    let path = format!("DIR/{}", "x".repeat(108));
    check(
        &["attach", "--control", &path, "job-1/files"],
        &expect![[r#"
            $ leash attach --control DIR/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx job-1/files
            error: `DIR/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` is too long for a socket: N bytes, and the kernel takes 107

            hint: name a shorter path with --control
            [125]
        "#]],
    );
}

#[test]
fn a_control_address_without_a_token() {
    check(
        &["serve", "--control-listen", "127.0.0.1:0", "--name", "x", "--", "cat"],
        &expect![[r#"
        $ leash serve --control-listen 127.0.0.1:0 --name x -- cat
        error: the control API on `127.0.0.1:0` needs a token

        hint: every client there can start programs: --control-token-env VARIABLE names the token's variable
        [2]
    "#]],
    );
}

#[test]
fn a_control_token_that_is_not_there() {
    let words =
        ["--control-listen", "127.0.0.1:0", "--control-token-env", "LEASH_NO_TOKEN", "--name", "x", "--", "cat"];
    check(
        &[&["serve"], &words[..]].concat(),
        &expect![[r#"
        $ leash serve --control-listen 127.0.0.1:0 --control-token-env LEASH_NO_TOKEN --name x -- cat
        error: the variable `LEASH_NO_TOKEN` of --control-token-env is not set

        hint: export LEASH_NO_TOKEN=$(openssl rand -hex 32)
        [2]
    "#]],
    );
}

#[test]
fn a_control_token_for_nothing() {
    check(
        &["serve", "--control-token-env", "LEASH_NO_TOKEN", "--name", "x", "--", "cat"],
        &expect![[r#"
        $ leash serve --control-token-env LEASH_NO_TOKEN --name x -- cat
        error: the following required arguments were not provided:
          --control-listen <ADDRESS>

        Usage: leash serve --control-listen <ADDRESS> --control-token-env <VARIABLE> --name <NAME> -- <COMMAND>...

        hint: `leash serve --help` explains the command and its options
        [2]
    "#]],
    );
}

#[test]
fn a_starter_without_a_demand() {
    check(
        &["serve", "--starter", "1", "--name", "x", "--", "cat"],
        &expect![[r#"
        $ leash serve --starter 1 --name x -- cat
        error: the following required arguments were not provided:
          --on-demand

        Usage: leash serve --on-demand --starter <PID> --name <NAME> -- <COMMAND>...

        hint: `leash serve --help` explains the command and its options
        [2]
    "#]],
    );
}

#[test]
fn a_control_socket_whose_path_is_too_long() {
    let path = format!("DIR/{}", "x".repeat(108));
    check(
        &["serve", "--listen", "127.0.0.1:0", "--control", &path, "--name", "x", "--", "cat"],
        &expect![[r#"
        $ leash serve --listen 127.0.0.1:0 --control DIR/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx --name x -- cat
        error: `DIR/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` is too long for a socket: N bytes, and the kernel takes 107

        hint: name a shorter path with --control, or set LEASH_RUNTIME_DIR to a shorter one
        [125]
    "#]],
    );
}

#[test]
fn a_control_socket_where_others_can_write() {
    check(
        &["serve", "--listen", "127.0.0.1:0", "--control", "/tmp/leash-control.sock", "--name", "x", "--", "cat"],
        &expect![[r#"
            $ leash serve --listen 127.0.0.1:0 --control /tmp/leash-control.sock --name x -- cat
            error: `/tmp` cannot hold a control socket: it belongs to uid 0

            hint: the socket must be in a directory that only you can write to: make one, or name another path with --control
            [125]
        "#]],
    );
}

#[test]
fn a_control_socket_in_the_place_of_a_file() {
    check(
        &["serve", "--listen", "127.0.0.1:0", "--control", "DIR/census", "--name", "x", "--", "cat"],
        &expect![[r#"
        $ leash serve --listen 127.0.0.1:0 --control DIR/census --name x -- cat
        error: `DIR/census` already exists, and it is not a socket

        hint: name another path with --control
        [125]
    "#]],
    );
}
