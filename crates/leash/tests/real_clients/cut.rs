//! The connection between a client and leash is cut in the middle of a call. (`through` cuts the one between leash and
//! the server.)

use serde_json::Value;
use testkit::client::{Mode, Order, Sdk, Target};
use testkit::deps::Deps;
use testkit::gateway::Gateway;
use testkit::relay::Relay;
use testkit::{or_skip, wait};

use super::each_legacy_client;
use super::road::{Road, Way};

each_legacy_client!(is_resumed_over_http: |sdk| check_resume(sdk, Way::ServeHttp));
each_legacy_client!(is_resumed_over_stdio: |sdk| check_resume(sdk, Way::ServeStdio));

/// A way with HTTP at the client's side, with a relay in front of it. The relay is in this process, so this process is
/// the owner of all sessions: abandoned ones end with the gateway.
fn relayed(way: Way) -> Result<(Road, Relay), String> {
    let mut road = way.build()?;
    let gateway = road.gateway.as_ref().expect("there is one on this way");
    let relay = Relay::to(gateway.address());
    road.target = Target::Http(relay.url(&gateway.url("x")));
    Ok((road, relay))
}

fn check_resume(sdk: Sdk, way: Way) {
    let deps = or_skip!(Deps::find());
    let (road, relay) = or_skip!(relayed(way));
    let order = Order { sdk, mode: Mode::Legacy, acts: &["resume", "count", "close"], target: road.target.clone() };
    let mut client = road.start(&deps, order);
    client.outcome("connect");
    assert_eq!(client.outcome("resume")["started"], true);
    assert!(relay.cut() > 0);
    assert_eq!(client.outcome("resume")["text"], "slept 1000 ms");
    // It is the same session.
    assert_eq!(client.outcome("count")["counts"], serde_json::json!(["1", "2"]));
    client.outcome("close");
    assert!(client.wait().success());
    if let Some(fixture) = &road.fixture {
        let report = fixture.report();
        let resumed = |seen: &Value| seen["http"] == "GET" && seen["lastEventId"].is_string();
        assert!(report.requests().iter().any(resumed), "{:#?}", report.requests());
        assert_eq!((report.opened(), report.cancelled()), (1, 0));
    }
    let reason = if sdk.deletes_on_close() { "client_deleted" } else { "shutdown" };
    assert_eq!(road.check_stop(1), [reason]);
}

/// A client that disconnects in the middle of a modern call has cancelled it, and leash tells the server.
#[test]
fn cancels_a_modern_call() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript2, Sdk::Python2, Sdk::Rust] {
        for way in [Way::ServeHttp, Way::ServeStdio] {
            let (road, relay) = or_skip!(relayed(way));
            let order = Order { sdk, mode: Mode::Modern, acts: &["wait"], target: road.target.clone() };
            let mut client = road.start(&deps, order);
            client.outcome("connect");
            assert_eq!(client.outcome("wait")["started"], true);
            assert!(relay.cut() > 0);
            let gateway = road.gateway.as_ref().expect("there is one on this way");
            let heard = wait::within(wait::LIMIT, || (cancelled(gateway) == 1).then_some(()));
            assert!(heard.is_some(), "{sdk:?} {way:?}: {} cancelled", cancelled(gateway));
            // The rest depends on the client's SDK: one of them waits for its own timeout.
            drop(client);
            road.check_stop(0);
        }
    }
}

/// leash loses its connection in the middle of a modern call: the host gets an error, because the call cannot be
/// resumed.
#[test]
fn fails_a_modern_call_of_connect() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript2, Sdk::Python2, Sdk::Rust] {
        let road = or_skip!(Way::Connect.build());
        let acts = ["wait", "call", "close"];
        let mut client = road.start(&deps, Order { sdk, mode: Mode::Modern, acts: &acts, target: road.target.clone() });
        client.outcome("connect");
        assert_eq!(client.outcome("wait")["started"], true);
        assert!(road.relay.as_ref().expect("it is an HTTP server").cut() > 0);
        let outcome = client.outcome("wait");
        assert!(outcome["error"].is_string(), "{outcome}");
        let outcome = client.outcome("call");
        assert_eq!(outcome["text"], "hello, wörld ✓", "{sdk:?}: {outcome}");
        client.outcome("close");
        assert!(client.wait().success());
        let fixture = road.fixture.as_ref().expect("it is an HTTP server");
        fixture.wait("the cancellation", |report| (report.cancelled() == 1).then_some(()));
        road.check_end(0);
    }
}

/// The number of cancelled calls that the fixture knows, from a modern call: there is no other way to reach a fixture
/// behind a pipe.
fn cancelled(gateway: &Gateway) -> u64 {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let params = format!(r#"{{"name":"census","arguments":{{}},"_meta":{meta}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let mut headers = testkit::http::POST.to_vec();
    headers.extend([("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "census")]);
    let reply = gateway.ask("POST", "/x/mcp", &headers, body.as_bytes());
    let text = reply.json()["result"]["content"][0]["text"].as_str().map(str::to_owned);
    let census: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    let cancelled = census.and_then(|census| census["cancelled"].as_u64());
    cancelled.unwrap_or_else(|| panic!("not a census: {}", reply.text()))
}
