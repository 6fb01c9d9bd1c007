//! Every client through leash: it does and sees what it does and sees without, and whatever it leaves undone at its end is done.

use testkit::client::{Mode, Order, Sdk, Target};
use testkit::deps::Deps;
use testkit::or_skip;

use super::road::Way;
use super::{WORK, check_acts, check_close, each_client};

each_client!(serve_in_front_of_stdio: |sdk, mode| check_work(sdk, mode, Way::ServeStdio));
each_client!(serve_in_front_of_http: |sdk, mode| check_work(sdk, mode, Way::ServeHttp));
each_client!(connect: |sdk, mode| check_work(sdk, mode, Way::Connect));

/// Both commands in a row are no other than each of them: one client of each kind will do.
#[test]
fn connect_and_serve() {
    for (sdk, mode) in [(Sdk::TypeScript1, Mode::Legacy), (Sdk::Python2, Mode::Auto), (Sdk::Rust, Mode::Modern)] {
        check_work(sdk, mode, Way::Both);
    }
}

/// Everything that a client does, in one conversation; with a session also the loss of leash's own connection to the server.
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
        // This one starts a process only to ask which revision it speaks, and ends it with whatever comes first.
        assert!(["stdin_closed", "signal"].contains(&&*reasons.remove(0)));
    }
    assert_eq!(reasons, expected_reasons(sdk, mode, way));
}

/// Why things ended, in the order in which they did.
fn expected_reasons(sdk: Sdk, mode: Mode, way: Way) -> Vec<&'static str> {
    let is_legacy = mode == Mode::Legacy;
    match way {
        Way::ServeStdio | Way::ServeHttp if is_legacy && sdk.deletes_on_close() => vec!["client_deleted"],
        // Its process is gone, and that is all that anybody will ever know.
        Way::ServeStdio | Way::ServeHttp if is_legacy => vec!["owner_gone"],
        // Nobody's in particular, and there for the next one who asks.
        Way::ServeStdio => vec!["shutdown"],
        Way::ServeHttp => vec![],
        Way::Connect => vec!["stdin_closed"],
        Way::Both if is_legacy => vec!["client_deleted", "stdin_closed"],
        Way::Both => vec!["stdin_closed", "shutdown"],
    }
}
