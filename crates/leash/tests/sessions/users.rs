//! Two users on one machine: neither sees nor ends the sessions of the other.

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use crate::stage::{Joiner, alive, wait_members};

/// Checks that another user cannot do anything with a session, with their own directory or with its owner's.
fn check_stranger(owner: &Scene, mut stranger: Scene) {
    assert_ne!(owner.user().uid(), stranger.user().uid(), "these are not two users");
    let blind = |stranger: &Scene| {
        let seen = stranger.answer(["ps"]);
        assert!(!seen.stdout.contains("red"), "{seen:?}");
        let json = stranger.answer(["ps", "--json"]);
        assert!(!json.stdout.contains("red"), "{json:?}");
        for words in [&["end", "red"][..], &["end", "--force", "red"], &["end", "--all"], &["end", "--match", "team=*"]]
        {
            let answer = stranger.answer(words);
            assert!(answer.stdout.is_empty() && !answer.stderr.contains("red: "), "{answer:?}");
        }
        assert_ne!(stranger.answer(["end", "red"]).code, 0);
        assert!(!stranger.answer(["history", "--json"]).stdout.contains("red"));
    };
    blind(&stranger);
    stranger.set_env("LEASH_RUNTIME_DIR", owner.runtime_dir());
    blind(&stranger);
    // Not even the user's own server can join a session of another user.
    let answer = stranger.answer(["run", "--session", "red", "--", "true"]);
    assert_eq!(answer.code, 125, "{answer:?}");
    assert_eq!(alive(owner), ["red"], "it is still there");
}

#[test]
fn sessions_are_their_users_own() {
    let mut owner = or_skip!(Scene::set(Who::User));
    let stranger = or_skip!(Scene::set(Who::User));
    if owner.user().uid() == stranger.user().uid() {
        testkit::note("skipped: only root can be two users");
        return;
    }
    let root = or_skip!(Scene::set(Who::Root));
    let mut member = Joiner::run(&owner, &["--session", "red", "--label", "team=red", "--grace", "0"], "setsid");
    owner.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait_members(&owner, "red", 1);
    check_stranger(&owner, stranger);
    // `leash end --all` of root ends root's own sessions only.
    check_stranger(&owner, root);
    assert!(member.is_alive() && owner.census().is_populated());
    assert_eq!(owner.answer(["end", "--all"]).code, 0);
    member.wait();
    owner.wait_gone(&[]).expect("nothing is left");
}
