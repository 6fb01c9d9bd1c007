//! Calls, their replies, and missing replies.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use std::{fs, thread};

use super::super::{Bus, BusError, MalformedMessage, UserBus, auth};

use super::{LONG, connected, error_to, read_message, reply_to};
use leash_model::clock::Moment;
use testkit::Scratch;

#[test]
fn an_error_reply_is_a_refusal_and_the_bus_stays_usable() {
    let (mut bus, mut theirs) = connected();
    let error = error_to(1, "org.freedesktop.systemd1.NoSuchUnit", "Unit x not loaded.");
    theirs.write_all(&error).expect("write");
    theirs
        .write_all(&reply_to(2, "v", |body| {
            body.signature("s");
            body.str("active");
        }))
        .expect("write");
    let refused = bus.stop_unit("x").expect_err("no such unit");
    assert_eq!(
        refused.to_string(),
        "`StopUnit` was refused with `org.freedesktop.systemd1.NoSuchUnit`: Unit x not loaded."
    );
    assert_eq!(bus.unit_property_string("x", "Unit", "ActiveState").expect("a state"), "active");
}

#[test]
fn signals_and_replies_to_other_calls_are_skipped() {
    let (mut bus, mut theirs) = connected();
    let mut signal = reply_to(1, "", |_| ());
    signal[1] = 4;
    theirs.write_all(&signal).expect("write");
    theirs.write_all(&reply_to(77, "", |_| ())).expect("write");
    theirs.write_all(&error_to(78, "x.y", "")).expect("write");
    theirs.write_all(&reply_to(1, "o", |body| body.str("/job"))).expect("write");
    assert_eq!(bus.stop_unit("x").expect("a reply"), "/job");
}

#[test]
fn a_reply_of_another_type_breaks_the_connection() {
    let (mut bus, mut theirs) = connected();
    theirs.write_all(&reply_to(1, "u", |body| body.u32(5))).expect("write");
    let error = bus.stop_unit("x").expect_err("not an object path");
    assert!(matches!(error, BusError::Malformed(MalformedMessage::Type { expected: "o", .. })));
    assert!(matches!(bus.ping(), Err(BusError::Broken)));
}

#[test]
fn a_huge_message_is_refused_before_it_is_read() {
    let (mut bus, mut theirs) = connected();
    let mut huge = reply_to(1, "", |_| ());
    huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    theirs.write_all(&huge).expect("write");
    assert!(matches!(bus.ping(), Err(BusError::Malformed(MalformedMessage::TooLarge { .. }))));
}

#[test]
fn silence_ends_at_the_deadline() {
    let (mut bus, theirs) = connected();
    bus.renew(Duration::from_millis(20));
    assert!(matches!(bus.ping(), Err(BusError::TimedOut)));
    assert!(matches!(bus.ping(), Err(BusError::Broken)));
    drop(theirs);
}

#[test]
fn endless_chatter_ends_at_the_deadline() {
    let (mut bus, mut theirs) = connected();
    bus.renew(Duration::from_millis(20));
    let chatter = thread::spawn(move || while theirs.write_all(&reply_to(99, "", |_| ())).is_ok() {});
    assert!(matches!(bus.ping(), Err(BusError::TimedOut)));
    drop(bus);
    chatter.join().expect("ends when the reader is gone");
}

#[test]
fn a_peer_that_never_reads_ends_at_the_deadline() {
    let (mut bus, theirs) = connected();
    bus.renew(Duration::from_millis(20));
    let flood = vec![0; 16 << 20];
    assert!(matches!(bus.channel.send(&flood), Err(BusError::TimedOut)));
    drop(theirs);
}

#[test]
fn closed_connection_is_an_error() {
    let (mut bus, theirs) = connected();
    drop(theirs);
    assert!(matches!(bus.ping(), Err(BusError::Closed | BusError::Io(_))));
}

#[test]
fn empty_environment_is_an_error() {
    let nowhere = Bus::connect(&UserBus::default(), LONG);
    assert!(matches!(nowhere, Err(BusError::NoAddress)));
}

#[test]
fn error_names_every_address_that_was_tried() {
    let environment =
        UserBus { address: Some("unix:abstract=leash-no-such-bus".into()), runtime_dir: Some("/nonexistent".into()) };
    let error = Bus::connect(&environment, LONG).expect_err("no process listens").to_string();
    assert!(error.starts_with("no user manager answers: `@leash-no-such-bus`: cannot connect: "), "{error}");
    assert!(error.contains("`/nonexistent/bus`: cannot connect: "), "{error}");
    assert!(error.contains("`/nonexistent/systemd/private`: cannot connect: "), "{error}");
}

#[test]
fn only_ok_authenticates() {
    check_authentication(b"OK 0123456789abcdef\r\n", |result| assert!(result.is_ok()));
    check_authentication(b"REJECTED EXTERNAL\r\n", |result| {
        assert!(matches!(result, Err(BusError::Rejected { uid: 1000 })));
    });
    check_authentication(&[b'x'; 600], |result| {
        assert!(matches!(result, Err(BusError::Malformed(MalformedMessage::Line))));
    });
    check_authentication(b"", |result| assert!(matches!(result, Err(BusError::Closed))));
}

fn check_authentication(answer: &[u8], check: impl FnOnce(Result<(), BusError>)) {
    let (mut bus, mut theirs) = connected();
    theirs.write_all(answer).expect("write");
    theirs.shutdown(std::net::Shutdown::Write).expect("shutdown");
    check(auth::authenticate(&mut bus.channel, 1000));
    drop(bus);
    let mut said = Vec::new();
    theirs.read_to_end(&mut said).expect("read");
    assert_eq!(said, b"\0AUTH EXTERNAL 31303030\r\nBEGIN\r\n");
}

/// A runtime directory that is removed after the test.
struct RuntimeDir(Scratch);

impl RuntimeDir {
    fn new() -> RuntimeDir {
        let dir = Scratch::new();
        fs::create_dir(dir.join("systemd")).expect("directory");
        RuntimeDir(dir)
    }

    fn listen(&self, name: &str) -> UnixListener {
        UnixListener::bind(self.0.join(name)).expect("bind")
    }

    fn environment(&self) -> UserBus {
        UserBus { address: None, runtime_dir: Some(self.0.to_owned()) }
    }
}

/// Serves one connection: authenticates it, then gives each of `answers` to one message.
fn serve(listener: UnixListener, answers: Vec<Vec<u8>>) -> thread::JoinHandle<Vec<Vec<u8>>> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut greeting = Vec::new();
        while !greeting.ends_with(b"BEGIN\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("greeting");
            greeting.extend(byte);
        }
        stream.write_all(b"OK 00\r\n").expect("ok");
        let exchange = |answer: Vec<u8>| {
            let message = read_message(&mut stream);
            stream.write_all(&answer).expect("answer");
            message
        };
        answers.into_iter().map(exchange).collect()
    })
}

fn mentions(message: &[u8], text: &str) -> bool {
    message.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_bus_is_greeted_and_its_manager_is_asked_by_name() {
    let dir = RuntimeDir::new();
    let name = reply_to(1, "s", |body| body.str(":1.7"));
    let server = serve(dir.listen("bus"), vec![name, reply_to(2, "", |_| ())]);
    Bus::connect(&dir.environment(), LONG).expect("connected");
    let messages = server.join().expect("server");
    assert!(mentions(&messages[0], "Hello"));
    assert!(mentions(&messages[1], "org.freedesktop.systemd1\0"));
}

#[test]
fn a_bus_without_a_manager_leads_to_the_private_socket() {
    let dir = RuntimeDir::new();
    let name = reply_to(1, "s", |body| body.str(":1.7"));
    let nobody = error_to(2, "org.freedesktop.DBus.Error.NameHasNoOwner", "nobody");
    let bus = serve(dir.listen("bus"), vec![name, nobody]);
    check_private(&dir, LONG);
    bus.join().expect("bus");
}

#[test]
fn a_bus_that_hangs_leaves_time_for_the_private_socket() {
    let dir = RuntimeDir::new();
    let hangs = dir.listen("bus");
    check_private(&dir, Duration::from_millis(400));
    drop(hangs);
}

fn check_private(dir: &RuntimeDir, budget: Duration) {
    let manager = serve(dir.listen("systemd/private"), vec![reply_to(1, "", |_| ())]);
    Bus::connect(&dir.environment(), budget).expect("connected");
    let messages = manager.join().expect("manager");
    assert!(mentions(&messages[0], "Ping"));
    assert!(!mentions(&messages[0], "org.freedesktop.systemd1\0"), "a peer has no name");
}

#[test]
fn a_full_backlog_ends_at_the_deadline() {
    let dir = RuntimeDir::new();
    let listener = dir.listen("bus");
    rustix::net::listen(&listener, 0).expect("listen");
    let first = UnixStream::connect(dir.0.join("bus")).expect("connect");
    let bus = dir.environment().candidates().remove(0);
    let second = Bus::open(&bus, Moment::now() + Duration::from_millis(20));
    assert!(matches!(second, Err(BusError::TimedOut)));
    drop((first, listener));
}
