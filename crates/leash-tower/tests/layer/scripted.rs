//! The guard with every kind of answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};
use leash_model::receipt::{DeleteHow, Reason};
use leash_tower::{Ended, GuardedSessions, SessionGuard, SessionGuardLayer};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::script::Script;
use super::{Ends, IDLE, LIMIT, request, send, session_of, soon, text, until};

struct Stage {
    script: Script,
    service: SessionGuard<Script>,
    sessions: GuardedSessions,
    ends: Ends,
}

impl Stage {
    fn set(script: Script, guard: SessionGuardLayer) -> Stage {
        let (guard, ends) = Ends::of(guard);
        Stage { service: guard.layer(script.clone()), sessions: guard.sessions(), script, ends }
    }

    /// A guard whose sessions never expire.
    fn calm() -> Stage {
        Stage::set(Script::new(), SessionGuardLayer::new().idle(None))
    }

    async fn status(&self, request: Request<Full<Bytes>>) -> u16 {
        let answer = send(&self.service, request).await;
        let status = answer.status().as_u16();
        text(answer.into_body()).await;
        status
    }

    async fn open(&self) -> String {
        let answer = send(&self.service, request(Method::POST, None, "{}")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        session_of(&answer)
    }

    async fn call(&self, session: &str) -> u16 {
        self.status(request(Method::POST, Some(session), "{}")).await
    }

    /// The number of sessions that the service has opened, and the number that are open.
    fn counts(&self) -> (usize, usize) {
        let world = self.script.world();
        (world.opened, world.open.len())
    }

    fn open_below(&self) -> usize {
        self.script.world().open.len()
    }
}

fn check(ended: &Ended, session: &str, reason: Reason, how: DeleteHow) {
    assert_eq!((ended.session.as_str(), &ended.reason, ended.how), (session, &reason, how), "{ended:?}");
}

#[tokio::test]
async fn an_ended_session_is_404_and_never_reaches_the_service() {
    let stage = Stage::calm();
    let session = stage.open().await;
    assert_eq!(stage.call(&session).await, 200);
    let ended = soon("the end", stage.sessions.end(&session)).await.unwrap();
    check(&ended, &session, Reason::PROGRAM, DeleteHow::Deleted);
    assert!(ended.is_gone());
    // The service would accept it again.
    stage.script.world().open.insert(session.clone());
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let answer = send(&stage.service, request(method, Some(&session), "{}")).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert!(text(answer.into_body()).await.contains("Session not found"));
    }
    assert_eq!(stage.script.world().deletes.len(), 1);
    assert_eq!(stage.sessions.end(&session).await, None);
    assert_eq!(stage.call("never-heard-of").await, 404);
}

#[tokio::test]
async fn an_idle_session_ends() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().idle(IDLE));
    let session = stage.open().await;
    let listed = stage.sessions.list();
    assert_eq!((listed.len(), listed[0].id.as_str(), listed[0].in_flight), (1, session.as_str(), 0));
    assert!(matches!(&listed[0].ends_in, Some((left, Reason::Idle)) if *left <= IDLE), "{listed:?}");
    check(&stage.ends.next().await, &session, Reason::Idle, DeleteHow::Deleted);
    assert_eq!((stage.open_below(), stage.sessions.list().len()), (0, 0));
}

#[tokio::test]
async fn an_old_session_ends_though_it_is_used() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().max_age(IDLE));
    let session = stage.open().await;
    // The answer is pending as long as the test keeps it.
    let answer = send(&stage.service, request(Method::POST, Some(&session), "{}")).await;
    check(&stage.ends.next().await, &session, Reason::MaxAge, DeleteHow::Deleted);
    drop(answer);
    assert_eq!(stage.open_below(), 0);
}

#[tokio::test]
async fn an_answer_counts_until_its_body_has_ended() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().idle(IDLE));
    let busy = stage.open().await;
    let post = send(&stage.service, request(Method::POST, Some(&busy), "{}")).await;
    for held in [Some(post), None] {
        let listens = send(&stage.service, request(Method::GET, Some(&busy), "")).await;
        drop(held);
        // The end of another, unused session shows that the idle time is over.
        let idle = stage.open().await;
        check(&stage.ends.next().await, &idle, Reason::Idle, DeleteHow::Deleted);
        assert_eq!(stage.sessions.list().len(), 1, "it is in use");
        assert_eq!(text(listens.into_body()).await, "{}");
    }
    check(&stage.ends.next().await, &busy, Reason::Idle, DeleteHow::Deleted);
}

#[tokio::test]
async fn limit_answers_503_and_frees_slots_again() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().max_sessions(2));
    let (first, _second) = (stage.open().await, stage.open().await);
    let refused = send(&stage.service, request(Method::POST, None, "{}")).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "5"));
    assert!(text(refused.into_body()).await.contains("Too many sessions"));
    assert_eq!(stage.script.world().opened, 2, "it never reached the service");
    assert_eq!(stage.call(&first).await, 200);
    soon("the end", stage.sessions.end(&first)).await.unwrap();
    stage.open().await;
}

#[tokio::test]
async fn request_that_opens_no_session_takes_no_slot() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().max_sessions(1));
    for _ in 0..3 {
        let mut stateless = request(Method::POST, None, "{}");
        stateless.headers_mut().insert("x-stateless", "1".parse().unwrap());
        assert_eq!(stage.status(stateless).await, 200);
    }
    stage.open().await;
    assert!(stage.ends.none_yet().await);
}

#[tokio::test]
async fn modern_request_needs_no_slot() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().max_sessions(0));
    let modern = |session: Option<&str>, stateless: bool| {
        let mut request = request(Method::POST, session, "{}");
        let headers = request.headers_mut();
        headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
        headers.insert("mcp-method", "tools/list".parse().unwrap());
        if stateless {
            headers.insert("x-stateless", "1".parse().unwrap());
        }
        request
    };
    assert_eq!(stage.status(modern(None, true)).await, 200);
    // A session that the guard does not know is passed to the service, which answers 404 here.
    assert_eq!(stage.status(modern(Some("unknown"), false)).await, 404);
    // A request that opens a session all the same is refused, and its session is ended.
    assert_eq!(stage.status(modern(None, false)).await, 503);
    assert_eq!(stage.counts(), (1, 0));
}

#[tokio::test]
async fn delete_has_the_last_accepted_headers_of_the_client() {
    let stage = Stage::calm();
    let with = |session: Option<&str>, credential: &'static str| {
        let mut request = request(Method::POST, session, "{}");
        request.headers_mut().insert("authorization", credential.parse().unwrap());
        request
    };
    stage.script.world().credential = Some("Bearer 1");
    let answer = send(&stage.service, with(None, "Bearer 1")).await;
    let session = session_of(&answer);
    drop(answer);
    stage.script.world().credential = Some("Bearer 2");
    let mut renewed = with(Some(&session), "Bearer 2");
    renewed.headers_mut().insert("mcp-protocol-version", "2025-06-18".parse().unwrap());
    assert_eq!(stage.status(renewed).await, 200);
    assert_eq!(stage.status(with(Some(&session), "Bearer stolen-id")).await, 401);
    let ended = soon("the end", stage.sessions.end(&session)).await.unwrap();
    check(&ended, &session, Reason::PROGRAM, DeleteHow::Deleted);
    let world = stage.script.world();
    let sent = |name: &str| world.deletes[0].get(name).map(|value| value.to_str().unwrap());
    assert_eq!(sent("authorization"), Some("Bearer 2"));
    assert_eq!(sent("mcp-protocol-version"), Some("2025-06-18"));
    assert_eq!(sent("mcp-session-id"), Some(session.as_str()));
    assert_eq!(sent("host"), Some("localhost"));
    assert_eq!(sent("content-type"), None);
}

#[tokio::test]
async fn a_delete_of_the_client_is_enough() {
    let stage = Stage::calm();
    let session = stage.open().await;
    assert_eq!(stage.status(request(Method::DELETE, Some(&session), "")).await, 204);
    let ended = stage.ends.next().await;
    check(&ended, &session, Reason::ClientDeleted, DeleteHow::Deleted);
    assert_eq!((ended.tries, ended.status), (0, Some(204)));
    assert_eq!(stage.script.world().deletes.len(), 1);
    assert_eq!(stage.call(&session).await, 404);
}

#[tokio::test]
async fn a_delete_that_was_refused_ends_nothing() {
    let stage = Stage::calm();
    let session = stage.open().await;
    for refusal in [StatusCode::UNAUTHORIZED, StatusCode::METHOD_NOT_ALLOWED, StatusCode::INTERNAL_SERVER_ERROR] {
        stage.script.world().refusals.push_back(refusal);
        assert_eq!(stage.status(request(Method::DELETE, Some(&session), "")).await, refusal.as_u16());
        assert_eq!(stage.call(&session).await, 200);
    }
    assert!(stage.ends.none_yet().await);
}

#[tokio::test]
async fn delete_is_retried_after_a_server_error() {
    let stage = Stage::calm();
    let session = stage.open().await;
    stage.script.world().refusals.push_back(StatusCode::INTERNAL_SERVER_ERROR);
    let ended = soon("the end", stage.sessions.end(&session)).await.unwrap();
    check(&ended, &session, Reason::PROGRAM, DeleteHow::Deleted);
    assert_eq!((ended.tries, stage.open_below()), (2, 0));
}

#[tokio::test]
async fn refused_delete_is_reported() {
    let stage = Stage::calm();
    for (refusal, how) in [
        (StatusCode::METHOD_NOT_ALLOWED, DeleteHow::Unsupported),
        (StatusCode::FORBIDDEN, DeleteHow::Denied),
        (StatusCode::GONE, DeleteHow::Forgotten),
    ] {
        let session = stage.open().await;
        stage.script.world().refusals.push_back(refusal);
        let ended = soon("the end", stage.sessions.end(&session)).await.unwrap();
        check(&ended, &session, Reason::PROGRAM, how);
        assert_eq!(ended.is_gone(), how == DeleteHow::Forgotten);
        assert_eq!(stage.call(&session).await, 404);
    }
}

#[tokio::test]
async fn body_of_a_refused_delete_decides_whether_the_session_is_gone() {
    let stage = Stage::calm();
    let long = "Session not found".repeat(10_000).leak();
    for (refusal, text, how) in [
        (StatusCode::BAD_REQUEST, "Session not found", DeleteHow::Forgotten),
        (StatusCode::BAD_REQUEST, "Unsupported protocol version", DeleteHow::Unsupported),
        (StatusCode::BAD_REQUEST, long, DeleteHow::Unsupported),
        (StatusCode::NOT_FOUND, "Session not found", DeleteHow::Forgotten),
        (StatusCode::NOT_FOUND, "<pre>Cannot DELETE /mcp</pre>", DeleteHow::Unsupported),
    ] {
        let session = stage.open().await;
        stage.script.world().refusal_text = text;
        stage.script.world().refusals.push_back(refusal);
        let ended = soon("the end", stage.sessions.end(&session)).await.unwrap();
        check(&ended, &session, Reason::PROGRAM, how);
        assert_eq!((ended.is_gone(), ended.tries), (how == DeleteHow::Forgotten, 1));
    }
}

#[tokio::test]
async fn a_400_to_a_delete_of_the_client_ends_nothing() {
    let stage = Stage::calm();
    let session = stage.open().await;
    stage.script.world().refusal_text = "Session not found";
    stage.script.world().refusals.push_back(StatusCode::BAD_REQUEST);
    let answer = send(&stage.service, request(Method::DELETE, Some(&session), "")).await;
    assert_eq!((answer.status().as_u16(), text(answer.into_body()).await.as_str()), (400, "Session not found"));
    assert!(stage.ends.none_yet().await);
    let ended = soon("the end", stage.sessions.end(&session)).await.unwrap();
    check(&ended, &session, Reason::PROGRAM, DeleteHow::Deleted);
}

#[tokio::test]
async fn a_session_that_the_service_forgot_is_over() {
    let stage = Stage::calm();
    let session = stage.open().await;
    for method in [Method::POST, Method::DELETE] {
        let mut elsewhere = request(method, Some(&session), "{}");
        *elsewhere.uri_mut() = "http://localhost/other".parse().unwrap();
        assert_eq!(stage.status(elsewhere).await, 404);
        assert_eq!(stage.call(&session).await, 200, "what is not there at another path says nothing of the session");
    }
    stage.script.world().open.clear();
    assert_eq!(stage.call(&session).await, 404);
    check(&stage.ends.next().await, &session, Reason::UpstreamForgot, DeleteHow::Forgotten);
}

#[tokio::test]
async fn session_of_a_client_that_left_during_initialize_is_ended() {
    let (script, gate) = Script::gated();
    let stage = Stage::set(script, SessionGuardLayer::new().idle(None));
    let mut service = stage.service.clone();
    let leaving = tokio::time::timeout(IDLE, service.call(request(Method::POST, None, "{}")));
    let (left, ()) = tokio::join!(leaving, stage.script.at_the_gate());
    assert!(left.is_err(), "the client has gone away");
    assert_eq!(stage.script.world().opened, 0);
    gate.add_permits(1);
    check(&stage.ends.next().await, "s-1", Reason::ClientLeft, DeleteHow::Deleted);
    assert_eq!(stage.counts(), (1, 0));
}

#[tokio::test]
async fn a_slow_initialize_is_504_and_its_late_session_is_ended() {
    let (script, gate) = Script::gated();
    let stage = Stage::set(script, SessionGuardLayer::new().init_timeout(IDLE).max_sessions(1));
    assert_eq!(stage.status(request(Method::POST, None, "{}")).await, 504);
    // The service is still working on it, so its slot is taken.
    assert_eq!(stage.status(request(Method::POST, None, "{}")).await, 503);
    gate.add_permits(2);
    check(&stage.ends.next().await, "s-1", Reason::NotInitialized, DeleteHow::Deleted);
    assert_eq!(stage.open_below(), 0);
    stage.open().await;
}

#[tokio::test]
async fn panicking_service_frees_its_slot() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().max_sessions(1));
    stage.script.world().panics = true;
    assert_eq!(stage.status(request(Method::POST, None, "{}")).await, 503);
    stage.script.world().panics = false;
    stage.open().await;
}

#[tokio::test]
async fn reused_id_is_one_session() {
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().max_sessions(2));
    stage.script.world().id = Some("only");
    for _ in 0..5 {
        assert_eq!(stage.open().await, "only");
    }
    assert_eq!(stage.sessions.list().len(), 1);
    let ended = soon("the end", stage.sessions.end_all()).await;
    assert_eq!(ended.len(), 1);
    assert_eq!(stage.script.world().deletes.len(), 1);
    assert_eq!(stage.open_below(), 0);
}

#[tokio::test]
async fn shutdown_ends_all_and_opens_no_more() {
    let (script, gate) = Script::gated();
    let stage = Stage::set(script, SessionGuardLayer::new());
    gate.add_permits(2);
    for _ in 0..2 {
        stage.open().await;
    }
    let _ = stage.script.at_the_gate().await;
    let opening = send(&stage.service, request(Method::POST, None, "{}"));
    let shutdown = async {
        stage.script.at_the_gate().await;
        let shutdown = stage.sessions.shutdown();
        let late = async {
            until("the sessions to be gone", async || (stage.open_below() == 0).then_some(())).await;
            gate.add_permits(1);
        };
        tokio::join!(shutdown, late).0
    };
    let (answer, ended) = tokio::join!(opening, soon("the shutdown", shutdown));
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ended.len(), 3, "{ended:?}");
    assert!(ended.iter().all(|end| end.is_gone() && end.reason == Reason::Shutdown), "{ended:?}");
    assert_eq!(stage.counts(), (3, 0));
    assert_eq!(stage.status(request(Method::POST, None, "{}")).await, 503);
}

/// A runtime that ends takes the sweeper task with it. The next runtime gets a new one.
#[test]
fn sessions_outlive_the_runtime_they_were_opened_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let stage = Stage::set(Script::new(), SessionGuardLayer::new().idle(IDLE));
    let session = first.block_on(stage.open());
    drop(first);
    runtime().block_on(async {
        let other = stage.open().await;
        let ends = [stage.ends.next().await.session, stage.ends.next().await.session];
        assert!(ends.contains(&session) && ends.contains(&other), "{ends:?}");
    });
    assert_eq!(stage.open_below(), 0);
}

#[tokio::test]
async fn sweeper_ends_with_the_last_session_and_with_the_guard() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 0);
    let stage = Stage::calm();
    let session = stage.open().await;
    soon("the end", stage.sessions.end(&session)).await.unwrap();
    until("the sweeper to leave", async || (tasks() == 0).then_some(())).await;
    stage.open().await;
    assert!(tasks() > 0, "there is a sweeper again");
    drop(stage);
    until("the sweeper to leave", async || (tasks() == 0).then_some(())).await;
}

#[test]
fn shared_types_are_send_and_sync() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let guard = SessionGuardLayer::new().idle(Some(Duration::from_secs(1))).max_age(None);
    shared(&guard);
    shared(&guard.sessions());
    shared(&guard.layer(Script::new()));
    let mut service = guard.layer(Script::new());
    fn sent<T: Send>(_: &T) {}
    sent(&service.call(request(Method::GET, None, "")));
    let _ = (Arc::new(guard), LIMIT);
}
