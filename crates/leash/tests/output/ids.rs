//! Ids are short in listings, accepted by a unique beginning, and whole in JSON.

use testkit::host::Manner;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait;

use super::{receipts, runs, shell};

#[test]
fn a_short_id_of_a_listing_names_its_session() {
    let scene = or_skip!(Scene::set(Who::User));
    let uuid = "0199a8f2-1c3e-7d10-9c55-0242ac120002";
    let next = "0199a8f2-1c3f-7d10-9c55-0242ac120002";
    let start = |options: &[&str]| scene.host(&Manner::default(), None, &scene.run_words(options, &shell("exec cat")));
    let mut hosts = [
        start(&["--grace", "0"]),
        start(&["--grace", "0", "--session", uuid]),
        start(&["--grace", "0", "--session", next]),
        start(&["--grace", "0", "--session", "a-long-name-of-a-user"]),
    ];
    let all = wait::until("four runs", || {
        let runs = runs(&scene);
        (runs.len() == 4 && runs.iter().all(|run| run["phase"] == "running")).then_some(runs)
    });
    let own = all.iter().find(|run| run["session"] == run["run"]).expect("a session of its own");
    let id = own["session"].as_str().expect("an id");
    let shown = |command: &str| -> Vec<String> {
        let text = scene.answer([command]).stdout;
        let column = if command == "ps" { 0 } else { 2 };
        text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(column)).map(str::to_owned).collect()
    };
    let mut short = shown("ps");
    short.sort();
    let mut expected = [&id[..8], "0199a8f2-1c3e", "0199a8f2-1c3f", "a-long-name-of-a-user"].map(str::to_owned);
    expected.sort();
    assert_eq!(short, expected);

    let several = scene.answer(["end", "0199"]);
    assert_eq!(several.code, 1, "{several:?}");
    let list = "`0199` is the beginning of 2 sessions: 0199a8f2-1c3e, 0199a8f2-1c3f";
    assert!(several.stderr.contains(list), "{several:?}");
    let name = scene.answer(["end", "a-long"]);
    assert!(name.stderr.contains("no session `a-long` is alive"), "{name:?}");
    for word in &short {
        let alone = scene.answer(["ps", word]);
        assert_eq!((alone.code, alone.stdout.lines().count()), (0, 2), "{alone:?}");
        assert!(alone.stdout.lines().any(|line| line.starts_with(&**word)), "{alone:?}");
    }
    assert_eq!(scene.answer(["ps", "0199"]).code, 1);
    for word in &short {
        let ended = scene.answer(["end", word]);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    assert_eq!(runs(&scene).len(), 0);
    let mut ended = shown("history");
    ended.sort();
    assert_eq!(ended, expected);
    for word in &ended {
        let answer = scene.answer(["history", word]);
        assert_eq!((answer.code, answer.stdout.lines().count()), (0, 2), "{answer:?}");
    }
    assert!(receipts(&scene).iter().any(|receipt| receipt["session"] == id), "JSON has the whole id");
    hosts.iter_mut().for_each(|host| host.close_stdin());
    let hosts: Vec<_> = hosts.iter().map(|host| host.pid()).collect();
    scene.wait_gone(&hosts).expect("nothing but the hosts is left");
}
