use super::*;
use crate::message::HostMessage;

fn request() -> PendingRequest {
    let line = r#"{"jsonrpc":"2.0","id":"q\u0031","method":"server/discover"}"#;
    HostMessage::read(0, Bytes::from_static(line.as_bytes())).expect("JSON").requests.remove(0)
}

fn refusal(status: u16, body: &str) -> RefusedResponse {
    RefusedResponse {
        status: StatusCode::from_u16(status).expect("a status"),
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

fn check(status: u16, body: &str, line: &str) {
    assert_eq!(String::from_utf8_lossy(&refusal(status, body).answer(&request())), line, "{status} {body}");
}

#[test]
fn upstreams_error_with_the_id_of_the_request_passes_unchanged() {
    let body =
        r#"{"error" :{"code":-32022,"message":"no","data":{"supported":[1e2]}},"id":"q1","jsonrpc":"2.0","x":1}"#;
    check(400, body, body);
    check(401, body, body);
    let pretty = "{\n  \"jsonrpc\": \"2.0\",\r\n\"id\":\"q1\",\"error\":{\"code\":1}}\n";
    check(500, pretty, "{   \"jsonrpc\": \"2.0\",  \"id\":\"q1\",\"error\":{\"code\":1}}");
}

#[test]
fn upstreams_error_without_an_id_gets_the_id_of_the_request() {
    let error = r#"{"code":-32000,"message":"Bad Request: Server not initialized"}"#;
    let line = format!(r#"{{"jsonrpc":"2.0","id":"q\u0031","error":{error}}}"#);
    check(400, &format!(r#"{{"jsonrpc":"2.0","error":{error},"id":null}}"#), &line);
    check(404, &format!(r#"{{"jsonrpc":"2.0","error":{error}}}"#), &line);
}

#[test]
fn other_refusals_get_leashs_own_error_text() {
    let explained =
        |text: &str| format!(r#"{{"jsonrpc":"2.0","id":"q\u0031","error":{{"code":-32000,"message":"{text}"}}}}"#);
    let denied =
        explained("the upstream server answered 401 Unauthorized: pass credentials with `--bearer-env` or `--header`");
    check(401, "", &denied);
    check(401, r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"x"},"id":null}"#, &denied);
    check(404, "<html>", &explained("the upstream server answered 404 Not Found: check the path of the URL"));
    check(
        400,
        r#"{"jsonrpc":"2.0","id":"another request","error":{"code":1}}"#,
        &explained("the upstream server answered 400 Bad Request: the server does not accept the message"),
    );
    check(
        503,
        r#"{"jsonrpc":"2.0","id":"q1","result":{}}"#,
        &explained("the upstream server answered 503 Service Unavailable: the server has a problem; try again later"),
    );
}

#[test]
fn refusals_that_may_come_from_an_http_sse_server() {
    let error = |code: i64| format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"x"}}}}"#);
    for (status, body, may_be) in [
        (404, String::new(), true),
        (405, "Method Not Allowed".to_owned(), true),
        (400, error(-32000), true),
        (400, error(-32022), false),
        (404, error(-32601), false),
        (400, error(-32601), true),
        (401, String::new(), false),
        (500, String::new(), false),
    ] {
        assert_eq!(refusal(status, &body).may_be_http_sse(), may_be, "{status} {body}");
    }
}

#[test]
fn refusals_that_mean_the_session_is_lost() {
    for (status, body, forgot) in [
        (404, "", true),
        (404, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"x"}}"#, true),
        (404, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}"#, false),
        (400, r#"{"error":{"message":"Bad Request: No valid session ID provided"}}"#, true),
        (400, r#"{"error":{"message":"invalid arguments"}}"#, false),
        (401, "", false),
        (500, "session not found", false),
    ] {
        assert_eq!(refusal(status, body).lost(&Method::POST).is_some(), forgot, "{status} {body}");
    }
}

#[test]
fn head_shows_the_kind_of_the_response() {
    for (status, kind, reply) in [
        (200, "application/json", ResponseKind::Whole),
        (200, "text/event-stream", ResponseKind::Stream),
        (200, "Text/Event-Stream; charset=utf-8", ResponseKind::Stream),
        (202, "", ResponseKind::Whole),
        (200, "text/html", ResponseKind::Whole),
        (400, "text/event-stream", ResponseKind::Refused),
        (307, "", ResponseKind::Refused),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(hyper::header::CONTENT_TYPE, kind.parse().expect("a value"));
        assert_eq!(
            ResponseKind::of(StatusCode::from_u16(status).expect("a status"), &headers),
            reply,
            "{status} {kind}"
        );
    }
}

#[test]
fn message_becomes_one_line() {
    for (message, line) in [
        ("{}", "{}"),
        ("{}\n", "{}"),
        ("\r\n{\n  \"a\":\r\n1}\r\n", "{   \"a\":  1}"),
        (" {\t} ", " {\t} "),
        ("{\"a\":\"\u{2028}\u{85}\\n\"}", "{\"a\":\"\u{2028}\u{85}\\n\"}"),
        ("\n\n", ""),
        ("", ""),
    ] {
        assert_eq!(String::from_utf8_lossy(&one_line(message.as_bytes())), line);
    }
}
