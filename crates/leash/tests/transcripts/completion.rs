//! Completion in a real bash: the script asks leash, which knows what is alive.

use testkit::host::Manner;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

/// Loads the script and calls its function as bash does when a user presses the tab key. The words to complete come on
/// the command line, the candidates go to stdout.
const BASH: &str = r#"
source <("$LEASH" completions bash)
function=$(complete -p leash)
function=${function##*-F }
function=${function%% *}
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_TYPE=9
"$function" leash "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The candidates for the last word of a command line.
fn candidates(scene: &Scene, line: &str) -> Vec<String> {
    let mut command = scene.command("bash");
    command.env("LEASH", scene.leash_path()).args(["--norc", "-c", BASH, "bash"]).args(line.split(' '));
    let output = command.output().expect("cannot start bash");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[track_caller]
fn check(scene: &Scene, line: &str, expected: &[&str]) {
    let found = candidates(scene, line);
    let values: Vec<&str> = found.iter().map(String::as_str).filter(|value| !value.starts_with("--")).collect();
    assert_eq!(values, expected, "{line}: {found:?}");
}

#[test]
fn values_come_from_what_is_alive() {
    let mut scene = or_skip!(Scene::set(Who::User));
    check(&scene, "leash end ", &[]);
    let options = ["--session", "job-1", "--name", "sample", "--label", "team=red", "--grace", "100ms"];
    let words = scene.run_words(options, &scene.tree("setsid", [] as [&str; 0]));
    let host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    check(&scene, "leash end ", &["job-1"]);
    check(&scene, "leash end j", &["job-1"]);
    check(&scene, "leash end x", &[]);
    check(&scene, "leash end --match ", &["team=red"]);
    check(&scene, "leash run --session ", &["job-1"]);
    check(&scene, "leash history ", &[]);
    assert_eq!(scene.answer(["end", "--all"]).code, 0);
    check(&scene, "leash end ", &[]);
    check(&scene, "leash history ", &["job-1"]);
    scene.wait_gone(&[host.pid()]).expect("nothing but the host is left");
}

#[test]
fn clients_servers_and_containments_are_completed() {
    let scene = or_skip!(Scene::set(Who::User));
    check(&scene, "leash run --contain ", &["sealed", "unit", "leaf", "reaper", "group"]);
    check(&scene, "leash run --require r", &["reaper"]);
    check(&scene, "leash adopt cod", &["codex"]);
    check(&scene, "leash release ", &[]);
    std::fs::create_dir(scene.dir().join(".cursor")).expect("a directory");
    let text = r#"{"mcpServers": {"files": {"command": "x"}, "bad $(name)": {"command": "x"},
        "web": {"command": "leash", "args": ["run", "--", "y"]}}}"#;
    std::fs::write(scene.dir().join(".cursor/mcp.json"), text).expect("a file");
    check(&scene, "leash adopt --server ", &["files"]);
    check(&scene, "leash release --server ", &["web"]);
    check(&scene, "leash release ", &["cursor"]);
}

#[test]
fn commands_options_and_files_are_completed() {
    let scene = or_skip!(Scene::set(Who::User));
    check(&scene, "leash rel", &["release"]);
    assert_eq!(candidates(&scene, "leash serve --po"), ["--port"]);
    std::fs::write(scene.dir().join("notes.txt"), "").expect("a file");
    assert_eq!(candidates(&scene, "leash run -- cat not"), ["notes.txt"]);
    check(&scene, "leash completions ba", &["bash"]);
}
