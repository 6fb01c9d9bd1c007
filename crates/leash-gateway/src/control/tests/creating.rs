//! Creating a job: all of its servers start, or none. Also the views of jobs.

use super::*;
use leash_upstream::scripted::run;

#[test]
fn a_job_is_created_used_and_ended() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let more = json!({"name": "job 42", "labels": {"team": "a"}, "ttl": "1h", "idle": "2h", "maxAge": "3h"});
        let told =
            rig.ask("POST", "/v1/sessions", &wanted(json!({"s": {"url": upstream.url().to_string()}}), more)).await;
        assert_eq!(told.status, 201, "{}", told.body);
        let job = told.json();
        assert_eq!(told.headers["location"], path(&job, ""));
        assert_eq!(
            (&job["state"], &job["name"], &job["owner"]["kind"]),
            (&json!("live"), &json!("job 42"), &json!("none"))
        );
        assert_eq!(
            (&job["ttlMs"], &job["idleMs"], &job["maxAgeMs"], &job["deadlineReason"]),
            (&json!(3_600_000), &json!(7_200_000), &json!(10_800_000), &json!("lease_expired"))
        );
        let server = &job["servers"][0];
        assert_eq!((&server["name"], &server["kind"], &server["holdings"]), (&json!("s"), &json!("http"), &json!([])));
        assert_eq!(server["args"], json!(["attach", format!("{}/s", job["id"].as_str().expect("an id"))]));
        let url = server["url"].as_str().expect("a url");
        assert!(!url.contains(job["id"].as_str().expect("an id")), "the id is seen by others: {url}");

        let session = rig.open(&job).await;
        assert_eq!(rig.post(&job, Some(&session), CALL).await.body, CALL);
        let now = rig.ask("GET", &path(&job, ""), "").await.json();
        let holding = &now["servers"][0]["holdings"][0];
        assert_eq!((&holding["kind"], &holding["sessionId"]), (&json!("upstream"), &json!("up-1")), "{now}");
        assert_eq!(rig.booked(), [format!("{}.1", job["id"].as_str().expect("an id"))]);

        let receipt = rig.end(&job).await;
        assert!(fake.live.borrow().is_empty(), "the upstream session is deleted before the call returns");
        assert!(receipt.all_gone() && receipt.upstreams().count() == 1, "{receipt:?}");
        assert_eq!((receipt.name.as_str(), receipt.labels["team"].as_str()), ("job 42", "a"));
        assert_eq!(rig.receipts(), std::slice::from_ref(&receipt));
        assert_eq!(rig.post(&job, Some(&session), CALL).await.status, 404);
        assert_eq!(rig.post(&job, None, INITIALIZE).await.status, 404);
        assert!(rig.booked().is_empty() && rig.jobs.is_empty());
        // A second end returns the same receipt.
        assert_eq!(rig.end(&job).await, receipt);
        let over = rig.ask("GET", &path(&job, ""), "").await.json();
        assert_eq!((&over["state"], &over["receipt"]["took_ms"]), (&json!("ended"), &json!(receipt.took_ms)));
    });
}

#[test]
fn one_unreachable_server_fails_the_whole_job() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let gone = nowhere().await;
        let servers = json!({"fine": {"url": upstream.url().to_string()}, "gone": {"url": gone.to_string()}});
        let told = rig.ask("POST", "/v1/sessions", &wanted(servers, json!({}))).await;
        assert_eq!((told.status, told.problem().as_str()), (502, "server-failed"), "{}", told.body);
        let problem = told.json();
        assert_eq!(
            (&problem["server"], &problem["why"]),
            (&json!("gone"), &json!(format!("cannot reach {gone}: connection refused")))
        );
        assert!(rig.jobs.is_empty());
        let listed = rig.ask("GET", "/v1/sessions?all=true", "").await.json();
        assert_eq!(listed["sessions"], json!([]), "one that never lived is not listed");
    });
}

#[test]
fn lists_are_filtered_by_labels() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let mut ids = Vec::new();
        for (team, host) in [("a", "x"), ("a", "y"), ("b", "x")] {
            let job = rig.in_front_of(&upstream, json!({"labels": {"team": team, "host": host}})).await;
            ids.push(job["id"].clone());
        }
        let listed = async |query: &str| {
            let told = rig.ask("GET", &format!("/v1/sessions{query}"), "").await.json();
            told["sessions"].as_array().expect("a list").iter().map(|job| job["id"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(listed("").await, ids, "in the order in which they began");
        assert_eq!(listed("?label=team=a").await, ids[..2]);
        assert_eq!(listed("?label=team%3Da&label=host=y").await, ids[1..2]);
        rig.end(&json!({"id": ids[0]})).await;
        assert_eq!(listed("?label=team=a").await, ids[1..2]);
        assert_eq!(listed("?label=team=a&all=true").await, ids[..2]);
    });
}

/// A session whose start hangs: its server is to be reached over TLS, and never answers.
async fn starting() -> (Rig, Beside, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("its address");
    let rig = Rig::start().await;
    let body = wanted(json!({"s": {"url": format!("https://{address}/")}}), json!({}));
    let begun = rig.beside(rig.request("POST", "/v1/sessions", &body));
    rig.until(|rig| !rig.jobs.is_empty()).await;
    (rig, begun, silent)
}

#[test]
fn a_caller_that_disconnects_during_the_start_leaves_nothing_behind() {
    run(async {
        let (rig, begun, _silent) = starting().await;
        assert_eq!(rig.ask("GET", "/v1/sessions", "").await.json()["sessions"][0]["state"], "starting");
        begun.leave();
        rig.quiet().await;
        assert_eq!(rig.receipts()[0].reason, leash_model::receipt::Reason::ClientLeft);
    });
}

#[test]
fn an_end_during_the_start_is_reported_to_both_callers() {
    run(async {
        let (rig, begun, _silent) = starting().await;
        let job = rig.ask("GET", "/v1/sessions", "").await.json()["sessions"][0].clone();
        let receipt = rig.end(&job).await;
        assert!(receipt.holdings.is_empty() && rig.jobs.is_empty());
        let told = begun.answer().await;
        assert_eq!((told.status, told.problem().as_str()), (409, "ended"), "{}", told.body);
    });
}
