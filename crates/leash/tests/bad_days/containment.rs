//! Containments that are not available.

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::{User, Who};

use super::{FAILED, answer, check_refusal, trivial};

/// leash does not start a server with less than the required containment.
#[test]
fn required_one_is_missing() {
    or_skip!(User::find(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    let answer = check_refusal(&scene, &mut trivial(&scene, &["--require", "leaf"]), FAILED);
    assert!(answer.stderr.contains("leaf"), "{answer:?}");
}

#[test]
fn asked_for_is_missing() {
    or_skip!(User::find(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    for name in ["unit", "leaf"] {
        let answer = check_refusal(&scene, &mut trivial(&scene, &["--contain", name]), FAILED);
        assert!(answer.stderr.contains(name), "{answer:?}");
    }
}

#[test]
fn unknown_name_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    assert_eq!(answer(&mut trivial(&scene, &["--contain", "cardboard"])).code, 2);
}

/// Without any option, leash takes the best available containment and says why it is not better.
#[test]
fn worse_one_is_explained() {
    or_skip!(User::find(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    let answer = answer(&mut trivial(&scene, &["-v"]));
    assert_eq!(answer.code, 0, "{answer:?}");
    for word in ["reaper", "not leaf", "not unit"] {
        assert!(answer.stderr.contains(word), "no `{word}`: {answer:?}");
    }
}
