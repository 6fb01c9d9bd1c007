use super::*;
use crate::report::Status;

fn status(status: u16) -> Option<Answer> {
    let body = if status == 200 { "{\"result\": {}}" } else { "" };
    Some(Answer::Status { status, session: None, body: body.to_owned() })
}

fn opened() -> Option<Answer> {
    Some(Answer::Status { status: 200, session: Some("id".to_owned()), body: "{\"result\": {}}".to_owned() })
}

/// The facts of a correct server.
fn good() -> HttpFacts {
    HttpFacts {
        opened: opened(),
        modern: None,
        deleted: status(200),
        afterwards: status(404),
        unknown: status(404),
        abandoned: status(404).map(|answer| (Duration::from_secs(3), answer)),
        foreign: status(403),
        memory: LeftMemory::Rounds { sessions: 100, bytes: vec![100 << 20, 101 << 20, 101 << 20] },
    }
}

/// Checks the rows that are not `Pass`.
fn check(facts: &HttpFacts, expected: &[(&str, Status)]) {
    let rows = rows(facts);
    let found: Vec<(&str, Status)> =
        rows.iter().filter(|row| row.status != Status::Pass).map(|row| (row.id.as_str(), row.status)).collect();
    assert_eq!(found, expected, "{rows:#?}");
}

#[test]
fn a_good_server_passes_everything() {
    check(&good(), &[]);
}

#[test]
fn every_wrong_response_is_a_finding() {
    check(&HttpFacts { afterwards: status(400), ..good() }, &[("http.terminated", Status::Fail)]);
    check(&HttpFacts { afterwards: status(200), ..good() }, &[("http.terminated", Status::Fail)]);
    check(&HttpFacts { unknown: status(400), ..good() }, &[("http.unknown", Status::Fail)]);
    check(&HttpFacts { foreign: opened(), ..good() }, &[("http.origin", Status::Fail)]);
    check(&HttpFacts { foreign: status(400), ..good() }, &[("http.origin", Status::Warn)]);
    let abandoned = status(200).map(|answer| (Duration::from_secs(3), answer));
    check(&HttpFacts { abandoned, ..good() }, &[("http.expiry", Status::Fail)]);
    let down = Some(Answer::Failed("the connection was refused".to_owned()));
    check(&HttpFacts { deleted: down, ..good() }, &[("http.delete", Status::Fail), ("http.terminated", Status::Skip)]);
}

/// One finding is enough for a server that is not there.
#[test]
fn a_server_that_does_not_answer_is_one_finding() {
    let down = || Some(Answer::Failed("cannot reach it".to_owned()));
    let facts = HttpFacts { opened: down(), foreign: down(), ..HttpFacts::default() };
    let failed = rows(&facts).into_iter().filter(|row| row.status == Status::Fail);
    assert_eq!(failed.map(|row| row.id).collect::<Vec<_>>(), ["http.session"]);
}

#[test]
fn a_server_that_refuses_delete_gives_a_warning() {
    let facts = HttpFacts { deleted: status(405), afterwards: status(200), ..good() };
    check(&facts, &[("http.delete", Status::Warn), ("http.terminated", Status::Skip)]);
}

#[test]
fn rows_about_sessions_are_skipped_without_sessions() {
    let facts = HttpFacts { opened: status(200), deleted: None, afterwards: None, ..good() };
    let skipped = ["http.delete", "http.terminated", "http.unknown", "http.expiry"].map(|id| (id, Status::Skip));
    check(&facts, &skipped);
    let facts = HttpFacts { opened: status(500), ..facts };
    let found: Vec<_> = [("http.session", Status::Fail)].into_iter().chain(skipped).collect();
    check(&facts, &found);
}

#[test]
fn a_server_of_the_era_without_sessions_passes() {
    let skipped = ["http.delete", "http.terminated", "http.unknown", "http.expiry"].map(|id| (id, Status::Skip));
    check(&HttpFacts { opened: status(400), modern: status(200), deleted: None, ..good() }, &skipped);
    let refused = Some(Answer::Status { status: 200, session: None, body: "{\"error\": {}}".to_owned() });
    check(&HttpFacts { opened: refused, modern: status(200), deleted: None, ..good() }, &skipped);
}

#[test]
fn tests_that_were_not_requested_are_skipped() {
    let facts = HttpFacts { abandoned: None, memory: LeftMemory::NotAsked, ..good() };
    check(&facts, &[("http.expiry", Status::Skip), ("http.memory", Status::Skip)]);
}

#[test]
fn only_growth_in_every_round_is_a_leak() {
    let rounds = |bytes: Vec<u64>| HttpFacts { memory: LeftMemory::Rounds { sessions: 100, bytes }, ..good() };
    check(&rounds(vec![0, 10 << 20, 20 << 20, 30 << 20]), &[("http.memory", Status::Fail)]);
    check(&rounds(vec![0, 10 << 20, 20 << 20, 15 << 20]), &[]);
    check(&rounds(vec![0, 3 << 20, 6 << 20, 9 << 20]), &[]);
}

#[test]
fn server_that_cannot_be_reached_is_named_with_the_cause() {
    let why = "cannot reach http://127.0.0.1:1/mcp: connection refused; is the server running?";
    let facts = HttpFacts { opened: Some(Answer::Failed(why.to_owned())), ..HttpFacts::default() };
    let session = rows(&facts).remove(0);
    assert_eq!((session.status, session.detail.as_str()), (Status::Fail, why));
}
