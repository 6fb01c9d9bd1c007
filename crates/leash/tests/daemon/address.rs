//! The control API on a TCP address: only for clients with the token, and for no page in a browser.

use testkit::gateway::Gateway;
use testkit::http::{Connection, Reply};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

const TOKEN: &str = "correct-horse";

/// A gateway whose control API is on a TCP address, and that address.
fn gateway() -> Option<(Scene, Gateway, std::net::SocketAddr)> {
    let mut scene = Scene::set(Who::User).inspect_err(|why| testkit::note(&format!("skipped: {why}"))).ok()?;
    scene.set_env("CONTROL_TOKEN", TOKEN);
    let options = ["--control-listen", "127.0.0.1:0", "--control-token-env", "CONTROL_TOKEN"];
    let gateway = Gateway::single(&scene, &options, &["cat".into()]);
    let address = wait::until("the control API", || {
        gateway.said().lines().find_map(|line| line.strip_prefix("control API on http://")?.parse().ok())
    });
    Some((scene, gateway, address))
}

fn ask(address: std::net::SocketAddr, headers: &[(&str, &str)]) -> Reply {
    Connection::open(address).ask("GET", "/v1/version", headers, b"")
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn token_is_required() {
    let Some((_scene, gateway, address)) = gateway() else { return };
    let reply = ask(address, &[("authorization", &bearer(TOKEN))]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["pid"], gateway.pid().as_raw_nonzero().get());
    let wrong = ["correct-hors", "correct-horse-", "Correct-horse", "", "x"];
    let wrong = wrong.iter().map(|token| bearer(token)).chain([TOKEN.to_owned(), format!("Basic {TOKEN}")]);
    for authorization in wrong {
        let reply = ask(address, &[("authorization", &authorization)]);
        assert_eq!(reply.status, 401, "{authorization}");
    }
    let reply = ask(address, &[]);
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["type"], "urn:leash:problem:unauthorized");
}

#[test]
fn a_page_in_a_browser_is_refused_even_with_the_token() {
    let Some((_scene, _gateway, address)) = gateway() else { return };
    for origin in ["https://example.com", "null", "http://localhost", &format!("http://{address}")] {
        assert_eq!(ask(address, &[("authorization", &bearer(TOKEN)), ("origin", origin)]).status, 403, "{origin}");
    }
    for host in ["example.com", "localhost.example.com", ""] {
        assert_eq!(ask(address, &[("authorization", &bearer(TOKEN)), ("host", host)]).status, 403, "{host}");
    }
    let port = format!("localhost:{}", address.port());
    assert_eq!(ask(address, &[("authorization", &bearer(TOKEN)), ("host", &port)]).status, 200);
}

#[test]
fn the_gateway_itself_has_no_control_api() {
    let Some((_scene, gateway, _)) = gateway() else { return };
    for path in ["/v1/version", "/v1/sessions", "/v1/events"] {
        assert_eq!(gateway.ask("GET", path, &[("authorization", &bearer(TOKEN))], b"").status, 404, "{path}");
    }
}

#[test]
fn without_a_token_it_does_not_start() {
    let scene = or_skip!(Scene::set(Who::User));
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        let answer = scene.answer(["serve", "--control-listen", address, "--name", "x", "--", "cat"]);
        assert_eq!(answer.code, 2, "{answer:?}");
        assert!(answer.stderr.contains("needs a token"), "{answer:?}");
    }
    let empty =
        ["serve", "--control-listen", "127.0.0.1:0", "--control-token-env", "EMPTY", "--name", "x", "--", "cat"];
    let mut command = scene.leash(empty);
    command.env("EMPTY", " ");
    let status = command.stderr(std::process::Stdio::null()).status().expect("cannot start leash");
    assert_eq!(status.code(), Some(2));
}
