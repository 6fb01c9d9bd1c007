//! The roles and the load generator against each other, in one process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use tokio::net::TcpListener;

use super::super::client::{Connection, Endpoint};
use super::super::load::{Driver, Lane};
use super::{body, bridge, echo, forward, server};
use crate::step::{Failure, Outcome};

/// Connects `client` to a role.
fn play<T>(
    role: impl AsyncFnOnce(TcpListener) -> io::Result<()>,
    client: impl AsyncFnOnce(Endpoint) -> Outcome<T>,
) -> Outcome<T> {
    Driver::new()?.run(Duration::ZERO, async {
        let (listener, at) = listen();
        let endpoint = Endpoint::new(at, "/mcp", "echo")?;
        tokio::select! {
            ended = role(listener) => Err(Failure::new(format!("the role ended: {ended:?}"))),
            done = client(endpoint) => done,
        }
    })
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = server::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("there is a port");
    let at = listener.local_addr().expect("it has an address");
    (listener, at)
}

/// Uses every operation of a session, and checks that the session is over after it was closed.
async fn whole_life(to: Endpoint) -> Outcome {
    let mut connection = Connection::open(&to).await?;
    let session = connection.initialize(&to).await?;
    connection.call(&to, &session).await?;
    connection.call(&to, &session).await?;
    let mut other = Connection::open(&to).await?;
    let listening = other.listen(&to, &session).await?;
    connection.delete(&to, &session).await?;
    listening.end().await?;
    match connection.call(&to, &session).await {
        Err(why) if why.to_string().contains("404") => Ok(()),
        other => Err(Failure::new(format!("a call after the end: {other:?}"))),
    }
}

#[test]
fn session_with_the_server_itself_works() {
    play(echo::on_http, whole_life).expect("it lives and ends");
}

#[test]
fn session_through_the_http_floor_works() {
    let both = async |listener| {
        let (behind, upstream) = listen();
        tokio::select! {
            ended = echo::on_http(behind) => ended,
            ended = forward::run(listener, upstream) => ended,
        }
    };
    play(both, whole_life).expect("it lives and ends");
}

#[test]
fn a_floor_without_a_server_ends() {
    let ended = play(async |listener| bridge::run(listener, &["true".into()]).await, whole_life);
    assert!(ended.expect_err("there is no server to answer").to_string().contains("the server has ended"));
}

#[test]
fn calls_are_counted_and_timed() {
    let time = Duration::from_millis(20);
    let (trip, (calls, took)) = play(echo::on_http, async |to| {
        let lane = Lane::open(&to).await?;
        let found = (lane.one_by_one(time).await?, lane.at_once(time).await?);
        lane.close().await.map(|()| found)
    })
    .expect("every call is answered");
    assert!(trip.p50 > 0.0 && trip.p50 <= trip.p99, "{trip:?}");
    assert!(calls >= 16 && took >= time, "{calls} in {took:?}");
}

#[test]
fn an_answer_to_another_call_is_a_failure() {
    // It has the right form, but the same text for every call.
    const SAME: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"1-"}]}}"#;
    let asked = play(
        async |listener| {
            server::serve(listener, |_| async { Ok(body::json(Bytes::from_static(SAME.as_bytes()))) }).await
        },
        async |to| Lane::open(&to).await?.one_by_one(Duration::from_secs(1)).await,
    );
    let failed = asked.expect_err("it was not asked that").to_string();
    assert!(failed.contains("this answers"), "{failed}");
}

#[test]
fn a_refusal_is_a_failure_with_its_status() {
    let refused = play(
        async |listener| server::serve(listener, |_| async { Ok(body::empty(StatusCode::SERVICE_UNAVAILABLE)) }).await,
        async |to| Lane::open(&to).await.map(drop),
    );
    let failed = refused.expect_err("it was refused").to_string();
    assert!(failed.contains("503"), "{failed}");
}
