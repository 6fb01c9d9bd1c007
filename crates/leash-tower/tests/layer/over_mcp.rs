//! In front of the official SDK: the effect of its own timer, and the behaviour without that timer under the guard.

use hyper::{Method, StatusCode};
use leash_model::receipt::{DeleteHow, Reason};
use leash_tower::{GuardedSessions, SessionGuard, SessionGuardLayer};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::mcp::{self, Below, Mcp};
use super::{Ends, IDLE, request, send, session_of, soon, text, until};

struct Stage {
    below: Below,
    service: SessionGuard<Mcp>,
    sessions: GuardedSessions,
    ends: Ends,
}

impl Stage {
    fn set(guard: SessionGuardLayer, slow_handshake: bool) -> Stage {
        let (service, below) = mcp::service(None, slow_handshake);
        let (guard, ends) = Ends::of(guard);
        Stage { below, service: guard.layer(service), sessions: guard.sessions(), ends }
    }

    /// Opens a session that is ready for calls.
    async fn open(&self) -> String {
        let answer = send(&self.service, mcp::initialize()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let session = session_of(&answer);
        assert!(text(answer.into_body()).await.contains("protocolVersion"));
        let accepted = send(&self.service, mcp::initialized(&session)).await;
        assert_eq!(accepted.status(), StatusCode::ACCEPTED);
        session
    }

    async fn empty(&self) {
        until("the SDK to be empty", async || (self.below.open().await == 0).then_some(())).await;
        assert_eq!(self.sessions.list(), []);
    }
}

/// This is a fault of the SDK and the reason for the guard. If it changes, the advice to turn the timer off should go.
#[tokio::test]
async fn sdk_timer_cuts_a_pending_call() {
    let (service, below) = mcp::service(Some(IDLE), false);
    let answer = send(&service, mcp::initialize()).await;
    let session = session_of(&answer);
    text(answer.into_body()).await;
    send(&service, mcp::initialized(&session)).await;
    let call = send(&service, mcp::call(&session)).await;
    soon("the call", below.called.notified()).await;
    // The stream ends without an answer.
    let said = text(call.into_body()).await;
    assert!(!said.contains("done at last") && !said.contains("\"result\""), "{said}");
}

#[tokio::test]
async fn a_call_that_is_longer_than_the_idle_time_is_answered() {
    let stage = Stage::set(SessionGuardLayer::new().idle(IDLE), false);
    let session = stage.open().await;
    let call = send(&stage.service, mcp::call(&session)).await;
    soon("the call", stage.below.called.notified()).await;
    for _ in 0..3 {
        // Meanwhile the whole idle time of another session has passed.
        let idle = stage.open().await;
        let ended = stage.ends.next().await;
        assert_eq!((ended.session, ended.reason, ended.how), (idle, Reason::Idle, DeleteHow::Deleted));
    }
    stage.below.calls.add_permits(1);
    assert!(text(call.into_body()).await.contains("done at last"));
    let ended = stage.ends.next().await;
    assert_eq!((ended.session, ended.reason), (session, Reason::Idle));
    stage.empty().await;
}

#[tokio::test]
async fn open_stream_keeps_its_session() {
    let stage = Stage::set(SessionGuardLayer::new().idle(IDLE), false);
    let session = stage.open().await;
    let stream = send(&stage.service, request(Method::GET, Some(&session), "")).await;
    assert_eq!(stream.status(), StatusCode::OK);
    let idle = stage.open().await;
    assert_eq!(stage.ends.next().await.session, idle);
    assert_eq!(stage.sessions.list().len(), 1);
    drop(stream);
    assert_eq!(stage.ends.next().await.session, session);
    stage.empty().await;
}

#[tokio::test]
async fn max_age_ends_a_pending_call() {
    let stage = Stage::set(SessionGuardLayer::new().max_age(IDLE), false);
    let session = stage.open().await;
    let call = send(&stage.service, mcp::call(&session)).await;
    let ended = stage.ends.next().await;
    assert_eq!((ended.session, ended.reason, ended.how), (session, Reason::MaxAge, DeleteHow::Deleted));
    assert!(!text(call.into_body()).await.contains("done at last"));
    stage.empty().await;
}

#[tokio::test]
async fn an_abandoned_handshake_leaves_no_session() {
    let stage = Stage::set(SessionGuardLayer::new().idle(None), true);
    let mut service = stage.service.clone();
    let leaving = tokio::time::timeout(IDLE, service.call(mcp::initialize()));
    let (left, ()) = tokio::join!(leaving, soon("the handshake", stage.below.called.notified()));
    assert!(left.is_err(), "the client has gone away");
    assert_eq!(stage.below.open().await, 1);
    stage.below.handshakes.as_ref().unwrap().add_permits(1);
    assert_eq!(stage.ends.next().await.reason, Reason::ClientLeft);
    stage.empty().await;
}

/// A handshake may name a version without sessions, in its header as well. The SDK opens a session all the same, and
/// would refuse a DELETE with that version.
#[tokio::test]
async fn a_handshake_of_a_modern_client_is_guarded() {
    let stage = Stage::set(SessionGuardLayer::new().idle(IDLE), false);
    let (mut head, _) = mcp::initialize().into_parts();
    head.headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
    let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let answer = send(&stage.service, hyper::Request::from_parts(head, body.into())).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let session = session_of(&answer);
    text(answer.into_body()).await;
    let ended = stage.ends.next().await;
    assert_eq!((ended.session.as_str(), ended.how), (session.as_str(), DeleteHow::Deleted), "{ended:?}");
    stage.empty().await;
}

/// A thousand clients: some delete their session, some are ended, some leave in the middle of a call or of the
/// handshake, most just stop sending.
#[tokio::test]
async fn nothing_is_left_of_a_thousand_sessions() {
    const SESSIONS: usize = 1000;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let stage = Stage::set(SessionGuardLayer::new().idle(IDLE).max_sessions(SESSIONS), false);
    let before = tasks();
    for number in 0..SESSIONS {
        match number % 5 {
            0 => {
                let session = stage.open().await;
                let answer = send(&stage.service, request(Method::DELETE, Some(&session), "")).await;
                assert_eq!(answer.status(), StatusCode::ACCEPTED);
            }
            1 => {
                // On a busy machine it may have expired before.
                let session = stage.open().await;
                let _ = soon("the end", stage.sessions.end(&session)).await;
            }
            2 => {
                let session = stage.open().await;
                drop(send(&stage.service, mcp::call(&session)).await);
            }
            3 => {
                let mut service = stage.service.clone();
                let _ = poll_once(service.call(mcp::initialize())).await;
            }
            _ => drop(stage.open().await),
        }
    }
    for _ in 0..SESSIONS {
        let ended = stage.ends.next().await;
        assert!(ended.is_gone(), "{ended:?}");
    }
    stage.empty().await;
    stage.below.calls.add_permits(SESSIONS);
    until("every task to be gone", async || (tasks() <= before).then_some(())).await;
}

/// Polls once, and drops the future if it is not ready: a client that leaves at the first opportunity.
async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
