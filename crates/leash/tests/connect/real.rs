//! Real servers behind `leash connect`.

use rustix::process::Signal;
use testkit::deps::Deps;
use testkit::everything::{Everything, Transport};
use testkit::fixture::Fixture;
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::wait::LIMIT;

use crate::host::{Connect, INITIALIZE, INITIALIZED, scene};

const ECHO: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#;
const LONG: &str = r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"trigger-long-running-operation","arguments":{"duration":1,"steps":3},"_meta":{"progressToken":"p"}}}"#;

fn check_everything(transport: Transport) {
    let deps = or_skip!(Deps::find());
    let server = Everything::start(&deps, transport);
    let scene = scene();
    let mut connect = Connect::start(&scene, &[server.url()]);
    connect.send(INITIALIZE);
    connect.wait(r#""protocolVersion":"2025-11-25""#);
    connect.send(INITIALIZED);
    connect.send(ECHO);
    assert!(connect.wait(r#""id":7"#).contains("Echo: hello"));
    connect.send(LONG);
    for step in 1..=3 {
        connect.wait(&format!(r#""progress":{step}"#));
    }
    connect.wait(r#""id":8"#);
    connect.close();
    assert_eq!(connect.code(), Some(0), "{}", scene.stderr());
    assert_eq!(scene.stderr(), "");
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    let how = if transport == Transport::Sse { "closed" } else { "deleted" };
    assert_eq!(receipt["holdings"][0]["how"], how, "{receipt:#}");
}

#[test]
fn everything_over_streamable_http() {
    check_everything(Transport::StreamableHttp);
}

#[test]
fn everything_over_sse() {
    check_everything(Transport::Sse);
}

/// An SDK in another language, which counts its sessions itself.
#[test]
fn the_rust_sdk_sees_its_session_deleted() {
    let fixture = Fixture::http(&[]);
    let scene = scene();
    let mut connect = Connect::start(&scene, &[fixture.url()]);
    connect.send(INITIALIZE);
    connect.wait(r#""protocolVersion""#);
    connect.send(INITIALIZED);
    connect.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    connect.wait(r#""tools""#);
    assert_eq!(fixture.report().open().len(), 1);
    let keeper = keeper(connect.pid());
    connect.signal(Signal::KILL);
    assert!(keeper.wait_gone(LIMIT));
    fixture.wait("the end of the session", |report| report.open().is_empty().then_some(()));
    assert_eq!(fixture.report().deleted().values().copied().collect::<Vec<_>>(), [1]);
}
