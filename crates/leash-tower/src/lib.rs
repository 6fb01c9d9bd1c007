//! `SessionGuardLayer`: ends the sessions of a Rust server's own service, as `leash serve` does for sessions at other
//! servers.
//!
//! Servers that speak Streamable HTTP keep a session for every client that ever sent `initialize`, and few clients ever
//! send DELETE. The timers of the SDKs count from the last message, so they cut a call that takes longer than the
//! timer. This layer sits in front of any tower service over [`hyper::Request`] and [`hyper::Response`] and ends
//! sessions:
//!
//! - when they were **idle** for the idle timeout. A session is not idle while a response body or a GET stream is open.
//! - when they reach their **maximum age**.
//! - **on request**, through [`GuardedSessions`], one or all; also when the server shuts down.
//!
//! To end a session, the guard sends DELETE to the service below, with the headers that the client last sent, which
//! include its credentials and its protocol version. After that the guard answers the id with 404, as the specification
//! requires, and the service never sees it. Above the limit of sessions, it answers `initialize` with 503. An
//! `initialize` whose client has disconnected still runs to its end, so that the guard knows its session and ends it.
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
//! In front of rmcp's `StreamableHttpService`, set `keep_alive` of its `SessionConfig` to `None`: its timer cuts calls
//! in flight.
//!
//! The guard needs a tokio runtime with time, and a service that ends a session on DELETE. Its limits: a call whose
//! client has closed the connection no longer counts as in flight, even if the server continues it. And a client that
//! vanished without closing its connection is noticed only when the service writes to it, which event streams do (rmcp:
//! every 15 s).

mod answer;
mod entry;
mod guardable;
mod opening;
mod options;
mod registry;
mod release;
mod request_body;
mod request_template;
mod response_body;
mod service;
mod sessions;
mod sweeper;

use std::{sync::Arc, time::Duration};

use tower_layer::Layer;

pub use release::Ended;
pub use request_body::RequestBody;
pub use response_body::GuardedBody;
pub use service::SessionGuard;
pub use sessions::{GuardedSession, GuardedSessions};

use entry::Shared;
use leash_model::{client_session::SessionTimes, limits};
use options::GuardOptions;

/// A layer that ends the sessions of a server that speaks Streamable HTTP. Its clones, and the services made by them,
/// share their sessions. Set all options first: each setter returns a new guard without sessions.
#[derive(Clone, Debug)]
pub struct SessionGuardLayer {
    shared: Arc<Shared>,
}

impl Default for SessionGuardLayer {
    fn default() -> SessionGuardLayer {
        SessionGuardLayer::new()
    }
}

impl SessionGuardLayer {
    /// A guard with the defaults of `leash serve`: an idle timeout of 30 minutes, no maximum age, 10,000 sessions.
    pub fn new() -> SessionGuardLayer {
        let times = SessionTimes {
            idle: Some(limits::IDLE),
            max_age: None,
            // The guard knows no client processes: no session lingers after one, and no living one abandons a session.
            linger: Duration::ZERO,
            abandoned: None,
            init_timeout: limits::INIT_TIMEOUT,
        };
        SessionGuardLayer::of(GuardOptions { times, max_sessions: limits::MAX_SESSIONS, on_end: None })
    }

    fn of(options: GuardOptions) -> SessionGuardLayer {
        SessionGuardLayer { shared: Arc::new(Shared::new(options)) }
    }

    /// A new guard with other options. It has no sessions: those stay with the guard that opened them.
    fn change(self, change: impl FnOnce(&mut GuardOptions)) -> SessionGuardLayer {
        let mut options = self.shared.options.clone();
        change(&mut options);
        SessionGuardLayer::of(options)
    }

    /// The time from the end of the last request to the end of the session; `None` means no idle timeout.
    #[must_use]
    pub fn idle(self, idle: impl Into<Option<Duration>>) -> SessionGuardLayer {
        let idle = idle.into();
        self.change(|options| options.times.idle = idle)
    }

    /// The longest time that a session may live, even with calls in flight.
    #[must_use]
    pub fn max_age(self, age: impl Into<Option<Duration>>) -> SessionGuardLayer {
        let age = age.into();
        self.change(|options| options.times.max_age = age)
    }

    /// The time that the service may take to answer `initialize`. After it the client gets 504, and a late session is
    /// ended at once.
    #[must_use]
    pub fn init_timeout(self, time: Duration) -> SessionGuardLayer {
        self.change(|options| options.times.init_timeout = time)
    }

    /// The limit of sessions, including those that are opening or ending. A request without a session counts until it
    /// is answered, because it may be an `initialize`.
    #[must_use]
    pub fn max_sessions(self, most: usize) -> SessionGuardLayer {
        self.change(|options| options.max_sessions = most)
    }

    /// A function for every end, for logs and metrics. It is called when the session is gone, and must not block.
    #[must_use]
    pub fn on_end(self, tell: impl Fn(&Ended) + Send + Sync + 'static) -> SessionGuardLayer {
        self.change(|options| options.on_end = Some(Arc::new(tell)))
    }

    /// A handle that lists and ends the sessions of this guard.
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
