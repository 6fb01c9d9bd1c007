//! Every problem as its caller sees it.

use super::*;
use leash_upstream::scripted::run;

#[test]
fn every_problem_has_its_status_and_type() {
    run(async {
        let rig = Rig::start().await;
        let check = async |method: &str, path: &str, body: &str, status: u16, problem: &str| {
            let told = rig.ask(method, path, body).await;
            assert_eq!((told.status, told.problem().as_str()), (status, problem), "{method} {path}: {}", told.body);
            told
        };
        check("GET", "/nothing", "", 404, "no-such-path").await;
        check("GET", "/v1/sessions/x", "", 404, "no-such-session").await;
        check("DELETE", "/v1/sessions/x", "", 404, "no-such-session").await;
        check("POST", "/v1/sessions/x/abort", "", 404, "no-such-session").await;
        check("PUT", "/v1/sessions/x/lease", "{}", 404, "no-such-session").await;
        let other = check("PATCH", "/v1/sessions", "", 405, "method-not-allowed").await;
        assert_eq!(other.headers["allow"], "POST, GET, DELETE");
        check("GET", "/v1/sessions?al=true", "", 400, "invalid-request").await;
        check("DELETE", "/v1/sessions/x?force=yes", "", 400, "invalid-request").await;
        check("POST", "/v1/sessions", "{", 400, "invalid-json").await;
        let long = format!("[\"{}\"]", "x".repeat(leash_model::limits::CONTROL_BODY));
        check("POST", "/v1/sessions", &long, 413, "too-large").await;
        let many =
            check("POST", "/v1/sessions", r#"{"mcpServers": {"a": {"cmd": 1}}, "ttl": 3}"#, 400, "invalid-request")
                .await;
        let errors = many.json()["errors"].clone();
        let pointers: Vec<_> =
            errors.as_array().expect("a list").iter().map(|error| error["pointer"].clone()).collect();
        assert_eq!(pointers, ["/mcpServers/a/cmd", "/ttl"], "{errors}");
        let owner = wanted(json!({"a": {"command": "x"}}), json!({"owner": {"pid": i32::MAX}}));
        let nobody = check("POST", "/v1/sessions", &owner, 400, "invalid-request").await;
        assert_eq!(nobody.json()["errors"][0]["pointer"], "/owner/pid");
        let mut plain = rig.request("POST", "/v1/sessions", "x");
        plain.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let plain = told(rig.client.send(plain).await.expect("an answer")).await;
        assert_eq!((plain.status, plain.problem().as_str()), (415, "unsupported-media-type"));
        assert!(rig.jobs.is_empty());
    });
}

#[test]
fn leases_that_cannot_be_renewed() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let none = rig.ask("PUT", &path(&job, "/lease"), "").await;
        assert_eq!((none.status, none.problem().as_str()), (409, "no-lease"));
        let given = rig.ask("PUT", &path(&job, "/lease"), r#"{"ttl": "1h"}"#).await;
        assert_eq!((given.status, given.json()["ttlMs"].clone()), (200, json!(3_600_000)));
        rig.end(&job).await;
        for (method, more) in [("PUT", "/lease"), ("POST", "/abort")] {
            let late = rig.ask(method, &path(&job, more), "").await;
            assert_eq!((late.status, late.problem().as_str()), (409, "ended"), "{method} {more}");
        }
        let late = rig.ask("GET", &format!("/v1/events?session={}", job["id"].as_str().expect("an id")), "").await;
        assert_eq!((late.status, late.problem().as_str()), (409, "ended"));
    });
}

#[test]
fn sessions_beyond_the_limit_are_refused() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::with(Settings { max_sessions: 1, ..Settings::default() }).await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let body = wanted(json!({"s": {"url": upstream.url().to_string()}}), json!({}));
        let full = rig.ask("POST", "/v1/sessions", &body).await;
        assert_eq!((full.status, full.problem().as_str()), (503, "too-many-sessions"));
        rig.end(&job).await;
        assert_eq!(rig.ask("POST", "/v1/sessions", &body).await.status, 201);
    });
}

#[test]
fn the_document_and_the_version_are_served() {
    run(async {
        let rig = Rig::start().await;
        let document = rig.ask("GET", "/v1/openapi.json", "").await.json();
        assert_eq!(document["openapi"], "3.1.0");
        assert!(document["paths"]["/v1/sessions/{id}"]["delete"]["responses"]["200"].is_object());
        let version = rig.ask("GET", "/v1/version", "").await.json();
        assert_eq!((&version["api"], &version["pid"]), (&json!(1), &json!(std::process::id())));
    });
}
