//! Every help page, listing and error of the command line, as a person sees it. Update with UPDATE_EXPECT=1.

use expect_test::{Expect, expect};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

/// Runs a command on a fresh scene and compares everything it said.
fn check(words: &[&str], expected: &Expect) {
    let scene = or_skip!(Scene::set(Who::User));
    expected.assert_eq(&scene.transcript(words));
}

#[test]
fn help() {
    check(
        &["--help"],
        &expect![[r#"
            $ leash --help
            Nothing outlives its owner: the lifecycle guarantee for MCP servers and sessions

            Usage: leash <COMMAND>

            Commands:
              run          Run a stdio server; its whole process tree dies with its owner
              connect      Give a stdio host an HTTP server; the session there is always ended
              attach       Give a stdio host one server of a session that was made through the control API
              serve        Serve MCP servers over HTTP; no session outlives its client
              ps           Show every MCP server that is alive, on the leash or not, and what keeps it
              why          Say who holds a server, how that is known, and what would end it
              reap         End MCP servers that nobody holds any more, whoever started them
              watch        End orphans as they appear
              end          End sessions now, wait until they are gone, and print their receipts
              history      Show what was ended, why and how
              adopt        Put the servers of MCP clients on the leash, in their own configurations
              release      Undo what `leash adopt` did
              doctor       Say what this machine offers: which containments work, and why not better
              demo         See it work: a host is killed, with and without leash
              completions  Print a completion script for a shell
              man          Print the manual page (roff), or write all pages to a directory

            Options:
              -h, --help     Print help
              -V, --version  Print version
            [0]
        "#]],
    );
}

#[test]
fn help_of_run() {
    check(
        &["run", "--help"],
        &expect![[r#"
            $ leash run --help
            Run a stdio server; its whole process tree dies with its owner

            The server gets the host's own stdin, stdout and stderr: leash touches no byte. When the owner is
            gone (the host closed stdin, exited, crashed or was killed; the terminal was closed; leash was told
            or killed), every process the server started is ended: end of input, wait, SIGTERM to all, wait,
            SIGKILL to all, and a proof that nothing is left.

            The exit code is the server's own, or 128 + n after signal n; 125 leash failed, 126 cannot execute,
            127 not found.

            Usage: leash run [OPTIONS] -- <COMMAND>...

            Arguments:
              <COMMAND>...
                      The server and its arguments

            Options:
                  --contain <NAME>
                      Use exactly this containment: sealed, unit, leaf, reaper or group [default: the best that
                      works]

                  --require <NAME>
                      Refuse to start with less than this containment

                  --grace <DURATION>
                      Time between the steps of the ending ladder; 0 kills at once

                      [default: 2s]

                  --owner <OWNER>
                      What the server lives for: parent, ancestor, stdin, tty, pid:N or none; may be repeated

                      The default is the parent, the nearest ancestor that is not a wrapper (sh -c, npx,
                      env...), the other end of stdin, and the terminal if the parent is in its session. Owners
                      given here replace parent, ancestor and terminal; stdin stays watched, because its end is
                      how MCP ends a server. `none` watches nothing: the session ends when the server does, by
                      `leash end`, or by a signal.

                  --max-age <DURATION>
                      End the server when it has lived this long

                  --session <ID>
                      Join the session with this id [default: a session of its own]

                      `leash end ID` ends all members of a session, wherever they were started. {VARIABLE} and
                      {VARIABLE:-default} are replaced by the environment, so that one line of configuration
                      names every host session: --session '{CLAUDE_CODE_SESSION_ID}'.

                  --session-env <VARIABLE>
                      Join the session that this variable names; unset, it is a session of its own

                  --name <NAME>
                      A name for listings [default: the command's]

                  --label <KEY=VALUE>
                      A label for listings and receipts; may be repeated

                  --spare <NAME>
                      Leave programs of this name alive (adb, gpg-agent...); may be repeated

                  --memory <SIZE>
                      Most memory for the whole tree, such as 512M or 2G; needs a cgroup with the memory
                      controller

                  --pids <COUNT>
                      Most processes and threads in the tree; needs a cgroup with the pids controller

                  --cwd <DIR>
                      Start the server in this directory

                  --env <KEY=VALUE>
                      Set a variable in the server's environment; may be repeated

              -v, --verbose
                      Say on stderr what happens

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

#[test]
fn help_of_ps() {
    check(
        &["ps", "--help"],
        &expect![[r#"
            $ leash ps --help
            Show every MCP server that is alive, on the leash or not, and what keeps it

            Usage: leash ps [OPTIONS]

            Options:
                  --leashed  Only the sessions of leash, not the servers that others have started
                  --tree     Draw each session's process tree
                  --json     Print JSON
              -v, --verbose  Also say what each containment does not cover, and why there is no better one
              -h, --help     Print help
            [0]
        "#]],
    );
}

#[test]
fn help_of_end() {
    check(
        &["end", "--help"],
        &expect![[r#"
            $ leash end --help
            End sessions now, wait until they are gone, and print their receipts

            All members of a session end at the same time, wherever they were started: servers under `leash
            run`, connections of `leash connect`, and what a `leash serve` of the same user holds for it. Who
            joins meanwhile is ended, too. There is one receipt for each session. Sessions of other users are
            neither seen nor ended.

            The exit code is 0 when everything is proved to be gone, 1 when something is left or a session is
            not known. That --match, --all or --hook found nothing to end is no failure.

            Usage: leash end [OPTIONS] <SESSION|--match <LABEL=VALUE>|--all|--hook>

            Arguments:
              [SESSION]...
                      Sessions by id or by run; an id that leash made may be shortened to a beginning that no
                      other has; {VARIABLE} as in `leash run --session`

            Options:
                  --match <LABEL=VALUE>
                      Sessions with a member that has this label; * stands for anything. May be repeated, then
                      all must match

                  --all
                      All sessions of this user

                  --hook
                      The session that a host's hook tells of on stdin, as JSON with a `session_id`

                      For the SessionEnd hook of Claude Code and the like. Nothing is ended when the host only
                      goes on to another conversation (`reason` is clear or resume): it keeps its servers.

                  --force
                      No grace: everything is killed at once

                  --control <PATH>
                      The control socket of `leash serve` [default: control.sock in the runtime directory]

                  --json
                      Print JSON

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

#[test]
fn help_of_history() {
    check(
        &["history", "--help"],
        &expect![[r#"
            $ leash history --help
            Show what was ended, why and how

            Usage: leash history [OPTIONS] [SESSION]

            Arguments:
              [SESSION]  Only this session, with all its members, by its id or the beginning of it

            Options:
              -n, --lines <COUNT>  How many of the newest to show [default: 20, of a session all]
                  --json           Print JSON
              -h, --help           Print help
            [0]
        "#]],
    );
}

#[test]
fn help_of_doctor() {
    check(
        &["doctor", "--help"],
        &expect![[r#"
        $ leash doctor --help
        Say what this machine offers: which containments work, and why not better

        Each containment is tried with a real process tree. The exit code is 0 when leash can keep its
        promise here (reaper or better, and a usable runtime directory), else 1.

        Usage: leash doctor [OPTIONS]

        Options:
              --json
                  Print JSON

          -h, --help
                  Print help (see a summary with '-h')
        [0]
    "#]],
    );
}

#[test]
fn help_of_demo() {
    check(
        &["demo", "--help"],
        &expect![[r#"
        $ leash demo --help
        See it work: a host is killed, with and without leash

        Usage: leash demo

        Options:
          -h, --help  Print help
        [0]
    "#]],
    );
}

#[test]
fn nothing_was_said() {
    check(
        &[],
        &expect![[r#"
            $ leash
            Nothing outlives its owner: the lifecycle guarantee for MCP servers and sessions

            Usage: leash <COMMAND>

            Commands:
              run          Run a stdio server; its whole process tree dies with its owner
              connect      Give a stdio host an HTTP server; the session there is always ended
              attach       Give a stdio host one server of a session that was made through the control API
              serve        Serve MCP servers over HTTP; no session outlives its client
              ps           Show every MCP server that is alive, on the leash or not, and what keeps it
              why          Say who holds a server, how that is known, and what would end it
              reap         End MCP servers that nobody holds any more, whoever started them
              watch        End orphans as they appear
              end          End sessions now, wait until they are gone, and print their receipts
              history      Show what was ended, why and how
              adopt        Put the servers of MCP clients on the leash, in their own configurations
              release      Undo what `leash adopt` did
              doctor       Say what this machine offers: which containments work, and why not better
              demo         See it work: a host is killed, with and without leash
              completions  Print a completion script for a shell
              man          Print the manual page (roff), or write all pages to a directory

            Options:
              -h, --help     Print help
              -V, --version  Print version

            hint: leash --help lists the commands, leash COMMAND --help explains one
            [2]
        "#]],
    );
}

#[test]
fn an_unknown_command() {
    check(
        &["rnu"],
        &expect![[r#"
            $ leash rnu
            error: unrecognized subcommand 'rnu'

            Usage: leash <COMMAND>

            hint: leash --help lists the commands, leash COMMAND --help explains one
            [2]
        "#]],
    );
}

#[test]
fn run_without_a_command() {
    check(
        &["run"],
        &expect![[r#"
            $ leash run
            error: the following required arguments were not provided:
              <COMMAND>...

            Usage: leash run -- <COMMAND>...

            hint: leash --help lists the commands, leash COMMAND --help explains one
            [2]
        "#]],
    );
}

#[test]
fn a_duration_without_a_unit() {
    check(
        &["run", "--grace", "2", "--", "true"],
        &expect![[r#"
            $ leash run --grace 2 -- true
            error: invalid value '2' for '--grace <DURATION>': `2` has no unit: write 500ms, 2s, 30m, 1h or 0

            hint: leash --help lists the commands, leash COMMAND --help explains one
            [2]
        "#]],
    );
}

#[test]
fn an_owner_that_is_none() {
    check(
        &["run", "--owner", "me", "--", "true"],
        &expect![[r#"
            $ leash run --owner me -- true
            error: invalid value 'me' for '--owner <OWNER>': write parent, ancestor, stdin, tty, pid:N or none

            hint: leash --help lists the commands, leash COMMAND --help explains one
            [2]
        "#]],
    );
}

#[test]
fn no_owner_and_an_owner() {
    check(
        &["run", "--owner", "none", "--owner", "parent", "--", "true"],
        &expect![[r#"
        $ leash run --owner none --owner parent -- true
        error: `--owner none` cannot be combined with another owner

        hint: leave --owner out to be owned by the parent process
        [2]
    "#]],
    );
}

#[test]
fn an_owner_that_does_not_exist() {
    // The kernel's highest pid is 4194304.
    check(
        &["run", "--owner", "pid:4194305", "--", "true"],
        &expect![[r#"
        $ leash run --owner pid:4194305 -- true
        error: owner `pid:4194305` does not exist

        hint: --owner pid:N names a process that must be alive when leash starts
        [125]
    "#]],
    );
}

#[test]
fn an_unknown_containment() {
    check(
        &["run", "--contain", "jail", "--", "true"],
        &expect![[r#"
            $ leash run --contain jail -- true
            error: invalid value 'jail' for '--contain <NAME>': `jail` is not one of sealed, unit, leaf, reaper, group

            hint: leash --help lists the commands, leash COMMAND --help explains one
            [2]
        "#]],
    );
}

#[test]
fn a_session_with_a_bad_name() {
    check(
        &["run", "--session", "../up", "--", "true"],
        &expect![[r#"
            $ leash run --session ../up -- true
            error: invalid value '../up' for '--session <ID>': only letters, digits and - _ . : @ + are allowed

            hint: leash --help lists the commands, leash COMMAND --help explains one
            [2]
        "#]],
    );
}

#[test]
fn a_directory_that_is_not_there() {
    check(
        &["run", "--cwd", "/no/such/place", "--", "true"],
        &expect![[r#"
        $ leash run --cwd /no/such/place -- true
        error: cannot change to `/no/such/place`
          Caused by: No such file or directory (os error 2)

        hint: check --cwd
        [125]
    "#]],
    );
}

#[test]
fn caps_without_a_cgroup() {
    check(
        &["run", "--contain", "reaper", "--memory", "1G", "--", "true"],
        &expect![[r#"
            $ leash run --contain reaper --memory 1G -- true
            error: no acceptable containment works here
              not reaper: memory and process caps need a cgroup

            hint: run `leash doctor` to see what works here, or ask for less (--contain, --require, --memory, --pids)
            [125]
        "#]],
    );
}

#[test]
fn spares_in_a_sealed_tree() {
    check(
        &["run", "--contain", "sealed", "--spare", "adb", "--", "true"],
        &expect![[r#"
            $ leash run --contain sealed --spare adb -- true
            error: no acceptable containment works here
              not sealed: nothing can be spared in it

            hint: run `leash doctor` to see what works here, or ask for less (--contain, --require, --memory, --pids)
            [125]
        "#]],
    );
}

#[test]
fn no_sessions() {
    check(
        &["ps"],
        &expect![[r#"
        $ leash ps
        SESSION  SERVER  OWNER  CONTAINMENT  PROCS  MEMORY  AGE  STATE
        [0]
    "#]],
    );
}

#[test]
fn no_sessions_as_json() {
    check(
        &["ps", "--json"],
        &expect![[r#"
            $ leash ps --json
            {
              "groups": [],
              "servers": [],
              "sessions": [],
              "upstream": [],
              "version": 1
            }
            [0]
        "#]],
    );
}

#[test]
fn an_unknown_session() {
    check(
        &["end", "nobody"],
        &expect![[r#"
        $ leash end nobody
        error: no session `nobody` is alive

        hint: `leash ps` lists the sessions that are alive, `leash history` those that ended
        [1]
    "#]],
    );
}

#[test]
fn no_history() {
    check(
        &["history"],
        &expect![[r#"
        $ leash history
        ENDED  SESSION  SERVER  REASON  HOW  PROCS  TOOK  MEMORY  FATE
        [0]
    "#]],
    );
}

#[test]
fn completions_and_man_are_generated() {
    let scene = or_skip!(Scene::set(Who::User));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = scene.answer(["completions", shell]);
        assert_eq!(script.code, 0, "{script:?}");
        for word in ["max-age", "why", "reap", "max-memory", "adopt", "release"] {
            assert!(script.stdout.contains(word), "{shell} does not know `{word}`");
        }
    }
    let page = scene.answer(["man"]);
    assert!(page.stdout.starts_with(".ie"), "not a manual page: {}", page.stdout.chars().take(80).collect::<String>());
    let dir = scene.dir().join("man");
    let pages = scene.answer(["man", "--dir", &dir.display().to_string()]);
    assert_eq!(pages.code, 0, "{pages:?}");
    for name in ["run", "end", "ps", "why", "reap", "watch", "adopt", "release"] {
        assert!(page.stdout.contains(&format!("leash\\-{name}(1)")), "`{name}` is not on the page");
        let text = std::fs::read_to_string(dir.join(format!("leash-{name}.1"))).unwrap_or_default();
        assert!(text.contains("leash"), "the page of `{name}` is missing or empty");
    }
}

#[test]
fn nothing_to_end() {
    check(
        &["end"],
        &expect![[r#"
        $ leash end
        error: the following required arguments were not provided:
          <SESSION|--match <LABEL=VALUE>|--all|--hook>

        Usage: leash end <SESSION|--match <LABEL=VALUE>|--all|--hook>

        hint: leash --help lists the commands, leash COMMAND --help explains one
        [2]
    "#]],
    );
    check(
        &["end", "--all"],
        &expect![[r#"
        $ leash end --all
        nothing to end: no session is alive
        [0]
    "#]],
    );
    check(
        &["end", "--match", "team=*"],
        &expect![[r#"
        $ leash end --match team=*
        nothing to end: no session that is alive has these labels
        [0]
    "#]],
    );
    check(
        &["end", "--all", "--json"],
        &expect![[r#"
        $ leash end --all --json
        {
          "receipts": [],
          "unfinished": [],
          "version": 1
        }
        [0]
    "#]],
    );
    check(
        &["end", "--match", "team"],
        &expect![[r#"
        $ leash end --match team
        error: invalid value 'team' for '--match <LABEL=VALUE>': write KEY=VALUE

        hint: leash --help lists the commands, leash COMMAND --help explains one
        [2]
    "#]],
    );
    check(
        &["end", "--all", "job"],
        &expect![[r#"
        $ leash end --all job
        error: the argument '--all' cannot be used with '[SESSION]...'

        Usage: leash end <SESSION|--match <LABEL=VALUE>|--all|--hook>

        hint: leash --help lists the commands, leash COMMAND --help explains one
        [2]
    "#]],
    );
    check(
        &["end", "--hook"],
        &expect![[r#"
        $ leash end --hook
        error: stdin is not the input of a hook: it is empty

        hint: hosts write it: {"session_id": "..."}; by hand, use leash end SESSION
        [2]
    "#]],
    );
}

#[test]
fn a_session_of_a_variable_that_is_not_set() {
    check(
        &["run", "--session", "{LEASH_TEST_NONE}", "--", "true"],
        &expect![[r#"
        $ leash run --session {LEASH_TEST_NONE} -- true
        error: the variable `LEASH_TEST_NONE` in the session's id is not set

        hint: set LEASH_TEST_NONE where leash is started, or give a default: {LEASH_TEST_NONE:-main}
        [2]
    "#]],
    );
    check(
        &["run", "--session", "job-{}", "--", "true"],
        &expect![[r#"
        $ leash run --session job-{} -- true
        error: invalid value 'job-{}' for '--session <ID>': `{}` names no variable: write {VARIABLE} or {VARIABLE:-default}

        hint: leash --help lists the commands, leash COMMAND --help explains one
        [2]
    "#]],
    );
    check(
        &["end", "{LEASH_TEST_NONE}"],
        &expect![[r#"
        $ leash end {LEASH_TEST_NONE}
        error: the variable `LEASH_TEST_NONE` in the session's id is not set

        hint: set LEASH_TEST_NONE where leash is started, or give a default: {LEASH_TEST_NONE:-main}
        [2]
    "#]],
    );
}
