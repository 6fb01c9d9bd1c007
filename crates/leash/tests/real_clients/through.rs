//! Every client through leash: it works and sees the same as without, and leash cleans up what it leaves.

use testkit::client::{Mode, Order, Sdk, Target};
use testkit::deps::Deps;
use testkit::or_skip;

use super::road::Way;
use super::{WORK, check_acts, check_close, each_client};

each_client!(serve_in_front_of_stdio: |sdk, mode| check_work(sdk, mode, Way::ServeStdio));
each_client!(serve_in_front_of_http: |sdk, mode| check_work(sdk, mode, Way::ServeHttp));
each_client!(connect: |sdk, mode| check_work(sdk, mode, Way::Connect));

/// Both commands in a row are nothing new after each of them: one client of each kind is enough.
#[test]
fn connect_and_serve() {
    for (sdk, mode) in [(Sdk::TypeScript1, Mode::Legacy), (Sdk::Python2, Mode::Auto), (Sdk::Rust, Mode::Modern)] {
        check_work(sdk, mode, Way::Both);
    }
}

/// All acts of a client in one conversation; with a session also the loss of leash's own connection to the server.
fn check_work(sdk: Sdk, mode: Mode, way: Way) {
    let deps = or_skip!(Deps::find());
    let road = or_skip!(way.build());
    let is_legacy = mode == Mode::Legacy;
    let relay = road.relay.as_ref().filter(|_| is_legacy);
    let acts = [&WORK[..], if relay.is_some() { &["resume"] } else { &[] }, &["close"]].concat();
    let mut client = road.start(&deps, Order { sdk, mode, acts: &acts, target: Target::Http(String::new()) });
    check_acts(&mut client, mode, is_legacy || way.ends_in_a_process());
    if let Some(relay) = relay {
        assert_eq!(client.outcome("resume")["started"], true);
        assert!(relay.cut() > 0);
        assert_eq!(client.outcome("resume")["text"], "slept 1000 ms");
    }
    check_close(&mut client);
    let mut reasons = road.check_end(is_legacy.into());
    if way == Way::Connect && sdk == Sdk::TypeScript2 && !is_legacy {
        // This client starts a process only to ask for its revision, and ends it in a way that differs.
        assert!(["stdin_closed", "signal"].contains(&&*reasons.remove(0)));
    }
    assert_eq!(reasons, expected_reasons(sdk, mode, way));
}

/// The expected reasons of the ends, in their order.
fn expected_reasons(sdk: Sdk, mode: Mode, way: Way) -> Vec<&'static str> {
    let is_legacy = mode == Mode::Legacy;
    match way {
        Way::ServeStdio | Way::ServeHttp if is_legacy && sdk.deletes_on_close() => vec!["client_deleted"],
        // The exit of its process is the only sign.
        Way::ServeStdio | Way::ServeHttp if is_legacy => vec!["owner_gone"],
        // It belongs to no single client, and stays for the next one.
        Way::ServeStdio => vec!["shutdown"],
        Way::ServeHttp => vec![],
        Way::Connect => vec!["stdin_closed"],
        Way::Both if is_legacy => vec!["client_deleted", "stdin_closed"],
        Way::Both => vec!["stdin_closed", "shutdown"],
    }
}
