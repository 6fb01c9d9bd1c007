//! The page of `leash serve`: who may see it, and what a real browser shows.

mod access;
mod browser;
mod live;
mod pictures;

use serde_json::Value;
use testkit::gateway::Gateway;
use testkit::http::{Connection, Reply};
use testkit::scene::Scene;

/// The routes of the page that only read.
const READING: [&str; 6] = ["/-/", "/-/page.js", "/-/page.css", "/-/events", "/-/history", "/-/why?run:x"];

/// A one-time link, as `leash status --open` prints it.
fn link(scene: &Scene) -> String {
    let answer = scene.answer(["status", "--open"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.stdout.trim_end().to_owned()
}

/// The path of a link.
fn path(link: &str) -> &str {
    let (_, path) = link.split_once("/-/").expect("the path of the page");
    &link[link.len() - path.len() - 3..]
}

/// Uses a link; the value of `Cookie` for all other requests.
fn cookie(scene: &Scene, gateway: &Gateway) -> String {
    let reply = gateway.ask("GET", path(&link(scene)), &[], b"");
    assert_eq!(reply.status, 303, "{}", reply.text());
    cookie_of(&reply).to_owned()
}

fn cookie_of(reply: &Reply) -> &str {
    let cookie = reply.header("set-cookie").expect("a cookie");
    cookie.split(';').next().unwrap_or_default()
}

/// Opens the event stream and reads it until it has a row as wanted; the stream, and the key of the row.
fn wait_row(gateway: &Gateway, cookie: &str, is_wanted: impl Fn(&Value) -> bool) -> (Connection, String) {
    let mut stream = gateway.connect();
    stream.send("GET", "/-/events", &[("cookie", cookie)], b"").expect("it is taken");
    assert_eq!(stream.head().expect("an answer").status, 200);
    loop {
        let event = stream.chunk().expect("an event").expect("the stream goes on");
        let text = String::from_utf8(event).expect("UTF-8");
        let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
        let document: Value = serde_json::from_str(data).expect("JSON");
        let rows = ["added", "changed"].iter().filter_map(|part| document[part].as_array()).flatten();
        if let Some(row) = rows.into_iter().find(|row| is_wanted(row)) {
            return (stream, row["key"].as_str().expect("a key").to_owned());
        }
    }
}
