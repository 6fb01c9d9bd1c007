//! Client sessions and their timers, with a paused clock and a holding that is neither a process nor a socket.

use std::{cell::RefCell, future::Future, rc::Rc, time::Duration};

use bytes::Bytes;
use hyper::{HeaderMap, Method};
use leash_model::receipt::Reason;
use leash_tree::{ledger::book::Book, places::Places};
use leash_upstream::address::{self, HttpTransport};
use leash_upstream::keeper::HeldSession;
use testkit::Scratch;
use tokio::task::LocalSet;

use super::backend::{Release, SessionHolding};
use super::{gateway::Gateway, server::Server, session::ClientSession};
use crate::config::{self, ServerTarget, SessionPolicy, Settings};
use crate::{budget::BudgetClient, call::Call, control::Jobs, serve};

const IDLE: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

/// The reasons for which holdings were released, in order.
type Released = Rc<RefCell<Vec<Reason>>>;

/// A holding that takes a second to release.
struct Fake(Released);

impl SessionHolding for Fake {
    fn release<'a>(&'a self, _: &'a Rc<Gateway>, _: &'a ClientSession, reason: Reason) -> Release<'a> {
        Box::pin(async move {
            after(SECOND).await;
            self.0.borrow_mut().push(reason);
            None
        })
    }

    fn held_session(&self, _: &ClientSession) -> Option<HeldSession> {
        None
    }
}

/// Lets so much time pass.
async fn after(time: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
}

struct Rig {
    gateway: Rc<Gateway>,
    server: Rc<Server>,
    released: Released,
    _dir: Scratch,
}

impl Rig {
    /// Opens a session, which holds something and is in use unless `opened` is false.
    fn open(&self, opened: bool) -> Rc<ClientSession> {
        let principal = self.gateway.principals.of(&HeaderMap::new(), None);
        let client = BudgetClient::of(principal, [127, 0, 0, 1].into());
        let call = Call {
            method: Method::POST,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            principal,
            peer: ([127, 0, 0, 1], 9).into(),
            client,
            local: None,
        };
        let Ok(session) = ClientSession::open(&self.gateway, &self.server, &call) else { panic!("there is room") };
        assert!(session.hold(Fake(Rc::clone(&self.released))));
        if opened {
            session.opened();
        }
        session
    }

    fn released(&self) -> Vec<Reason> {
        self.released.borrow().clone()
    }
}

/// Runs a test with a server on these terms, on a paused clock.
fn check<F: Future<Output = ()>>(policy: SessionPolicy, test: impl FnOnce(Rig) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), async {
        let upstream = address::upstream("http://127.0.0.1:1/mcp", &[], HttpTransport::Streamable).expect("an address");
        let server = config::ServerSettings { name: "s".to_owned(), policy, target: ServerTarget::Url(upstream) };
        let settings = Settings { servers: [("s".to_owned(), server)].into(), ..Settings::default() };
        let dir = Scratch::new();
        let places = Places::below(&*dir);
        let book = Book::of_gateway(&places, None).expect("a book");
        let gateway = Rc::new(serve::gateway(settings, places, book, Box::new(|_| ())));
        let ticking = tokio::task::spawn_local(serve::tick(Jobs::new(Rc::clone(&gateway), None)));
        let server = gateway.server("s").expect("it is configured");
        test(Rig { gateway, server, released: Released::default(), _dir: dir }).await;
        ticking.abort();
    });
}

fn terms() -> SessionPolicy {
    SessionPolicy { idle: Some(IDLE), init_timeout: 30 * SECOND, ..SessionPolicy::default() }
}

#[test]
fn unused_session_ends_after_the_idle_time_and_not_before() {
    check(terms(), |rig| async move {
        let session = rig.open(true);
        after(IDLE - SECOND).await;
        assert!(session.usable() && rig.released().is_empty());
        after(2 * SECOND).await;
        assert!(!session.usable(), "its token is unknown from now on");
        session.over().await;
        assert_eq!(rig.released(), [Reason::Idle]);
        assert!(rig.server.is_empty() && rig.gateway.count() == 0);
    });
}

#[test]
fn call_in_flight_keeps_a_session_and_its_end_starts_the_idle_time() {
    check(terms(), |rig| async move {
        let session = rig.open(true);
        let call = session.began();
        after(10 * IDLE).await;
        assert!(session.usable());
        drop(call);
        after(IDLE - SECOND).await;
        assert!(session.usable());
        after(2 * SECOND).await;
        session.over().await;
        assert_eq!(rig.released(), [Reason::Idle]);
    });
}

#[test]
fn greatest_age_ends_a_session_with_a_call_in_flight() {
    check(SessionPolicy { max_age: Some(2 * IDLE), ..terms() }, |rig| async move {
        let session = rig.open(true);
        let _call = session.began();
        after(2 * IDLE + SECOND).await;
        session.over().await;
        assert_eq!(rig.released(), [Reason::MaxAge]);
    });
}

#[test]
fn server_that_does_not_answer_initialize_ends_the_session() {
    check(terms(), |rig| async move {
        let session = rig.open(false);
        after(31 * SECOND).await;
        session.over().await;
        assert_eq!(rig.released(), [Reason::NotInitialized]);
    });
}

#[test]
fn second_end_changes_nothing() {
    check(terms(), |rig| async move {
        let session = rig.open(true);
        session.end(Reason::ClientDeleted);
        session.end(Reason::Shutdown);
        session.over().await;
        after(10 * IDLE).await;
        assert_eq!(rig.released(), [Reason::ClientDeleted]);
    });
}
