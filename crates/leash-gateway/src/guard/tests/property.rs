//! The property: whatever happens, every session that the upstream opened is deleted, or the upstream said that it does
//! not know it.

use proptest::prelude::*;

use super::*;
use leash_upstream::scripted::run;

/// One step of a generated history.
#[derive(Clone, Debug)]
enum Step {
    /// A client opens a session.
    Open,
    /// A client opens a session and leaves before the response.
    Abandon,
    /// A client opens a session and leaves after the head of the response.
    AbandonHead,
    /// A client uses the nth session.
    Use(usize),
    /// A client listens in the nth session, and leaves.
    Listen(usize),
    /// A client ends the nth session.
    Delete(usize),
    /// The server restarts and forgets its sessions.
    Forget,
    /// A client sends a request without a session.
    Probe,
    /// No client sends anything until all sessions are over.
    Idle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Open),
        2 => Just(Step::Abandon),
        1 => Just(Step::AbandonHead),
        3 => (0..4usize).prop_map(Step::Use),
        1 => (0..4usize).prop_map(Step::Listen),
        1 => (0..4usize).prop_map(Step::Delete),
        1 => Just(Step::Forget),
        1 => Just(Step::Probe),
        1 => Just(Step::Idle),
    ]
}

async fn perform(rig: &Rig, upstream: &Scripted, fake: &Fake, sessions: &mut Vec<String>, step: Step) {
    let initialize = || rig.request(Method::POST, "/s/mcp", None, INITIALIZE);
    match step {
        Step::Open => sessions.extend(rig.post(None, INITIALIZE).await.session()),
        Step::Abandon => {
            let hold = CancellationToken::new();
            *fake.hold.borrow_mut() = Some(hold.clone());
            let before = upstream.seen().len();
            rig.abandon(initialize(), upstream.until(|seen| seen.len() > before)).await;
            *fake.hold.borrow_mut() = None;
            hold.cancel();
        }
        Step::AbandonHead => drop(UpstreamClient::new().send(initialize()).await),
        Step::Use(nth) => {
            if let Some(session) = sessions.get(nth) {
                rig.post(Some(session), CALL).await;
            }
        }
        Step::Listen(nth) => {
            if let Some(session) = sessions.get(nth) {
                drop(UpstreamClient::new().send(rig.request(Method::GET, "/s/mcp", Some(session), "")).await);
            }
        }
        Step::Delete(nth) if nth < sessions.len() => {
            rig.delete(Some(&sessions.remove(nth))).await;
        }
        Step::Delete(_) => {}
        Step::Forget => fake.forget(),
        Step::Probe => drop(rig.post(None, CALL).await),
        Step::Idle => rig.quiet().await,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_opened_session_is_closed(
        steps in prop::collection::vec(step(), 0..14),
        revive: bool,
        idle: bool,
    ) {
        run(async {
            let (fake, upstream) = Fake::start().await;
            let mut terms = Terms::default();
            terms.policy.revive = revive;
            terms.policy.idle = idle.then_some(Duration::from_millis(10));
            let rig = Rig::with(&upstream.url(), terms).await;
            let mut sessions = Vec::new();
            for step in steps.into_iter().filter(|step| idle || !matches!(step, Step::Idle)) {
                perform(&rig, &upstream, &fake, &mut sessions, step).await;
            }
            // leash waits for the response to an open `initialize` even after the gateway has shut down.
            rig.stop.cancel();
            rig.gateway.end_all(&Reason::Shutdown);
            rig.gateway.tasks.close();
            rig.gateway.resolver.replace(None);
            rig.gateway.watchers.clear();
            rig.until(|_| fake.leaked.borrow().is_empty()).await;
            rig.until(|rig| rig.booked().is_empty() && rig.sessions() == 0).await;
            let ids: BTreeSet<String> = deleted(&upstream).into_iter().collect();
            assert_eq!(deleted(&upstream).len(), ids.len(), "a session was deleted twice");
        });
    }
}
