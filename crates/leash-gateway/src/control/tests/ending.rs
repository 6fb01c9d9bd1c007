//! The end of a job, for every reason and during other operations.

use super::*;
use leash_model::receipt::{DeleteHow, Fate, Reason};
use leash_upstream::scripted::{run, silence};

#[test]
fn a_session_opened_during_the_end_is_deleted_before_the_end_returns() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let hold = CancellationToken::new();
        *fake.hold.borrow_mut() = Some(hold.clone());
        let opening = rig.beside(rig.mcp(&job, Method::POST, None, INITIALIZE));
        upstream.until(|seen| seen.iter().any(|seen| seen.says("initialize"))).await;
        let ending = rig.beside(rig.request("DELETE", &path(&job, ""), ""));
        rig.until(|rig| rig.jobs.list().iter().all(|job| !job.is_alive())).await;
        assert_eq!(rig.state(&job).await, "ending", "the server may still open a session");
        hold.cancel();
        let told = ending.answer().await;
        assert_eq!(fake.minted.get(), 1);
        assert!(fake.live.borrow().is_empty(), "it was opened, and deleted");
        let receipt: Receipt = serde_json::from_str(&told.body).expect("a receipt");
        assert_eq!(receipt.upstreams().map(|end| end.how).collect::<Vec<_>>(), [DeleteHow::Deleted]);
        assert!(opening.answer().await.status >= 400);
    });
}

#[test]
fn a_server_that_never_answers_is_named_as_left() {
    run(async {
        let upstream =
            Scripted::start(|seen| if seen.says("initialize") { silence() } else { reply(status(404, "")) }).await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let opening = rig.beside(rig.mcp(&job, Method::POST, None, INITIALIZE));
        upstream.until(|seen| !seen.is_empty()).await;
        let told = rig.ask("DELETE", &path(&job, "?force=true"), "").await;
        let receipt: Receipt = serde_json::from_str(&told.body).expect("a receipt");
        let ends: Vec<_> = receipt.upstreams().map(|end| (end.fate.clone(), end.why.is_some())).collect();
        assert_eq!(ends, [(Fate::Left, true)], "{receipt:?}");
        assert!(!receipt.all_gone());
        assert!(opening.answer().await.status >= 400);
        upstream.connections(0).await;
    });
}

#[test]
fn all_callers_that_end_a_job_get_the_same_receipt() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        rig.open(&job).await;
        let many: Vec<_> = (0..5).map(|_| rig.beside(rig.request("DELETE", &path(&job, ""), ""))).collect();
        let all = rig.ask("DELETE", "/v1/sessions", "").await;
        let mut receipts = Vec::new();
        for one in many {
            let told = one.answer().await;
            assert_eq!(told.status, 200, "{}", told.body);
            receipts.push(told.json());
        }
        assert!(receipts.windows(2).all(|pair| pair[0] == pair[1]), "{receipts:?}");
        // The job may have been over before this call.
        let listed = all.json()["receipts"].clone();
        assert!(listed == json!([]) || listed[0] == receipts[0], "{listed}");
        assert_eq!(rig.receipts().len(), 1);
    });
}

#[test]
fn an_end_continues_without_its_caller() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        rig.open(&job).await;
        let told = rig.ask("DELETE", &path(&job, "?wait=false"), "").await;
        assert_eq!((told.status, told.json()["state"].clone()), (202, json!("ending")), "{}", told.body);
        rig.quiet().await;
        assert!(fake.live.borrow().is_empty());
        assert_eq!(rig.end(&job).await.reason, Reason::CONTROL_API);

        let job = rig.in_front_of(&upstream, json!({})).await;
        rig.open(&job).await;
        let ending = rig.beside(rig.request("DELETE", &path(&job, ""), ""));
        rig.until(|rig| rig.jobs.list().iter().all(|job| !job.is_alive())).await;
        ending.leave();
        rig.quiet().await;
        assert!(fake.live.borrow().is_empty());
    });
}

#[test]
fn a_lease_that_is_not_renewed_cuts_a_call() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({"ttl": "1m"})).await;
        let session = rig.open(&job).await;
        fake.stalls();
        let call = rig.beside(rig.mcp(&job, Method::POST, Some(&session), CALL));
        upstream.until(|seen| seen.iter().any(|seen| seen.says("tools/call"))).await;
        let renewed = rig.ask("PUT", &path(&job, "/lease"), r#"{"ttl": "100ms"}"#).await;
        assert_eq!((renewed.status, renewed.json()["ttlMs"].clone()), (200, json!(100)), "{}", renewed.body);
        rig.quiet().await;
        assert_eq!(call.answer().await.status, 404);
        assert_eq!(rig.receipts()[0].reason, Reason::LeaseExpired);
        assert!(fake.live.borrow().is_empty());
        let late = rig.ask("PUT", &path(&job, "/lease"), "{}").await;
        assert_eq!((late.status, late.problem().as_str()), (409, "ended"));
    });
}

#[test]
fn an_unanswered_call_counts_as_a_use() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({"idle": "400ms"})).await;
        let session = rig.open(&job).await;
        let stall = fake.stalls();
        let call = rig.beside(rig.mcp(&job, Method::POST, Some(&session), CALL));
        upstream.until(|seen| seen.iter().any(|seen| seen.says("tools/call"))).await;
        // The end of an unused job shows that the idle timeout has passed.
        let other = rig.in_front_of(&upstream, json!({"idle": "800ms"})).await;
        rig.until(|rig| rig.jobs.list().len() == 1).await;
        assert_eq!(rig.state(&other).await, "ended");
        let now = rig.ask("GET", &path(&job, ""), "").await.json();
        assert_eq!(
            (&now["state"], &now["idleForMs"], &now["servers"][0]["inFlight"], now.get("deadlineMs")),
            (&json!("live"), &json!(0), &json!(1), None)
        );
        stall.cancel();
        assert_eq!(call.answer().await.body, CALL);
        rig.quiet().await;
        assert!(rig.receipts().iter().all(|receipt| receipt.reason == Reason::Idle));
    });
}

#[test]
fn jobs_that_are_over_leave_nothing_in_memory() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let mut first = None;
        for _ in 0..limits_and_a_half() {
            let job = rig.in_front_of(&upstream, json!({"ttl": "1h", "labels": {"a": "b"}})).await;
            rig.open(&job).await;
            rig.end(&job).await;
            first.get_or_insert(job);
        }
        assert!(fake.live.borrow().is_empty() && rig.jobs.is_empty());
        assert_eq!(rig.gateway.count(), 0);
        let ended = rig.ask("GET", "/v1/sessions?all=true", "").await.json();
        assert_eq!(ended["sessions"].as_array().map(Vec::len), Some(leash_model::limits::ENDED_JOBS));
        let metrics = crate::metrics_page::render(&rig.jobs, &rig.jobs.tree_memory().await);
        assert!(metrics.contains("leash_sessions_opened_total{server=\"session\"} 150"), "{metrics}");
        assert_eq!(metrics.matches("leash_sessions_opened_total{").count(), 1, "one bucket for all");
        // A job that is no longer in the list is found by its receipt.
        let first = first.expect("at least one");
        assert_eq!(rig.ask("GET", &path(&first, ""), "").await.json()["state"], "ended");
        assert!(rig.end(&first).await.all_gone());
    });
}

fn limits_and_a_half() -> usize {
    leash_model::limits::ENDED_JOBS * 3 / 2
}

#[test]
fn a_gateway_that_stops_ends_all_jobs_and_answers_waiting_callers() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let hold = CancellationToken::new();
        let job = rig.in_front_of(&upstream, json!({})).await;
        let other = rig.in_front_of(&upstream, json!({})).await;
        rig.open(&other).await;
        *fake.hold.borrow_mut() = Some(hold.clone());
        let opening = rig.beside(rig.mcp(&job, Method::POST, None, INITIALIZE));
        upstream.until(|seen| seen.iter().filter(|seen| seen.says("initialize")).count() == 2).await;
        let events = rig.client.send(rig.request("GET", "/v1/events", "")).await.expect("an answer");
        let ending = rig.beside(rig.request("DELETE", &path(&job, ""), ""));
        rig.until(|rig| rig.jobs.list().iter().filter(|job| job.is_alive()).count() == 1).await;
        // A shutdown in the middle of an end.
        rig.stop.cancel();
        assert_eq!(rig.jobs.end_everything(&Reason::Shutdown), 1, "the other job");
        let refused = rig.ask("POST", "/v1/sessions", &wanted(json!({"s": {"command": "x"}}), json!({}))).await;
        assert_eq!((refused.status, refused.problem().as_str()), (503, "draining"));
        hold.cancel();
        let receipt: Receipt = serde_json::from_str(&ending.answer().await.body).expect("a receipt");
        assert_eq!(receipt.reason, Reason::CONTROL_API, "the first reason counts");
        rig.quiet().await;
        assert!(fake.live.borrow().is_empty());
        let heard = told(events).await.body;
        assert!(
            heard.contains("event: ended") && heard.contains("shutdown"),
            "the stream is over, and said so: {heard}"
        );
        drop(opening);
    });
}
