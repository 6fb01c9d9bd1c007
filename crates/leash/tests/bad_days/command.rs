//! Commands that cannot be started, or barely.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{CANNOT_EXECUTE, FAILED, NOT_FOUND, answer, check_gone, check_refusal, trivial};

#[test]
fn not_found() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("PATH", "/nowhere:/usr/games-of-old");
    let answer = check_refusal(&scene, &mut scene.leash(["run", "--", "no-such-server"]), NOT_FOUND);
    assert!(answer.stderr.contains("no-such-server"), "{answer:?}");
    assert!(answer.stderr.contains("/nowhere:/usr/games-of-old"), "the PATH is not shown: {answer:?}");
}

#[test]
fn path_not_found() {
    let scene = or_skip!(Scene::set(Who::User));
    check_refusal(&scene, &mut scene.leash(["run", "--", "./no/such/server"]), NOT_FOUND);
}

#[test]
fn not_executable() {
    let scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("data");
    fs::write(&file, "no program").expect("cannot write a file");
    check_refusal(&scene, scene.leash(["run", "--"]).arg(file), CANNOT_EXECUTE);
}

#[test]
fn directory() {
    let scene = or_skip!(Scene::set(Who::User));
    check_refusal(&scene, scene.leash(["run", "--"]).arg("/usr"), CANNOT_EXECUTE);
}

/// As with `execvp`, which Node and Python use to start servers.
#[test]
fn script_without_interpreter_line() {
    let scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("script");
    fs::write(&file, "exit 9\n").expect("cannot write a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("cannot set its mode");
    assert_eq!(answer(scene.leash(["run", "--"]).arg(file)).code, 9);
    check_gone(&scene, &[]);
}

#[test]
fn missing_interpreter() {
    let scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("script");
    fs::write(&file, "#!/no/such/interpreter\n").expect("cannot write a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("cannot set its mode");
    let answer = check_refusal(&scene, scene.leash(["run", "--"]).arg(&file), CANNOT_EXECUTE);
    assert!(answer.stderr.contains(&*file.to_string_lossy()), "{answer:?}");
}

#[test]
fn missing_directory() {
    let scene = or_skip!(Scene::set(Who::User));
    let answer = check_refusal(&scene, &mut trivial(&scene, &["--cwd", "/no/such/directory"]), FAILED);
    assert!(answer.stderr.contains("/no/such/directory"), "{answer:?}");
}

#[test]
fn is_missing() {
    let scene = or_skip!(Scene::set(Who::User));
    let answer = scene.answer(["run"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{answer:?}");
}

/// As long as the kernel accepts, less what leash itself may need.
#[test]
fn long_command_line_is_passed() {
    let scene = or_skip!(Scene::set(Who::User));
    let word = "x".repeat(100_000);
    let mut command = scene.leash(["run", "--"]);
    command.arg(scene.zoo_path()).arg("env").args(std::iter::repeat_n(&word, 15));
    let answer = answer(&mut command);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let argv = &answer.json()["argv"];
    assert_eq!(argv.as_array().map(Vec::len), Some(17));
    assert_eq!(argv[16], word.as_str());
    check_gone(&scene, &[]);
}

/// At the limit the server gets all arguments, or leash says why not.
#[test]
fn command_line_at_the_limit_is_passed_or_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let word = "x".repeat(1000);
    // The kernel's limit is a quarter of the stack limit, including pointers.
    let fits = |count: usize| {
        let mut bare = scene.zoo(["exit", "0"]);
        bare.args(std::iter::repeat_n(&word, count)).output().is_ok()
    };
    let most = (1000..2100).rev().find(|&count| fits(count)).expect("nothing fits");
    for count in [most - 40, most - 4, most - 1] {
        let mut command = scene.leash(["run", "--"]);
        command.arg(scene.zoo_path()).args(["exit", "7"]).args(std::iter::repeat_n(&word, count));
        let Ok(output) = command.output() else {
            continue;
        };
        let answer = Answer::from(output);
        let said = [FAILED, CANNOT_EXECUTE].contains(&answer.code) && answer.stderr.contains("error: ");
        assert!(answer.code == 7 || said, "{count} of {most} words: {answer:?}");
        check_gone(&scene, &[]);
    }
}
