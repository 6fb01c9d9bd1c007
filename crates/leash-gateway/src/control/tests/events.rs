//! Event streams, and jobs that are owned by a connection.

use super::*;
use leash_model::receipt::Reason;
use leash_upstream::scripted::run;

/// The names and data of the events in a text.
fn events(text: &str) -> Vec<(String, Value)> {
    let event = |block: &str| {
        let name = block.lines().find_map(|line| line.strip_prefix("event: "))?;
        let data = block.lines().find_map(|line| line.strip_prefix("data: "))?;
        let data = serde_json::from_str(data).expect("JSON");
        document::check_event(&data);
        Some((name.to_owned(), data))
    };
    text.split("\n\n").filter_map(event).collect()
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

impl Rig {
    /// Opens an event stream, and reads its first comment.
    async fn listen(&self, query: &str) -> Incoming {
        let answer = self.client.send(self.request("GET", &format!("/v1/events{query}"), "")).await.expect("an answer");
        assert_eq!(answer.headers()[CONTENT_TYPE], "text/event-stream");
        let mut body = answer.into_body();
        assert_eq!(next(&mut body).await.as_deref(), Some(": listening\n\n"));
        body
    }

    /// Creates a job that is owned by its connection; returns the job and the body of the response.
    async fn connected(&self, upstream: &Scripted) -> (Value, Incoming) {
        let servers = json!({"s": {"url": upstream.url().to_string()}});
        let mut request =
            self.request("POST", "/v1/sessions", &wanted(servers, json!({"owner": {"connection": true}})));
        request.headers_mut().insert("accept", HeaderValue::from_static("text/event-stream"));
        let answer = UpstreamClient::new().send(request).await.expect("an answer");
        assert_eq!(answer.status(), 201);
        let location = answer.headers()["location"].to_str().expect("text").to_owned();
        let mut body = answer.into_body();
        let first = events(&next(&mut body).await.expect("an event"));
        assert_eq!((names(&first), &first[0].1["owner"]), (vec!["session"], &json!({"kind": "connection"})));
        assert_eq!(path(&first[0].1, ""), location);
        (first[0].1.clone(), body)
    }
}

#[test]
fn events_are_sent_to_every_listener() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let mut all = rig.listen("").await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let only = rig.listen(&format!("?session={}", job["id"].as_str().expect("an id"))).await;
        let other = rig.in_front_of(&upstream, json!({})).await;
        rig.end(&other).await;
        rig.end(&job).await;
        let mut heard = Vec::new();
        while heard.len() < 6 {
            heard.extend(events(&next(&mut all).await.expect("it goes on")));
        }
        assert_eq!(names(&heard), ["started", "started", "ending", "ended", "ending", "ended"]);
        assert_eq!((&heard[3].1["session"], &heard[5].1["session"]), (&other["id"], &job["id"]));
        assert_eq!(heard[5].1["receipt"]["session"], job["id"]);
        // A stream of one job has only the events of that job, and then ends.
        let mut alone = String::new();
        let mut only = only;
        while let Some(text) = next(&mut only).await {
            alone.push_str(&text);
        }
        assert_eq!(names(&events(&alone)), ["ending", "ended"]);
        let unknown = rig.ask("GET", "/v1/events?session=nobody", "").await;
        assert_eq!((unknown.status, unknown.problem().as_str()), (404, "no-such-session"));
    });
}

#[test]
fn a_job_ends_with_the_connection_that_owns_it() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let mut all = rig.listen("").await;
        let (job, connection) = rig.connected(&upstream).await;
        rig.open(&job).await;
        drop(connection);
        rig.quiet().await;
        assert!(fake.live.borrow().is_empty());
        assert_eq!(rig.receipts()[0].reason, Reason::ClientLeft);
        let mut heard = Vec::new();
        while heard.len() < 4 {
            heard.extend(events(&next(&mut all).await.expect("it goes on")));
        }
        assert_eq!(names(&heard), ["started", "owner-lost", "ending", "ended"]);
    });
}

#[test]
fn the_connection_ends_with_the_job() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let (job, mut connection) = rig.connected(&upstream).await;
        let receipt = rig.end(&job).await;
        let mut heard = String::new();
        while let Some(text) = next(&mut connection).await {
            heard.push_str(&text);
        }
        let heard = events(&heard);
        assert_eq!(names(&heard), ["ending", "ended"]);
        assert_eq!(heard[1].1["receipt"], serde_json::to_value(&receipt).expect("JSON"));
        assert_eq!(receipt.reason, Reason::CONTROL_API);
    });
}

#[test]
fn an_owning_connection_must_accept_an_event_stream() {
    run(async {
        let rig = Rig::start().await;
        let mut request = rig.request(
            "POST",
            "/v1/sessions",
            &wanted(json!({"s": {"command": "x"}}), json!({"owner": {"connection": true}})),
        );
        request.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
        let refused = told(rig.client.send(request).await.expect("an answer")).await;
        assert_eq!((refused.status, refused.problem().as_str()), (406, "not-acceptable"));
    });
}

#[test]
fn a_reader_that_does_not_read_is_cut_off() {
    run(async {
        let rig = Rig::start().await;
        let bus = &rig.jobs.bus;
        let mut body = Box::pin(bus.listen(None));
        for _ in 0..leash_model::limits::EVENT_QUEUE + 50 {
            bus.tell("x", super::super::events::EventKind::Started, None, None);
        }
        let mut heard = String::new();
        while let Some(frame) = body.frame().await {
            heard.push_str(&String::from_utf8_lossy(frame.expect("whole").data_ref().expect("data")));
        }
        let heard = events(&heard);
        assert_eq!(heard.len(), leash_model::limits::EVENT_QUEUE + 1);
        assert_eq!(heard.last().map(|(name, _)| name.as_str()), Some("lost"));
        drop(body);
        bus.tell("x", super::super::events::EventKind::Started, None, None);
        assert_eq!(bus.readers(), 0);
    });
}
