//! Tests of the client against servers on loopback, with the errors it returns.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::Method;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{net::TcpListener, task::JoinSet};

use super::*;
use crate::scripted::{self, Scripted, reply, status};

fn request(url: &str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::from("body"));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().expect("an address");
    request
}

async fn text(answer: Response<Incoming>) -> String {
    let bytes = answer.into_body().collect().await.expect("a whole body").to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn connection_is_reused() {
    scripted::run(async {
        let upstream = Scripted::start(|_| reply(status(200, "fine"))).await;
        let client = UpstreamClient::new();
        for _ in 0..3 {
            let answer = client.send(request(&upstream.url().to_string())).await.expect("an answer");
            assert_eq!(text(answer).await, "fine");
        }
        upstream.connections(1).await;
        assert_eq!(upstream.seen().len(), 3);
        assert_eq!(upstream.seen()[0].header("host"), format!("127.0.0.1:{}", upstream.port));
    });
}

#[test]
fn failed_connection_returns_the_cause() {
    scripted::run(async {
        let client = UpstreamClient::new();
        // The port was free a moment ago, so no program listens there.
        let port = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address").port();
        let refused = client.send(request(&format!("http://127.0.0.1:{port}/mcp"))).await;
        assert_eq!(refused.err(), Some(UpstreamError::Refused));
        let unknown = client.send(request("http://no-such-host.invalid/mcp")).await;
        assert!(matches!(unknown, Err(UpstreamError::Dns(_))), "{unknown:?}");
        let broken = Scripted::start(|_| Box::pin(std::future::ready(None))).await;
        let broken = client.send(request(&broken.url().to_string())).await;
        assert!(matches!(broken, Err(UpstreamError::Broken(_))), "{broken:?}");
    });
}

#[test]
fn redirect_to_the_same_origin_is_followed_with_the_body() {
    scripted::run(async {
        let upstream = Scripted::start(|seen| {
            let mut answer = status(307, "");
            let to = match seen.uri.path() {
                "/mcp" => "/mcp/",
                "/away" => "http://127.0.0.1:1/mcp",
                "/loop" => "/loop",
                _ => return reply(status(200, "here")),
            };
            answer.headers_mut().insert(LOCATION, to.parse().expect("a header"));
            reply(answer)
        })
        .await;
        let client = UpstreamClient::new();
        let at = |path: &str| format!("http://127.0.0.1:{}{path}", upstream.port);
        let answer = client.send(request(&at("/mcp"))).await.expect("an answer");
        assert_eq!(text(answer).await, "here");
        assert_eq!(upstream.seen()[1].body, "body");
        // leash does not follow a redirect to another origin, because it would send the credentials there.
        assert_eq!(client.send(request(&at("/away"))).await.expect("an answer").status(), 307);
        assert_eq!(client.send(request(&at("/loop"))).await.expect("an answer").status(), 307);
    });
}

#[test]
fn reference_to_another_origin_is_refused() {
    let base: Uri = "http://Host:80/a/sse?key=1".parse().expect("an address");
    for (reference, meant) in [
        ("/messages?sessionId=1", Some("http://host:80/messages?sessionId=1")),
        ("http://host/m", Some("http://host/m")),
        ("https://host:80/m", None),
        ("http://host:81/m", None),
        ("http://other/m", None),
        ("//other/m", None),
        ("messages?id=1", Some("http://host:80/a/messages?id=1")),
        ("./messages", Some("http://host:80/a/messages")),
        ("?id=1", Some("http://host:80/a/sse?id=1")),
        ("/a/../b", None),
        ("", None),
        ("javascript:alert(1)", None),
    ] {
        let found = resolve(&base, reference).map(|uri| uri.to_string().replace("Host", "host"));
        assert_eq!(found.as_deref(), meant, "{reference}");
    }
}

/// A server with a self-signed certificate for `localhost`.
async fn secure() -> (u16, rustls::RootCertStore, JoinSet<()>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a server");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust the certificate breaks the handshake off.
            if let Ok(stream) = acceptor.accept(stream).await {
                scripted::serve_stream(stream, "secret").await;
            }
        }
    });
    (port, roots, tasks)
}

#[test]
fn tls_needs_a_trusted_certificate() {
    scripted::run(async {
        let (port, roots, _tasks) = secure().await;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let trusting = UpstreamClient::with(OnceCell::new_with(Some(Arc::new(config))), HeapTrimmer::default());
        let url = format!("https://localhost:{port}/mcp");
        let answer = trusting.send(request(&url)).await.expect("an answer");
        assert_eq!(text(answer).await, "secret");
        drop(trusting);
        let refused = UpstreamClient::new().send(request(&url)).await;
        assert!(matches!(refused, Err(UpstreamError::Tls(_))), "{refused:?}");
        // The client sends plain HTTP to a TLS server.
        let plain = UpstreamClient::new().send(request(&format!("http://localhost:{port}/mcp"))).await;
        assert!(matches!(plain, Err(UpstreamError::NotHttp(_))), "{plain:?}");
        // The client speaks TLS to a server of plain HTTP.
        let upstream = Scripted::start(|_| reply(status(200, "fine"))).await;
        let secure = UpstreamClient::new().send(request(&format!("https://localhost:{}/mcp", upstream.port))).await;
        assert_eq!(secure.err(), Some(UpstreamError::NotTls));
    });
}

#[test]
fn failure_names_the_server_and_one_thing_to_do() {
    let check = |error: UpstreamError, text: &str| assert_eq!(error.explain("http://127.0.0.1:1/mcp"), text);
    check(UpstreamError::Refused, "cannot reach http://127.0.0.1:1/mcp: connection refused; is the server running?");
    check(
        UpstreamError::NotTls,
        "cannot reach http://127.0.0.1:1/mcp: the server does not speak TLS; did you mean http:// instead of https://?",
    );
    check(
        UpstreamError::Broken("end of file".to_owned()),
        "http://127.0.0.1:1/mcp: the connection broke before the answer: end of file; the request may have been carried \
         out; look at the server's log",
    );
}

/// A server that closes each connection after `most` requests, without announcing it.
async fn impatient(most: usize) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            for _ in 0..most {
                let mut head = [0; 4096];
                let mut read = 0;
                while !head[..read].ends_with(b"body") {
                    read += stream.read(&mut head[read..]).await.expect("a request");
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine").await.expect("an answer");
            }
        }
    });
    (port, tasks)
}

#[test]
fn request_is_repeated_if_the_idle_connection_was_closed() {
    scripted::run(async {
        for most in 1..3 {
            let (port, _tasks) = impatient(most).await;
            let client = UpstreamClient::new();
            for round in 0..20 {
                let answer = client.send(request(&format!("http://127.0.0.1:{port}/mcp"))).await;
                let answer = answer.unwrap_or_else(|error| panic!("round {round} of {most}: {error}"));
                assert_eq!(text(answer).await, "fine");
                // The client may or may not have noticed the closed connection by then.
                for _ in 0..round % 3 {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
}

#[test]
fn stream_keeps_its_connection_until_it_ends() {
    scripted::run(async {
        let (sender, body) = scripted::stream();
        let body = std::cell::RefCell::new(Some(Response::new(body)));
        let upstream = Scripted::start(move |seen| match seen.method {
            Method::GET => reply(body.take().expect("one stream")),
            _ => reply(status(200, "fine")),
        })
        .await;
        let (client, url) = (UpstreamClient::new(), upstream.url().to_string());
        let mut listen = request(&url);
        *listen.method_mut() = Method::GET;
        let stream = client.send(listen).await.expect("a stream");
        for _ in 0..3 {
            assert_eq!(text(client.send(request(&url)).await.expect("an answer")).await, "fine");
        }
        upstream.connections(2).await;
        sender.send("the end".into()).expect("the client reads");
        drop(sender);
        assert_eq!(text(stream).await, "the end");
        // Both connections are free for the next two requests.
        let (one, other) = tokio::join!(client.send(request(&url)), client.send(request(&url)));
        assert_eq!(text(one.expect("an answer")).await + &text(other.expect("an answer")).await, "finefine");
        upstream.connections(2).await;
        // Dropping the client closes its connections.
        drop(client);
        upstream.connections(0).await;
    });
}

#[test]
fn unread_response_is_not_taken_for_the_next_one() {
    scripted::run(async {
        let upstream = Scripted::start(|seen| reply(status(200, if seen.says("body") { "fine" } else { "?" }))).await;
        let (client, url) = (UpstreamClient::new(), upstream.url().to_string());
        for _ in 0..10 {
            drop(client.send(request(&url)).await.expect("an answer"));
            assert_eq!(text(client.send(request(&url)).await.expect("an answer")).await, "fine");
        }
    });
}

#[test]
fn idle_connections_are_limited_after_a_burst() {
    scripted::run(async {
        let burst = limits::POOL_MOST + 20;
        // The server responds only when all requests have arrived, so that each has its own connection.
        let all = std::rc::Rc::new(tokio::sync::Barrier::new(burst));
        let upstream = Scripted::start(move |_| {
            let all = std::rc::Rc::clone(&all);
            Box::pin(async move {
                all.wait().await;
                reply(status(200, "fine")).await
            })
        })
        .await;
        let (client, url) = (UpstreamClient::new(), upstream.url().to_string());
        let mut asked = JoinSet::new();
        for _ in 0..burst {
            let (client, request) = (client.clone(), request(&url));
            asked.spawn_local(async move { text(client.send(request).await.expect("an answer")).await });
        }
        assert!(asked.join_all().await.iter().all(|answer| answer == "fine"));
        upstream.connections(limits::POOL_MOST).await;
    });
}
