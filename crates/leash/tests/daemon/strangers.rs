//! Two users on one machine: neither can see, use or end the sessions of the other.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use testkit::gateway::Gateway;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::{create, socket, stdio_server};

/// Runs a `leash` command as the user of `scene`, with the runtime directory of `other`.
fn against(scene: &Scene, other: &Scene, words: &[&str]) -> Answer {
    let mut command = scene.leash(words);
    command.env("LEASH_RUNTIME_DIR", other.runtime_dir());
    command.output().expect("cannot start leash").into()
}

/// Opens all file permissions, so that only leash itself can refuse.
fn open_up(scene: &Scene) {
    for (path, mode) in [(scene.runtime_dir(), 0o755), (socket(scene), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("we may do everything");
    }
}

fn check(owner: Who, sent_away: &str) {
    let mut scene = or_skip!(Scene::set(owner));
    let stranger = or_skip!(Scene::set(Who::User));
    if stranger.user().uid() == scene.user().uid() {
        return testkit::note("skipped: there is only one user");
    }
    let gateway = Gateway::single(&scene, &[], &["cat".into()]);
    let session = create(&socket(&scene), &json!({ "mcpServers": { "a": stdio_server(&scene) } }));
    scene.census().wait_ready(LIMIT).expect("the server runs");
    let id = session["id"].as_str().expect("an id");
    let target = format!("{id}/a");
    let path = socket(&scene);
    for (opened, why) in [(false, "Permission denied"), (true, sent_away)] {
        if opened {
            open_up(&scene);
        }
        // With its own ledger, so that only the daemon can refuse.
        let attached = stranger.answer(["attach", "--control", path.to_str().expect("a plain path"), &target]);
        assert_eq!((attached.code, attached.stdout.as_str()), (125, ""), "{attached:?}");
        assert!(attached.stderr.contains(why), "{attached:?}");
        for words in [&["end", id][..], &["ps", "--json"], &["ps"]] {
            let answer = against(&stranger, &scene, words);
            assert!(!answer.stdout.contains(id), "{words:?}: {answer:?}");
        }
    }
    assert!(scene.census().is_populated(), "a stranger ended the session: {}", gateway.said());
    let own = super::ask(&socket(&scene), "GET", &format!("/v1/sessions/{id}"), "");
    assert_eq!(own.json()["state"], "live", "{}", own.text());
    // The other user's own runtime directory shows nothing of it either.
    let listed = stranger.answer(["ps", "--json"]);
    assert!(!listed.stdout.contains(id), "{listed:?}");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// A user's leash refuses to speak to another user's daemon.
#[test]
fn a_stranger_cannot_use_the_daemon_of_a_user() {
    check(Who::User, "belongs to a process of uid");
}

/// A user's leash trusts root, so root's daemon has to refuse the user.
#[test]
fn a_stranger_cannot_use_the_daemon_of_root() {
    check(Who::Root, "the answer of `leash serve` broke off");
}
