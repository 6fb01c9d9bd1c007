//! In every order of events, every session that the service opened is ended in it, and reported once.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;

use hyper::{Method, StatusCode};
use leash_tower::SessionGuardLayer;
use proptest::prelude::*;
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::script::Script;
use super::{Ends, request, send, session_of, soon, until};

#[derive(Clone, Debug)]
enum Step {
    /// A client opens a session, and reads the answer or keeps it.
    Open { keeps: bool },
    /// A client leaves after this many polls of its `initialize`.
    OpenAndLeave { polls: usize },
    /// A request in one of the sessions, whose answer is kept or dropped.
    Call { which: usize, listens: bool, keeps: bool },
    /// The client's DELETE, which may be refused.
    Delete { which: usize, refused: bool },
    /// It is ended through the handle, and the caller waits or does not.
    End { which: usize, waits: bool },
    /// The service forgets it.
    Forget { which: usize },
    /// All kept answers are dropped.
    Drop,
    /// Other tasks run.
    Yield,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(|keeps| Step::Open { keeps }),
        2 => (0_usize..6).prop_map(|polls| Step::OpenAndLeave { polls }),
        3 => (any::<usize>(), any::<bool>(), any::<bool>())
            .prop_map(|(which, listens, keeps)| Step::Call { which, listens, keeps }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, refused)| Step::Delete { which, refused }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, waits)| Step::End { which, waits }),
        1 => any::<usize>().prop_map(|which| Step::Forget { which }),
        1 => Just(Step::Drop),
        2 => Just(Step::Yield),
    ];
    proptest::collection::vec(step, 0..40)
}

/// Polls this many times, lets other tasks run in between, and drops the future if it is not ready by then.
async fn poll_times<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for _ in 0..times {
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::as_mut(&mut future).poll(cx))).await;
        if let Poll::Ready(done) = polled {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn play(steps: Vec<Step>) {
    let script = Script::new();
    let (guard, ends) = Ends::of(SessionGuardLayer::new().idle(None).max_sessions(8));
    let (service, sessions) = (guard.layer(script.clone()), guard.sessions());
    let (mut known, mut kept): (Vec<String>, Vec<Box<dyn std::any::Any>>) = Default::default();
    let pick = |known: &[String], which: usize| (!known.is_empty()).then(|| known[which % known.len()].clone());
    for step in steps {
        match step {
            Step::Open { keeps } => {
                let answer = send(&service, request(Method::POST, None, "{}")).await;
                if answer.status() == StatusCode::OK {
                    known.push(session_of(&answer));
                }
                kept.extend(keeps.then(|| Box::new(answer) as _));
            }
            Step::OpenAndLeave { polls } => {
                let answer = poll_times(service.clone().call(request(Method::POST, None, "{}")), polls).await;
                let opened = answer.map(|answer| answer.unwrap()).filter(|answer| answer.status() == StatusCode::OK);
                known.extend(opened.map(|answer| session_of(&answer)));
            }
            Step::Call { which, listens, keeps } => {
                let Some(session) = pick(&known, which) else { continue };
                let method = if listens { Method::GET } else { Method::POST };
                let answer = send(&service, request(method, Some(&session), "{}")).await;
                kept.extend(keeps.then(|| Box::new(answer) as _));
            }
            Step::Delete { which, refused } => {
                let Some(session) = pick(&known, which) else { continue };
                script.world().refusals.extend(refused.then_some(StatusCode::METHOD_NOT_ALLOWED));
                send(&service, request(Method::DELETE, Some(&session), "")).await;
                // The service did not see the DELETE if the session was over.
                script.world().refusals.clear();
            }
            Step::End { which, waits } => {
                let Some(session) = pick(&known, which) else { continue };
                let polls = if waits { usize::MAX } else { 1 };
                poll_times(sessions.end(&session), polls).await;
            }
            Step::Forget { which } => drop(pick(&known, which).map(|session| script.world().open.remove(&session))),
            Step::Drop => kept.clear(),
            Step::Yield => tokio::task::yield_now().await,
        }
    }
    soon("the shutdown", sessions.shutdown()).await;
    drop(kept);
    let opened = script.world().opened;
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..opened {
        *told.entry(ends.next().await.session).or_default() += 1;
    }
    assert!(ends.none_yet().await && told.values().all(|times| *times == 1), "{told:?}");
    assert_eq!(script.world().open.iter().collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(sessions.list(), []);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    until("every task to be gone", async || (tasks() == 0).then_some(())).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_session_ends_and_is_reported_once(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
