//! Property: after any steps, nothing is left of a job when the call that ends it returns.

use proptest::prelude::*;

use super::*;
use leash_upstream::scripted::run;

/// A step of a client or of a caller of the API.
#[derive(Clone, Debug)]
enum Step {
    /// A caller creates a job.
    Create,
    /// A caller requests a job and disconnects.
    Abandon,
    /// A client opens a session in the nth job.
    Open(usize),
    /// A client begins to open a session, and disconnects before it is answered.
    OpenAndLeave(usize),
    /// A client calls and waits.
    Call(usize),
    /// A client calls and disconnects.
    CallAndLeave(usize),
    Abort(usize),
    Renew(usize),
    /// A caller ends the nth job, optionally without grace, optionally while a client opens a session.
    End(usize, bool, bool),
    EndWithoutWaiting(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Create),
        1 => Just(Step::Abandon),
        4 => (0..3usize).prop_map(Step::Open),
        2 => (0..3usize).prop_map(Step::OpenAndLeave),
        2 => (0..3usize).prop_map(Step::Call),
        2 => (0..3usize).prop_map(Step::CallAndLeave),
        1 => (0..3usize).prop_map(Step::Abort),
        1 => (0..3usize).prop_map(Step::Renew),
        3 => (0..3usize, any::<bool>(), any::<bool>()).prop_map(|(nth, force, race)| Step::End(nth, force, race)),
        1 => (0..3usize).prop_map(Step::EndWithoutWaiting),
    ]
}

/// A job and the sessions of its clients.
struct Known {
    job: Value,
    sessions: Vec<String>,
    /// The upstream of this job alone.
    fake: Rc<Fake>,
    upstream: Scripted,
}

async fn leave(rig: &Rig, known: &Known, session: Option<&str>, body: &str) {
    let before = known.upstream.seen().len();
    let client = UpstreamClient::new();
    tokio::select! {
        answer = client.send(rig.mcp(&known.job, Method::POST, session, body)) => drop(answer),
        () = known.upstream.until(|seen| seen.len() > before) => {}
    }
}

/// Ends a job, and checks that nothing is left of it and that its receipt says so.
async fn end(rig: &Rig, known: Known, force: bool, race: bool) {
    let opening = race.then(|| rig.beside(rig.mcp(&known.job, Method::POST, None, INITIALIZE)));
    if race {
        tokio::task::yield_now().await;
    }
    let told = rig.ask("DELETE", &path(&known.job, if force { "?force=true" } else { "" }), "").await;
    assert_eq!(told.status, 200, "{}", told.body);
    let receipt: Receipt = serde_json::from_str(&told.body).expect("a receipt");
    let live = known.fake.live.borrow().clone();
    assert!(live.is_empty() || (force && !receipt.all_gone()), "{live:?} is left, and {receipt:?} does not say so");
    let id = receipt.session.clone();
    assert!(!rig.booked().iter().any(|open| open.starts_with(&id)) || !receipt.all_gone());
    let minted = usize::try_from(known.fake.minted.get()).expect("few");
    assert!(receipt.upstreams().count() >= minted, "{minted} were opened: {receipt:?}");
    if let Some(opening) = opening {
        opening.answer().await;
    }
}

async fn perform(rig: &Rig, jobs: &mut Vec<Known>, step: Step) {
    match step {
        Step::Create if jobs.len() < 3 => {
            let (fake, upstream) = Fake::start().await;
            let job = rig.in_front_of(&upstream, json!({"ttl": "1h"})).await;
            jobs.push(Known { job, sessions: Vec::new(), fake, upstream });
        }
        Step::Create => {}
        Step::Abandon => {
            let (_fake, upstream) = Fake::start().await;
            let body = wanted(json!({"s": {"url": upstream.url().to_string()}}), json!({"maxAge": "1ms"}));
            rig.beside(rig.request("POST", "/v1/sessions", &body)).leave();
        }
        Step::Open(nth) => {
            if let Some(known) = jobs.get_mut(nth) {
                known.sessions.push(rig.open(&known.job).await);
            }
        }
        Step::OpenAndLeave(nth) => {
            if let Some(known) = jobs.get(nth) {
                leave(rig, known, None, INITIALIZE).await;
            }
        }
        Step::Call(nth) => {
            if let Some(known) = jobs.get(nth) {
                rig.post(&known.job, known.sessions.first().map(String::as_str), CALL).await;
            }
        }
        Step::CallAndLeave(nth) => {
            if let Some(known) = jobs.get(nth) {
                leave(rig, known, known.sessions.first().map(String::as_str), CALL).await;
            }
        }
        Step::Abort(nth) => {
            if let Some(known) = jobs.get(nth) {
                assert_eq!(rig.ask("POST", &path(&known.job, "/abort"), "").await.status, 200);
            }
        }
        Step::Renew(nth) => {
            if let Some(known) = jobs.get(nth) {
                assert_eq!(rig.ask("PUT", &path(&known.job, "/lease"), "{}").await.status, 200);
            }
        }
        Step::End(nth, force, race) if nth < jobs.len() => end(rig, jobs.remove(nth), force, race).await,
        Step::EndWithoutWaiting(nth) if nth < jobs.len() => {
            let known = jobs.remove(nth);
            assert_eq!(rig.ask("DELETE", &path(&known.job, "?wait=false"), "").await.status, 202);
            // The second call waits for the end.
            end(rig, known, false, false).await;
        }
        Step::End(..) | Step::EndWithoutWaiting(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_left_when_the_end_returns(steps in prop::collection::vec(step(), 0..16)) {
        run(async {
            let rig = Rig::start().await;
            let mut jobs = Vec::new();
            for step in steps {
                perform(&rig, &mut jobs, step).await;
            }
            for known in jobs {
                end(&rig, known, false, true).await;
            }
            rig.quiet().await;
            assert_eq!(rig.gateway.count(), 0);
            assert!(rig.booked().is_empty());
        });
    }
}
