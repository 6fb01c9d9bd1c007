//! Mistakes on the command line of `leash run`, and starts that fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use expect_test::expect;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

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

            hint: remove `--owner none`, or the other owners
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
            error: cannot change to the directory `/no/such/place`
              Caused by: No such file or directory (os error 2)

            hint: check --cwd
            [125]
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
              not reaper: limits of memory, processes and processor time need a cgroup

            hint: run `leash doctor` to see what works here, or ask for less (--contain, --require, --spare, --memory, --pids, --cpu, --session-memory, `budget` in leash.json)
            [125]
        "#]],
    );
}

#[test]
fn session_budget_without_a_user_manager() {
    check(
        &["run", "--contain", "leaf", "--session-memory", "1G", "--", "true"],
        &expect![[r#"
            $ leash run --contain leaf --session-memory 1G -- true
            error: no acceptable containment works here
              not leaf: a budget of a session, or for all of leash, needs the systemd user manager (`unit`)

            hint: run `leash doctor` to see what works here, or ask for less (--contain, --require, --spare, --memory, --pids, --cpu, --session-memory, `budget` in leash.json)
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
              not sealed: `spare` does not work in it

            hint: run `leash doctor` to see what works here, or ask for less (--contain, --require, --spare, --memory, --pids, --cpu, --session-memory, `budget` in leash.json)
            [125]
        "#]],
    );
}

#[test]
fn a_command_that_is_not_found() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("PATH", "/nowhere:/usr/games-of-old");
    expect![[r#"
        $ leash run -- no-such-server
        error: command `no-such-server` was not found

        hint: it is in none of the directories of PATH: /nowhere:/usr/games-of-old
        [127]
    "#]]
    .assert_eq(&scene.transcript(&["run", "--", "no-such-server"]));
}

#[test]
fn a_path_that_is_not_found() {
    check(
        &["run", "--", "./no/such/server"],
        &expect![[r#"
            $ leash run -- ./no/such/server
            error: command `./no/such/server` was not found

            hint: check the path; it is taken relative to --cwd
            [127]
        "#]],
    );
}

#[test]
fn a_command_that_is_a_directory() {
    check(
        &["run", "--", "/usr"],
        &expect![[r#"
            $ leash run -- /usr
            error: `/usr` cannot be executed: it is a directory

            hint: name a program, not a directory
            [126]
        "#]],
    );
}

#[test]
fn a_file_that_may_not_be_executed() {
    check(
        &["run", "--", "/etc/passwd"],
        &expect![[r#"
            $ leash run -- /etc/passwd
            error: `/etc/passwd` cannot be executed: permission denied

            hint: make it executable: chmod +x /etc/passwd
            [126]
        "#]],
    );
}

#[test]
fn a_script_without_its_interpreter() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = scene.dir().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("cannot write a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("cannot set its mode");
    expect![[r#"
        $ leash run -- DIR/script
        error: cannot execute `DIR/script`
          Caused by: No such file or directory (os error 2)

        hint: the file is not a program this machine can run, or its interpreter is missing
        [126]
    "#]]
    .assert_eq(&scene.transcript(&["run", "--", script.to_str().expect("a plain path")]));
}

#[test]
fn a_runtime_directory_that_is_a_file() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("LEASH_RUNTIME_DIR", "/dev/null");
    expect![[r#"
        $ leash run -- true
        error: runtime directory `/dev/null` is not a directory

        hint: set LEASH_RUNTIME_DIR to a directory that can be written; the ledger must exist before a server does
        [125]
    "#]]
    .assert_eq(&scene.transcript(&["run", "--", "true"]));
}

#[test]
fn a_runtime_directory_that_other_users_can_write_to() {
    let scene = or_skip!(Scene::set(Who::User));
    fs::set_permissions(scene.runtime_dir(), fs::Permissions::from_mode(0o777)).expect("cannot set its mode");
    let told = scene.transcript(&["run", "--", "true"]);
    expect![[r#"
        $ leash run -- true
        error: runtime directory `DIR/run` is writable by other users (mode 777)

        hint: set LEASH_RUNTIME_DIR to a directory of your own with mode 0700
        [125]
    "#]]
    .assert_eq(&told);
}
