//! Peers that vanish without FIN or RST: the kernel must notice, on both sides of the gateway, within a minute.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::http::{POST, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::both;

/// A minute, in seconds.
const NOTICED: u64 = 60;

/// The gateway's own TCP connections, as copies of its descriptors, without listeners.
fn connections(gateway: &Gateway) -> Result<Vec<OwnedFd>, Errno> {
    let gateway_fd = pidfd_open(gateway.pid(), PidfdFlags::empty())?;
    let listed = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid().as_raw_nonzero())).expect("it lives");
    let mut found = Vec::new();
    for entry in listed.flatten() {
        let Ok(number) = entry.file_name().to_string_lossy().parse() else { continue };
        let copy = match pidfd_getfd(&gateway_fd, number, PidfdGetfdFlags::empty()) {
            // It was closed meanwhile.
            Err(Errno::BADF) => continue,
            copy => copy?,
        };
        if sockopt::tcp_nodelay(&copy).is_ok() && rustix::net::getpeername(&copy).is_ok_and(|peer| peer.is_some()) {
            found.push(copy);
        }
    }
    Ok(found)
}

#[test]
fn a_dead_peer_is_noticed_within_a_minute_on_both_sides() {
    let scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, "");
    let mut client = gateway.connect();
    let reply = client.ask("POST", "/http/mcp", &POST, initialize("2025-06-18").as_bytes());
    let session = reply.header("mcp-session-id").expect("a session").to_owned();
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", session.as_str())];
    client.send("GET", "/http/mcp", &headers, b"").expect("it is sent");
    assert_eq!(client.head().expect("an answer").status, 200);
    let connections = match connections(&gateway) {
        Ok(connections) => connections,
        Err(Errno::PERM) => return testkit::note("skipped: the gateway's descriptors may not be copied"),
        Err(error) => panic!("cannot copy the gateway's descriptors: {error}"),
    };
    assert!(connections.len() >= 2, "one from the client, one to the server: {}", connections.len());
    for connection in connections {
        assert!(sockopt::socket_keepalive(&connection).expect("an option"), "silence is not noticed");
        let (idle, pause) = (sockopt::tcp_keepidle(&connection), sockopt::tcp_keepintvl(&connection));
        let probes = sockopt::tcp_keepcnt(&connection).expect("an option");
        let silence = idle.expect("an option").as_secs() + pause.expect("an option").as_secs() * u64::from(probes);
        assert!(silence <= NOTICED, "a silent peer is noticed after {silence} s");
        let unacknowledged = u64::from(sockopt::tcp_user_timeout(&connection).expect("an option"));
        assert!((1..=NOTICED * 1000).contains(&unacknowledged), "unread data is given up after {unacknowledged} ms");
    }
}
