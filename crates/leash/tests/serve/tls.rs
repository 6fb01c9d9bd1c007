//! Upstreams behind TLS: leash trusts a private authority only if `SSL_CERT_FILE` names it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::config;

/// A server with its own certificate for `localhost`; it ends with the test's process.
struct Secure {
    port: u16,
    certificate: String,
    /// `METHOD SESSION` of each request.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Secure {
    fn start() -> Secure {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_no_client_auth();
        let settings = Arc::new(builder.with_single_cert(vec![made.cert.der().clone()], key).expect("a server"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that does not trust the certificate disconnects during the handshake.
                let _ = answer(&settings, stream, &seen);
            }
        });
        Secure { port, certificate: made.cert.pem(), asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no thread panics while it holds the lock").clone()
    }
}

/// One request per connection.
fn answer(settings: &Arc<ServerConfig>, stream: TcpStream, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let connection = ServerConnection::new(Arc::clone(settings)).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let (mut method, mut session, mut length) = (String::new(), "none".to_owned(), 0);
    for number in 0.. {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(": ") {
            _ if line.is_empty() => break,
            _ if number == 0 => method = line.split(' ').next().unwrap_or_default().to_owned(),
            Some(("mcp-session-id", value)) => session = value.to_owned(),
            Some(("content-length", value)) => length = value.parse().map_err(std::io::Error::other)?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    asked.lock().expect("no thread panics while it holds the lock").push(format!("{method} {session}"));
    let result =
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{}}}"#;
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nMcp-Session-Id: secure";
    let mut stream = stream.into_inner();
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{result}", result.len())?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn gateway(scene: &Scene, server: &Secure) -> Gateway {
    let url = format!("https://localhost:{}/mcp", server.port);
    let file = config(scene, &format!(r#"{{"mcpServers": {{"s": {{"type": "http", "url": "{url}"}}}}}}"#));
    Gateway::start(scene, ["--config", &file])
}

#[test]
fn private_authority_is_trusted_if_named() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = Secure::start();
    let file = scene.dir().join("authority.pem");
    std::fs::write(&file, &server.certificate).expect("cannot write the certificate");
    scene.set_env("SSL_CERT_FILE", file);
    let gateway = gateway(&scene, &server);
    let reply = gateway.post("s", None, &initialize("2025-06-18"));
    assert_eq!((reply.status, reply.header("mcp-session-id")), (200, Some("secure")), "{}", reply.text());
    let over = gateway.ask("DELETE", "/s/mcp", &[("mcp-session-id", "secure")], b"");
    assert_eq!(over.status, 200);
    wait::until("the DELETE", || (server.asked() == ["post none", "delete secure"]).then_some(()));
}

#[test]
fn unknown_certificate_is_refused_with_a_reason() {
    let scene = or_skip!(Scene::set(Who::User));
    let server = Secure::start();
    let gateway = gateway(&scene, &server);
    let reply = gateway.post("s", None, &initialize("2025-06-18"));
    assert_eq!(reply.status, 502);
    assert!(reply.text().contains("no secure connection"), "{}", reply.text());
    assert!(server.asked().is_empty());
}
