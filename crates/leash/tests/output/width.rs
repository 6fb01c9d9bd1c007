//! Tables fit the width of the terminal.

use testkit::host::Manner;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait;

use super::{on_terminal, runs, shell};

const NAME: &str = "an-mcp-server-with-a-name-that-is-much-too-long-for-a-table-日本語-🦀";

#[test]
fn tables_fit_the_terminal_and_a_pipe_gets_everything() {
    let scene = or_skip!(Scene::set(Who::User));
    let words = scene.run_words(["--name", NAME, "--session", "red", "--grace", "0"], &shell("exec cat"));
    let mut host = scene.host(&Manner::default(), None, &words);
    wait::until("the server", || (runs(&scene).first()?["phase"] == "running").then_some(()));
    let check = |command: &str, columns: usize| {
        let answer = scene.leash([command]).env("COLUMNS", columns.to_string()).output().expect("leash runs");
        let text = String::from_utf8(answer.stdout).expect("text");
        assert!(text.lines().all(|line| width(line) <= columns), "{command} at {columns}:\n{text}");
        assert!(text.contains("red") && text.contains("an-mcp"), "{command} at {columns}:\n{text}");
        assert_eq!(text.contains(NAME), columns == 200, "{command} at {columns}:\n{text}");
    };
    for columns in [40, 80, 200] {
        check("ps", columns);
    }
    let screen = on_terminal(&scene, 70, &["ps"], &[]);
    assert!(screen.contains('…') && screen.lines().all(|line| width(line) <= 70), "{screen}");
    let named = on_terminal(&scene, 70, &["ps"], &[("COLUMNS", "200")]);
    assert!(named.contains(NAME), "{named}");
    let help = on_terminal(&scene, 50, &["ps", "--help"], &[]);
    assert!(help.contains("Usage") && help.lines().all(|line| width(line) <= 50), "{help}");
    assert!(scene.answer(["ps"]).stdout.contains(NAME));
    assert_eq!(scene.answer(["end", "red"]).code, 0);
    for columns in [40, 80, 200] {
        check("history", columns);
    }
    assert!(scene.answer(["history"]).stdout.contains(NAME));
    host.close_stdin();
    scene.wait_gone(&[host.pid()]).expect("nothing but the host is left");
}

/// The columns of a line: the wide characters here are those of [`NAME`].
fn width(line: &str) -> usize {
    line.chars().map(|letter| if "日本語🦀".contains(letter) { 2 } else { 1 }).sum()
}
