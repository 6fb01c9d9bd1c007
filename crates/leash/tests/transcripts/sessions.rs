//! `ps`, `end` and `history` without anything to show, and names of sessions.

use expect_test::expect;

use super::check;

#[test]
fn a_session_with_a_bad_name() {
    check(
        &["run", "--session", "../up", "--", "true"],
        &expect![[r#"
            $ leash run --session ../up -- true
            error: invalid value '../up' for '--session <ID>': only letters, digits and - _ . : @ + are allowed

            hint: `leash run --help` explains the command and its options
            [2]
        "#]],
    );
}

#[test]
fn no_sessions() {
    check(
        &["ps"],
        &expect![[r#"
            $ leash ps
            No MCP server runs here.
            `leash adopt` puts the servers of your MCP clients on the leash,
            and `leash run -- COMMAND` starts one.
            [0]
        "#]],
    );
}

#[test]
fn no_sessions_under_leash() {
    check(
        &["ps", "--leashed"],
        &expect![[r#"
            $ leash ps --leashed
            No MCP server runs under leash.
            `leash ps` also lists the servers that other programs started.
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
              "version": 1,
              "sessions": [],
              "upstream": [],
              "groups": [],
              "servers": []
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
            No session has ended here. `leash ps` lists those that are alive.
            [0]
        "#]],
    );
}

#[test]
fn no_history_of_an_unknown_session() {
    check(
        &["history", "nosuch"],
        &expect![[r#"
        $ leash history nosuch
        error: no session `nosuch` has ended here

        hint: `leash history` lists the sessions that ended, `leash ps` those that are alive
        [1]
    "#]],
    );
    check(
        &["history", "nosuch", "--json"],
        &expect![[r#"
        $ leash history nosuch --json
        error: no session `nosuch` has ended here

        hint: `leash history` lists the sessions that ended, `leash ps` those that are alive
        [1]
    "#]],
    );
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

        hint: `leash end --help` explains the command and its options
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
              "version": 1,
              "receipts": [],
              "unfinished": []
            }
            [0]
        "#]],
    );
    check(
        &["end", "--match", "team"],
        &expect![[r#"
        $ leash end --match team
        error: invalid value 'team' for '--match <LABEL=VALUE>': write KEY=VALUE

        hint: `leash end --help` explains the command and its options
        [2]
    "#]],
    );
    check(
        &["end", "--all", "job"],
        &expect![[r#"
        $ leash end --all job
        error: the argument '--all' cannot be used with '[SESSION]...'

        Usage: leash end <SESSION|--match <LABEL=VALUE>|--all|--hook>

        hint: `leash end --help` explains the command and its options
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

        hint: `leash run --help` explains the command and its options
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
