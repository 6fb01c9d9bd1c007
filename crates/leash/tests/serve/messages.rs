//! Every error of the gateway says which thing failed, and one thing to do.

use testkit::gateway::Gateway;
use testkit::http::{POST, Reply, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{LIST, config, stdio_server};

fn message(reply: &Reply) -> String {
    reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn unknown_server_names_the_nearest_and_all_others() {
    let scene = or_skip!(Scene::set(Who::User));
    let server = stdio_server(&scene);
    let text = format!(r#"{{"mcpServers": {{"everything": {{{server}}}, "files": {{{server}}}}}}}"#);
    let gateway = Gateway::start(&scene, ["--config", &config(&scene, &text)]);
    let said = |path: &str| {
        let reply = gateway.ask("POST", path, &POST, LIST.as_bytes());
        assert_eq!(reply.status, 404, "{}", reply.text());
        message(&reply)
    };
    let all = "leash serves everything, files (at /NAME/mcp)";
    assert_eq!(
        said("/evrything/mcp"),
        format!("Not Found: there is no server `evrything`; did you mean `everything`?; {all}")
    );
    assert_eq!(said("/"), format!("Not Found: the path names no server; {all}"));
    assert_eq!(said("/files/messages"), "Not Found: the server `files` is at /files/mcp");
    let long = said(&format!("/{}/mcp", "x".repeat(4000)));
    assert!(long.len() < 300, "{long}");
}

#[test]
fn refused_host_is_named_with_the_key_that_allows_it() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &scene.tree("setsid", ["--mcp"]));
    let said = |headers: &[(&str, &str)]| {
        let reply = gateway.ask("POST", "/x/mcp", &[&POST[..], headers].concat(), LIST.as_bytes());
        assert_eq!(reply.status, 403, "{}", reply.text());
        message(&reply)
    };
    assert_eq!(
        said(&[("host", "gateway.example:80")]),
        "Forbidden: the Host `gateway.example:80` is not allowed; add it to `allowedHosts` of the gateway's `leash`"
    );
    assert_eq!(
        said(&[("origin", "http://app.example")]),
        "Forbidden: the Origin `http://app.example` is not allowed; add it to `allowedOrigins` of the gateway's `leash`"
    );
}

#[test]
fn upstream_that_is_not_there_is_named() {
    let scene = or_skip!(Scene::set(Who::User));
    // The port is free: its listener is closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
    let gateway = Gateway::in_front_of(&scene, &[], &format!("http://127.0.0.1:{port}/mcp"));
    let reply = gateway.post("x", None, &initialize("2025-06-18"));
    assert_eq!(reply.status, 502);
    assert_eq!(message(&reply), "Bad Gateway: cannot reach `x`: connection refused; is the server running?");
}

#[test]
fn upstream_without_tls_is_recognised() {
    let scene = or_skip!(Scene::set(Who::User));
    let plain = Gateway::single(&scene, &[], &scene.tree("setsid", ["--mcp"]));
    let url = format!("https://localhost:{}/x/mcp", plain.address().port());
    let gateway = Gateway::in_front_of(&scene, &["--no-control"], &url);
    let reply = gateway.post("x", None, &initialize("2025-06-18"));
    assert_eq!(reply.status, 502);
    assert_eq!(
        message(&reply),
        "Bad Gateway: cannot reach `x`: the server does not speak TLS; did you mean http:// instead of https://?"
    );
}
