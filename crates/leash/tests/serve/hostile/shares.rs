//! One client tries to use everything that is meant for all: memory for answers and bodies, and sessions.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, Reply, initialize};
use testkit::puppet::{Puppet, Theatre};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LIST, MIB, Rest, end, open, post_head, sent};

/// Just below the longest line that a server may write.
const SIZE: u64 = 15 * MIB;

/// The bytes that the gateway holds for clients that do not read.
fn held(gateway: &Gateway) -> u64 {
    gateway.metric("leash_held_bytes{of=\"answers\"}").expect("the gateway counts what it holds") as u64
}

/// A session with a puppet.
fn played(gateway: &Gateway, theatre: &Theatre) -> (String, Puppet) {
    let mut client = gateway.connect();
    client.send("POST", "/x/mcp", &POST, initialize("2025-06-18").as_bytes()).expect("it is sent");
    let mut puppet = theatre.next();
    puppet.initialize("2025-06-18");
    let reply = client.reply().expect("an answer");
    (reply.header("mcp-session-id").expect("a session").to_owned(), puppet)
}

fn request(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)
}

fn answer(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{}"}}}}"#, "x".repeat(SIZE as usize))
}

/// The message of an answer, which is an event stream if it took long.
fn message(reply: &Reply) -> String {
    let text = reply.text();
    let event = text.lines().find_map(|line| line.strip_prefix("data: "));
    event.map(str::to_owned).unwrap_or(text)
}

/// Sends a request without reading the answer.
fn ask(gateway: &Gateway, session: &str, id: u64) -> Connection {
    let mut client = gateway.connect();
    let headers = [POST[0], POST[1], ("mcp-session-id", session)];
    client.send("POST", "/x/mcp", &headers, request(id).as_bytes()).expect("it is sent");
    client
}

/// Answers these requests, for as long as that takes.
fn answers(mut mouth: UnixStream, ids: impl Iterator<Item = u64> + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for id in ids {
            if mouth.write_all(format!("{}\n", answer(id)).as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// Waits until so much is held that the servers must wait, and then watches for a while. Returns the highest value.
fn most_held(gateway: &Gateway, full: u64) -> u64 {
    wait::until("the bound to be reached", || (held(gateway) >= full).then_some(()));
    let look = |_| {
        wait::step(std::time::Duration::from_millis(100));
        held(gateway)
    };
    (0..10).map(look).max().unwrap_or_default()
}

/// Ten answers of 15 MiB, none of which the client reads: two are in memory and the next is on its way; the server
/// waits with the others. When the client reads after all, no byte is missing.
#[test]
fn a_session_holds_few_answers_that_its_client_does_not_read() {
    const ANSWERS: u64 = 10;
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = Gateway::single(&scene, &[], &theatre.words(&scene, "polite"));
    let (session, mut puppet) = played(&gateway, &theatre);
    let before = gateway.memory();
    let mut clients = Vec::new();
    for id in 1..=ANSWERS {
        clients.push(ask(&gateway, &session, id));
        assert_eq!(puppet.hear_text(), request(id));
    }
    let speaker = answers(puppet.mouth(), 1..=ANSWERS);
    // Two of the longest lines may be held: the third stops the server.
    let most = most_held(&gateway, 3 * SIZE);
    assert!(most <= 48 * MIB, "{most} bytes are held");
    let used = gateway.memory().saturating_sub(before);
    assert!(used < 128 * MIB, "{used} bytes of memory for {ANSWERS} answers of {SIZE}");
    for (id, mut client) in (1..=ANSWERS).zip(clients) {
        assert!(message(&client.reply().expect("an answer")) == answer(id), "the answer to {id} is not whole");
    }
    speaker.join().expect("everything was said");
    wait::until("the memory to be given back", || (held(&gateway) == 0).then_some(()));
    assert_eq!(gateway.ask("DELETE", "/x/mcp", &[("mcp-session-id", &session)], b"").status, 200);
    drop(puppet);
    scene.wait_gone(&[gateway.pid()]).expect("nothing but the gateway is left");
}

/// Many sessions with one answer each: the total of one origin is bounded as well, and clients that read are served all
/// the same.
#[test]
fn all_sessions_of_one_origin_hold_a_bounded_number_of_unread_answers() {
    const SESSIONS: u64 = 16;
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = Gateway::single(&scene, &[], &theatre.words(&scene, "polite"));
    let before = gateway.memory();
    let mut slow = Vec::new();
    for _ in 0..SESSIONS {
        let (session, mut puppet) = played(&gateway, &theatre);
        let client = ask(&gateway, &session, 1);
        assert_eq!(puppet.hear_text(), request(1));
        let speaker = answers(puppet.mouth(), 1..=1);
        slow.push((client, session, puppet, speaker));
    }
    // 128 MiB, and the four lines that were on their way when the limit was reached.
    let most = most_held(&gateway, 128 * MIB);
    assert!(most <= 192 * MIB, "{most} bytes are held");
    let used = gateway.memory().saturating_sub(before);
    assert!(used < 320 * MIB, "{used} bytes of memory for {SESSIONS} answers of {SIZE}");
    // Short answers pass in the meantime.
    let (session, mut puppet) = played(&gateway, &theatre);
    let mut client = ask(&gateway, &session, 7);
    assert_eq!(puppet.hear_text(), request(7));
    puppet.say(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(client.reply().expect("an answer").status, 200);
    for (mut client, _, _, speaker) in slow {
        assert!(message(&client.reply().expect("an answer")) == answer(1), "the answer is not whole");
        speaker.join().expect("everything was said");
    }
    wait::until("the memory to be given back", || (held(&gateway) == 0).then_some(()));
}

/// A client that sends endless bodies gets a share of the memory for bodies, and not all of it.
#[test]
fn stalled_bodies_of_one_client_leave_room_for_others() {
    const BODY: usize = 4_194_304;
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &scene.tree("polite", ["--mcp"]));
    let rest = Rest::of(&gateway, &["x"]);
    let head = format!("{}Content-Length: {BODY}\r\n\r\n", post_head(None));
    let most_of_it = [head.as_bytes(), &vec![b' '; BODY - 1]].concat();
    // More than the total limit.
    let mut stalled: Vec<Connection> = (0..70).map(|_| sent(&gateway, &most_of_it)).collect();
    let refused = stalled.last_mut().expect("there are many").reply().expect("an answer");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    let small = initialize("2025-06-18");
    let long = small.replace("\"capabilities\"", &format!("\"x\":\"{}\",\"capabilities\"", "y".repeat(BODY / 2)));
    let reply = gateway.ask("POST", "/x/mcp", &[POST[0], POST[1], ("authorization", "Bearer b")], long.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let session = reply.header("mcp-session-id").expect("a session").to_owned();
    let taken = gateway.metric("leash_held_bytes{of=\"requests\"}").expect("it is counted") as u64;
    assert!(taken > 32 * MIB && taken <= 64 * MIB, "{taken} bytes of bodies");
    let headers = [("mcp-session-id", session.as_str()), ("authorization", "Bearer b")];
    assert_eq!(gateway.ask("DELETE", "/x/mcp", &headers, b"").status, 200);
    drop(stalled);
    gateway.wait_metric("leash_held_bytes{of=\"requests\"}", 0.0);
    rest.again(&gateway, &["x"], 8 * MIB);
}

#[test]
fn limit_of_one_client_does_not_affect_others() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &["--max-sessions-per-client", "3"], &scene.tree("polite", ["--mcp"]));
    let sessions: Vec<String> = (0..3).map(|_| open(&gateway, "x")).collect();
    let refused = gateway.post("x", None, &initialize("2025-06-18"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert!(refused.text().contains("too many sessions of this client"), "{}", refused.text());
    let other = [POST[0], POST[1], ("authorization", "Bearer b")];
    let reply = gateway.ask("POST", "/x/mcp", &other, initialize("2025-06-18").as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    // Ended sessions are not counted.
    end(&gateway, "x", &sessions[0]);
    let again = open(&gateway, "x");
    assert_eq!(gateway.post("x", Some(&again), LIST).status, 200);
    drop(gateway);
    scene.wait_gone(&[]).expect("nothing is left");
}

/// With the default configuration: made-up credentials do not help, and another user of the machine finds a free
/// session.
#[test]
fn one_user_never_takes_the_last_sessions() {
    let scene = or_skip!(Scene::set(Who::User));
    if scene.user().uid() == rustix::process::getuid().as_raw() {
        return testkit::note("skipped: two users are needed, and only root can be both");
    }
    let gateway = Gateway::single(&scene, &["--max-sessions", "10"], &scene.tree("polite", ["--mcp"]));
    let open_as = |credential: usize| {
        let credential = format!("Bearer {credential}");
        let headers = [POST[0], POST[1], ("authorization", credential.as_str())];
        gateway.ask("POST", "/x/mcp", &headers, initialize("2025-06-18").as_bytes()).status
    };
    let statuses: Vec<u16> = (0..10).map(open_as).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 200, 200, 503]);
    let address = gateway.address();
    let other = scene.user().act(|| {
        let mut connection = Connection::open(address);
        testkit::gateway::post(&mut connection, "x", None, &initialize("2025-06-18")).status
    });
    assert_eq!(other, 200);
    drop(gateway);
    scene.wait_gone(&[]).expect("nothing is left");
}
