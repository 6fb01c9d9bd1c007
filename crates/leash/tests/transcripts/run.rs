//! Mistakes on the command line of `leash run`.

use expect_test::expect;

use super::check;

#[test]
fn run_without_a_command() {
    check(
        &["run"],
        &expect![[r#"
            $ leash run
            error: the following required arguments were not provided:
              <COMMAND>...

            Usage: leash run <COMMAND>...

            hint: `leash run --help` explains the command and its options
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

            hint: `leash run --help` explains the command and its options
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

            hint: `leash run --help` explains the command and its options
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

            hint: `leash run --help` explains the command and its options
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
fn a_command_that_is_a_directory() {
    check(
        &["run", "--", "/etc"],
        &expect![[r#"
        $ leash run -- /etc
        error: `/etc` is a directory

        hint: name a program in /etc
        [126]
    "#]],
    );
}

#[test]
fn a_command_with_its_arguments_in_one_word() {
    check(
        &["run", "--", "no-such-program -y foo"],
        &expect![[r#"
        $ leash run -- no-such-program -y foo
        error: command `no-such-program -y foo` was not found

        hint: command and arguments are separate words: leash run -- no-such-program -y foo
        [127]
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
