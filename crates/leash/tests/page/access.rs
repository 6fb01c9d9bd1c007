//! Who may see the page and end something with it, by plain HTTP.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use testkit::gateway::Gateway;
use testkit::http::{Connection, Reply};
use testkit::scene::Scene;
use testkit::user::{User, Who};
use testkit::wait::LIMIT;
use testkit::{or_skip, wait};

use super::{READING, cookie, cookie_of, link, path, wait_row};

/// The head of an answer: event streams do not end.
fn head(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut connection = gateway.connect();
    connection.send("GET", path, headers, b"").expect("it is taken");
    connection.head().expect("an answer")
}

fn server(scene: &Scene) -> Gateway {
    Gateway::single(scene, &["--grace", "0"], &scene.tree("polite", ["--mcp"]))
}

fn check_secure(reply: &Reply) {
    let policy = reply.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{reply:?}");
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{reply:?}");
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"), "{reply:?}");
    assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{reply:?}");
    assert_eq!(reply.header("access-control-allow-origin"), None, "{reply:?}");
}

#[test]
fn link_works_once_and_gives_the_cookie() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = server(&scene);
    let link = link(&scene);
    assert!(link.starts_with(&format!("http://{}/-/open?", gateway.address())), "{link}");
    for refused in ["/-/open", "/-/open?", "/-/open?guess"] {
        assert_eq!(gateway.ask("GET", refused, &[], b"").status, 403, "{refused}");
    }
    let reply = gateway.ask("GET", path(&link), &[], b"");
    assert_eq!((reply.status, reply.header("location")), (303, Some("/-/")));
    check_secure(&reply);
    let value = reply.header("set-cookie").expect("a cookie");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/-/"] {
        assert!(value.split("; ").any(|found| found == part), "{value}");
    }
    let cookie = cookie_of(&reply).to_owned();
    assert!(cookie.rsplit('=').next().is_some_and(|secret| secret.len() * 5 >= 256), "{cookie}");
    let again = gateway.ask("GET", path(&link), &[("cookie", &cookie)], b"");
    assert_eq!((again.status, again.header("set-cookie")), (403, None), "it is used up");
    assert!(again.text().contains("leash status --open"), "{}", again.text());
    for path in READING {
        let expected = if path.starts_with("/-/why") { 404 } else { 200 };
        let reply = head(&gateway, path, &[("cookie", &cookie)]);
        assert_eq!(reply.status, expected, "{path}");
        check_secure(&reply);
    }
    let browser = ("accept", "text/html,*/*");
    assert_eq!(head(&gateway, "/", &[browser]).header("location"), Some("/-/"), "the address alone leads there");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// With a display, the program of the desktop gets the link, which is printed as well.
#[test]
fn link_is_opened_where_there_is_a_display() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let gateway = server(&scene);
    let (bin, opened) = (scene.dir().join("bin"), scene.dir().join("opened"));
    std::fs::create_dir(&bin).expect("it can be made");
    let script = format!("#!/bin/sh\necho \"$1\" > {0}.new && mv {0}.new {0}\n", opened.display());
    std::fs::write(bin.join("xdg-open"), script).expect("it can be written");
    std::fs::set_permissions(bin.join("xdg-open"), PermissionsExt::from_mode(0o755)).expect("it can be changed");
    scene.user().own(scene.dir()).expect("its directory is its own");
    let paths = std::env::var("PATH").unwrap_or_default();
    scene.set_env("PATH", format!("{}:{paths}", bin.display()));
    let answer = scene.answer(["status", "--open"]);
    assert!(answer.stderr.contains("open it in a browser on this machine"), "{answer:?}");
    scene.set_env("DISPLAY", ":0");
    let answer = scene.answer(["status", "--open"]);
    assert!(answer.stderr.contains("opening it in your browser"), "{answer:?}");
    let url = wait::until("the browser", || std::fs::read_to_string(&opened).ok());
    assert_eq!(url, answer.stdout, "only the second one was opened");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn without_the_cookie_nothing_is_shown() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = server(&scene);
    let cookie = cookie(&scene, &gateway);
    let name = cookie.split('=').next().expect("a name").to_owned();
    let [empty, wrong, short] = ["", "=x", "="].map(|end| format!("{name}{end}"));
    let other = cookie.replace("leash-page-", "leash-page-1");
    for path in READING {
        for given in ["a=b", &*empty, &*wrong, &*short, &*other, &cookie[..cookie.len() - 1]] {
            let reply = head(&gateway, path, &[("cookie", given)]);
            assert_eq!(reply.status, 401, "{path} {given}");
            check_secure(&reply);
        }
        assert_eq!(head(&gateway, path, &[]).status, 401, "{path}");
        let link = link(&scene);
        let secret = link.rsplit('?').next().expect("a secret");
        assert_eq!(head(&gateway, path, &[("cookie", &format!("{name}={secret}"))]).status, 401, "a link is no cookie");
    }
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn foreign_origin_and_rebinding_host_are_refused_on_every_route() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = server(&scene);
    let cookie = cookie(&scene, &gateway);
    let (port, link) = (gateway.address().port(), link(&scene));
    let own = format!("http://{}", gateway.address());
    let rebound = format!("evil.example:{port}");
    let neighbour = format!("http://127.0.0.1:{}", port.wrapping_add(1));
    let routes = READING.into_iter().chain(["/-/end", "/-/icon", path(&link)]);
    for path in routes {
        for (name, value) in [
            ("host", "evil.example"),
            ("host", &*rebound),
            ("host", "127.0.0.1"),
            ("host", "127.0.0.1:1"),
            ("origin", "http://evil.example"),
            ("origin", &neighbour),
            ("origin", "null"),
        ] {
            let reply = head(&gateway, path, &[("cookie", &cookie), (name, value)]);
            assert_eq!(reply.status, 403, "{path} {name}: {value}");
            check_secure(&reply);
        }
    }
    let site = ("sec-fetch-site", "cross-site");
    assert_eq!(head(&gateway, "/-/events", &[("cookie", &cookie), site]).status, 403, "another page opens the stream");
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        assert_eq!(head(&gateway, "/-/events", &[("cookie", &cookie), ("host", &host)]).status, 200, "{host}");
    }
    assert_eq!(head(&gateway, "/-/history", &[("cookie", &cookie), ("origin", &own)]).status, 200);
    assert_eq!(gateway.ask("GET", path(&link), &[], b"").status, 303, "no refused request has used the link up");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn end_needs_a_post_with_the_cookie_and_the_own_origin() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let gateway = server(&scene);
    let host =
        scene.host(&Default::default(), None, &scene.run_words(["--name", "mail"], &scene.tree("polite", [""; 0])));
    scene.census().wait_all_ready(1, LIMIT).expect("the tree did not come up");
    let cookie = cookie(&scene, &gateway);
    let (stream, key) = wait_row(&gateway, &cookie, |row| row["name"] == "mail");
    let origin = format!("http://{}", gateway.address());
    let body = json!({"key": key}).to_string();
    let json = ("content-type", "application/json");
    let all = [json, ("cookie", &*cookie), ("origin", &*origin)];
    for left_out in 0..all.len() {
        let rest: Vec<_> = (0..all.len()).filter(|at| *at != left_out).map(|at| all[at]).collect();
        let reply = gateway.ask("POST", "/-/end", &rest, body.as_bytes());
        assert_eq!(reply.status, [415, 401, 403][left_out], "without {:?}: {}", all[left_out], reply.text());
    }
    let foreign = [json, ("cookie", &*cookie), ("origin", "http://evil.example")];
    assert_eq!(gateway.ask("POST", "/-/end", &foreign, body.as_bytes()).status, 403);
    for method in ["GET", "DELETE", "PUT"] {
        assert_eq!(gateway.ask(method, "/-/end", &all, b"").status, 405, "{method}");
    }
    for wrong in ["", "{}", "[]", r#"{"key": 1}"#, &"x".repeat(5000)] {
        assert_eq!(gateway.ask("POST", "/-/end", &all, wrong.as_bytes()).status, 400, "{wrong}");
    }
    assert_eq!(gateway.ask("POST", "/-/end", &all, br#"{"key": "run:unknown"}"#).status, 404);
    assert!(scene.witness().is_populated(), "a refused request ended it");
    let reply = gateway.ask("POST", "/-/end", &all, body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let ended = reply.json();
    assert_eq!(ended["receipts"][0]["name"], "mail", "{ended:#}");
    assert!(ended["lines"][0].as_str().is_some_and(|line| line.starts_with("mail [")), "{ended:#}");
    scene.census().wait_gone(LIMIT).expect("it is gone when the answer comes");
    drop((host, stream));
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn another_user_is_refused_even_with_the_cookie() {
    or_skip!(User::find(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    // `any` serves MCP clients of other users, and not the page.
    let options = ["--grace", "0", "--local-users", "any"];
    let gateway = Gateway::single(&scene, &options, &scene.tree("polite", ["--mcp"]));
    let cookie = cookie(&scene, &gateway);
    let link = link(&scene);
    let other = or_skip!(User::find(Who::User));
    let socket = scene.runtime_dir().join("control.sock");
    other.act(|| {
        for path in READING.into_iter().chain([path(&link)]) {
            assert_eq!(head(&gateway, path, &[("cookie", &cookie)]).status, 403, "{path}");
        }
        assert!(Connection::open_local(&socket).is_err(), "another user cannot ask for a link");
    });
    scene.user().act(|| assert_eq!(head(&gateway, "/-/", &[("cookie", &cookie)]).status, 200));
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn page_can_be_switched_off() {
    let scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("leash.json");
    let text = r#"{"mcpServers": {"x": {"command": "cat"}}, "leash": {"page": false}}"#;
    std::fs::write(&file, text).expect("it can be written");
    let file = file.to_str().expect("a plain path");
    for words in [&["--no-page", "--name", "x", "--", "cat"][..], &["--config", file]] {
        let gateway = Gateway::start(&scene, words);
        for path in READING {
            assert_eq!(head(&gateway, path, &[("accept", "text/html")]).status, 404, "{path}");
        }
        assert_eq!(head(&gateway, "/", &[("accept", "text/html")]).status, 404);
        let answer = scene.answer(["status", "--open"]);
        assert_eq!((answer.code, &*answer.stdout), (1, ""), "{answer:?}");
        assert!(answer.stderr.contains("switched off") && answer.stderr.contains("--no-page"), "{answer:?}");
        gateway.stop();
    }
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn control_address_shows_the_page_too() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("CONTROL_TOKEN", "correct-horse");
    let options = ["--control-listen", "127.0.0.1:0", "--control-token-env", "CONTROL_TOKEN"];
    let gateway = Gateway::single(&scene, &options, &["cat".into()]);
    let url = wait::until("the control API", || {
        gateway.said().lines().find_map(|line| Some(line.strip_prefix("control API on ")?.to_owned()))
    });
    let address = url.strip_prefix("http://").and_then(|url| url.parse().ok()).expect("an address");
    let ask = |path: &str, headers: &[(&str, &str)]| Connection::open(address).ask("GET", path, headers, b"");
    assert_eq!(ask("/-/", &[]).status, 401);
    assert_eq!(ask("/-/", &[("authorization", "Bearer wrong")]).status, 401);
    let program = ask("/", &[("authorization", "Bearer correct-horse")]);
    assert!(program.status == 200 && program.text().starts_with("<!doctype html>"), "{}", program.text());
    let answer = scene.answer(["status", "--open", "--url", &url, "--token-env", "CONTROL_TOKEN"]);
    let link = answer.stdout.trim_end();
    assert!(link.starts_with(&format!("{url}/-/open?")), "{answer:?}");
    assert_eq!(ask(path(link), &[("origin", "http://evil.example")]).status, 403);
    assert_eq!(ask(path(link), &[("host", "evil.example")]).status, 403);
    let opened = ask(path(link), &[]);
    let cookie = cookie_of(&opened);
    assert_eq!(ask("/-/history", &[("cookie", cookie)]).status, 200);
    assert_eq!(ask("/v1/status", &[("cookie", cookie)]).status, 401, "the cookie is for the page only");
    // The control socket knows its caller.
    let mut local = Connection::open_local(&scene.runtime_dir().join("control.sock")).expect("it listens");
    assert!(local.ask("GET", "/", &[], b"").text().starts_with("<!doctype html>"));
    let origin = ("origin", "http://localhost");
    assert_eq!(local.ask("GET", "/-/history", &[origin], b"").status, 403, "a page in a browser");
    drop(local);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn open_stream_does_not_delay_the_end_of_the_gateway() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = server(&scene);
    let cookie = cookie(&scene, &gateway);
    let mut stream = gateway.connect();
    stream.send("GET", "/-/events", &[("cookie", &cookie)], b"").expect("it is taken");
    assert_eq!(stream.head().expect("an answer").header("content-type"), Some("text/event-stream"));
    stream.chunk().expect("the first bytes");
    gateway.stop();
    while stream.chunk().expect("it ends in order").is_some() {}
    scene.wait_gone(&[]).expect("nothing is left");
}
