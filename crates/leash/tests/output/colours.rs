//! Colours: on a terminal, or if a user asks for them.

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::on_terminal;

const ESC: char = '\u{1b}';

/// True if the output of a command has colours, on stdout or stderr.
fn is_coloured(scene: &Scene, words: &[&str], variables: &[(&str, &str)]) -> bool {
    let answer = scene.leash(words).envs(variables.iter().copied()).output().expect("leash runs");
    let text = String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
    assert!(!text.is_empty(), "{words:?}");
    text.contains(ESC)
}

#[test]
fn a_pipe_gets_no_colours_unless_the_user_forces_them() {
    let scene = or_skip!(Scene::set(Who::User));
    let check = |words: &[&str], variables: &[(&str, &str)], expected: bool| {
        assert_eq!(is_coloured(&scene, words, variables), expected, "{words:?} {variables:?}");
    };
    for words in [&["history"][..], &["end", "nosuch"], &["--help"], &["end"], &["nosuch"], &["end", "--all", "nosuch"]]
    {
        check(words, &[], false);
        check(words, &[("CLICOLOR", "1"), ("TERM", "xterm")], false);
        check(words, &[("CLICOLOR_FORCE", "1")], true);
        check(words, &[("CLICOLOR_FORCE", "0")], false);
        check(words, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false);
        let always = [&["--color", "always"], words].concat();
        check(&always, &[("NO_COLOR", "1")], true);
        let never = [&["--color=never"], words].concat();
        check(&never, &[("CLICOLOR_FORCE", "1")], false);
    }
    check(&["history", "--color", "always"], &[], true);
    for json in [&["ps", "--json"][..], &["history", "--json"], &["end", "--all", "--json"], &["doctor", "--json"]] {
        check(&[&["--color", "always"], json].concat(), &[], false);
    }
}

#[test]
fn a_terminal_gets_colours_unless_a_variable_forbids_them() {
    let scene = or_skip!(Scene::set(Who::User));
    let check = |variables: &[(&str, &str)], expected: bool| {
        let text = on_terminal(&scene, 80, &["history"], variables);
        assert!(text.contains("ENDED"), "{text:?}");
        assert_eq!(text.contains(ESC), expected, "{variables:?}: {text:?}");
    };
    check(&[("TERM", "xterm")], true);
    check(&[("TERM", "dumb")], false);
    check(&[("TERM", "xterm"), ("NO_COLOR", "1")], false);
    check(&[("TERM", "xterm"), ("NO_COLOR", "")], true);
    check(&[("TERM", "xterm"), ("CLICOLOR", "0")], false);
}
