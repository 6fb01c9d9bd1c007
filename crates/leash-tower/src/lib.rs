//! `SessionGuardLayer`: what `leash serve` does for sessions at other people's servers, for a Rust server's own.
//!
//! Servers that speak Streamable HTTP keep a session for every client that has ever said `initialize`, and few clients ever say DELETE. The
//! timers that SDKs have count from the last message, so a call that is longer than the timer is cut in the middle. This layer
//! sits in front of any tower service over [`hyper::Request`] and [`hyper::Response`] and ends sessions as they should be:
//!
//! - **idle** for so long, and nothing in flight. A response counts until its body has ended, an open GET stream too.
//! - **as old** as they may become.
//! - **asked for**, through [`GuardedSessions`], one or all; at the server's own end as well.
//!
//! To end one is to send DELETE to the service below, with the headers that the client last sent: its credentials and its protocol
//! version are among them. After that the id is answered with 404, as the specification asks for, and never reaches the service. Over
//! the cap `initialize` is answered with 503. An `initialize` whose client has left runs on, so that its session is known, and ended.
//!
//! ```
//! use std::time::Duration;
//! use leash_tower::SessionGuardLayer;
//! use tower_layer::Layer as _;
//!
//! # #[derive(Clone)] struct YourService;
//! let guard = SessionGuardLayer::new().idle(Duration::from_secs(600)).max_sessions(1000);
//! let sessions = guard.sessions(); // To list them and to end them.
//! let service = guard.layer(YourService); // With axum: `Router::new().route_service("/mcp", service)`.
//! assert_eq!(sessions.list().len(), 0);
//! # let _ = service;
//! ```
//!
//! In front of rmcp's `StreamableHttpService`, set `keep_alive` of its `SessionConfig` to `None`: that timer cuts calls in flight.
//!
//! What it needs: a tokio runtime with time, and below it a service that ends a session on DELETE. What it does not see: a call whose
//! client has closed the connection is not in flight any more, even if the server goes on with it; and a client that vanished
//! without closing its connection is noticed by the one who writes to it, which event streams do (rmcp: every 15 s).

mod answer;
mod body;
mod entry;
mod guardable;
mod opening;
mod release;
mod service;
mod sessions;
mod shared;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

pub use body::{GuardedBody, RequestBody};
pub use release::Ended;
pub use service::SessionGuard;
pub use sessions::{GuardedSession, GuardedSessions};

use leash_model::client_session::Terms;
use leash_model::limits;
use shared::Shared;

/// A layer that ends the sessions of a server that speaks Streamable HTTP. Clones, and the services made by them, share their
/// sessions. Set its terms first: a guard on other terms is another guard.
#[derive(Clone, Debug)]
pub struct SessionGuardLayer {
    shared: Arc<Shared>,
}

/// Who is told of every end.
type Listener = Arc<dyn Fn(&Ended) + Send + Sync>;

/// What a guard was told.
#[derive(Clone)]
struct Policy {
    terms: Terms,
    max_sessions: usize,
    on_end: Option<Listener>,
}

impl Default for SessionGuardLayer {
    fn default() -> SessionGuardLayer {
        SessionGuardLayer::new()
    }
}

impl SessionGuardLayer {
    /// A guard on the terms of `leash serve`: 30 minutes of idle time, no greatest age, 10,000 sessions.
    pub fn new() -> SessionGuardLayer {
        let terms = Terms {
            idle: Some(limits::IDLE),
            max_age: None,
            // There are no client processes here, so nothing lingers after them.
            linger: Duration::ZERO,
            init_timeout: limits::INIT_TIMEOUT,
        };
        SessionGuardLayer::of(Policy { terms, max_sessions: limits::MAX_SESSIONS, on_end: None })
    }

    fn of(policy: Policy) -> SessionGuardLayer {
        SessionGuardLayer { shared: Arc::new(Shared::new(policy)) }
    }

    /// Another guard on other terms. It has no sessions: those stay with the one that opened them.
    fn change(self, change: impl FnOnce(&mut Policy)) -> SessionGuardLayer {
        let mut policy = self.shared.policy.clone();
        change(&mut policy);
        SessionGuardLayer::of(policy)
    }

    /// From the end of the last request to the end of the session; `None`: they are never too idle.
    #[must_use]
    pub fn idle(self, idle: impl Into<Option<Duration>>) -> SessionGuardLayer {
        let idle = idle.into();
        self.change(|policy| policy.terms.idle = idle)
    }

    /// The longest a session may live, calls in flight or not.
    #[must_use]
    pub fn max_age(self, age: impl Into<Option<Duration>>) -> SessionGuardLayer {
        let age = age.into();
        self.change(|policy| policy.terms.max_age = age)
    }

    /// How long the service may take to answer `initialize`: after that the client has 504, and a late session is ended at once.
    #[must_use]
    pub fn init_timeout(self, time: Duration) -> SessionGuardLayer {
        self.change(|policy| policy.terms.init_timeout = time)
    }

    /// How many sessions there may be, those that are opening or ending included. A request without a session counts while it is
    /// not answered, because it may be an `initialize`.
    #[must_use]
    pub fn max_sessions(self, most: usize) -> SessionGuardLayer {
        self.change(|policy| policy.max_sessions = most)
    }

    /// Something to be told of every end, for logs and metrics. It is called when the session is gone, and must not block.
    #[must_use]
    pub fn on_end(self, tell: impl Fn(&Ended) + Send + Sync + 'static) -> SessionGuardLayer {
        self.change(|policy| policy.on_end = Some(Arc::new(tell)))
    }

    /// What the guard knows, to be listed and ended from elsewhere.
    pub fn sessions(&self) -> GuardedSessions {
        GuardedSessions::new(Arc::clone(&self.shared))
    }
}

impl<S> Layer<S> for SessionGuardLayer {
    type Service = SessionGuard<S>;

    fn layer(&self, inner: S) -> SessionGuard<S> {
        SessionGuard::new(inner, Arc::clone(&self.shared))
    }
}
