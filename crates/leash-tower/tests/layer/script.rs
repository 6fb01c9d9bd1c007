//! A scripted service that records its requests.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::{Notify, Semaphore};
use tower_service::Service;

/// The state and the instructions of the service.
#[derive(Default)]
pub(crate) struct World {
    /// Sessions that are open.
    pub(crate) open: BTreeSet<String>,
    /// The number of sessions that were ever opened.
    pub(crate) opened: usize,
    /// The headers of every DELETE.
    pub(crate) deletes: Vec<HeaderMap>,
    /// The status of the next answers to DELETE, which then does nothing.
    pub(crate) refusals: VecDeque<StatusCode>,
    /// The body of these answers.
    pub(crate) refusal_text: &'static str,
    /// The credential that it requires; `None` for no check.
    pub(crate) credential: Option<&'static str>,
    /// It panics at the next `initialize`.
    pub(crate) panics: bool,
    /// It gives this id to every session.
    pub(crate) id: Option<&'static str>,
}

/// The service. Clones share their state.
#[derive(Clone)]
pub(crate) struct Script {
    world: Arc<Mutex<World>>,
    /// `initialize` waits for a permit, if this is set.
    pub(crate) gate: Option<Arc<Semaphore>>,
    /// Notified when an `initialize` waits at the gate.
    pub(crate) waits: Arc<Notify>,
}

impl Script {
    pub(crate) fn new() -> Script {
        Script { world: Arc::default(), gate: None, waits: Arc::default() }
    }

    /// A service whose `initialize` is only answered when the gate permits it.
    pub(crate) fn gated() -> (Script, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        (Script { gate: Some(Arc::clone(&gate)), ..Script::new() }, gate)
    }

    pub(crate) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Waits until an `initialize` is at the gate.
    pub(crate) async fn at_the_gate(&self) {
        super::soon("an initialize", self.waits.notified()).await;
    }

    async fn answer(self, method: Method, path: String, headers: HeaderMap) -> Response<Full<Bytes>> {
        let session = headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        if self.world().credential.is_some_and(|wanted| headers.get("authorization").is_none_or(|has| has != wanted)) {
            return status(StatusCode::UNAUTHORIZED);
        }
        match (method, session) {
            _ if path != "/mcp" => status(StatusCode::NOT_FOUND),
            (Method::POST, None) if headers.contains_key("x-stateless") => status(StatusCode::OK),
            (Method::POST, None) => self.open().await,
            (Method::DELETE, Some(session)) => {
                let mut world = self.world();
                world.deletes.push(headers);
                match world.refusals.pop_front() {
                    Some(refusal) => status(refusal).map(|_| Full::from(world.refusal_text)),
                    None if world.open.remove(&session) => status(StatusCode::NO_CONTENT),
                    None => status(StatusCode::NOT_FOUND),
                }
            }
            (_, Some(session)) if self.world().open.contains(&session) => status(StatusCode::OK),
            _ => status(StatusCode::NOT_FOUND),
        }
    }

    async fn open(self) -> Response<Full<Bytes>> {
        if let Some(gate) = &self.gate {
            self.waits.notify_one();
            gate.acquire().await.unwrap().forget();
        }
        if self.world().panics {
            // This prints no panic message.
            std::panic::resume_unwind(Box::new("told to"));
        }
        let mut world = self.world();
        world.opened += 1;
        let id = world.id.map_or_else(|| format!("s-{}", world.opened), str::to_owned);
        world.open.insert(id.clone());
        let mut answer = status(StatusCode::OK);
        answer.headers_mut().insert("mcp-session-id", id.parse().unwrap());
        answer
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(b"{}")));
    *answer.status_mut() = status;
    answer
}

impl<B: Send + 'static> Service<Request<B>> for Script {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (script, (head, _)) = (self.clone(), request.into_parts());
        Box::pin(async move { Ok(script.answer(head.method, head.uri.path().to_owned(), head.headers).await) })
    }
}
