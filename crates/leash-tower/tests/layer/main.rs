//! `SessionGuardLayer` in front of a scripted service, and in front of the official SDK's.

mod mcp;
mod over_mcp;
mod property;
mod script;
mod scripted;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use hyper::{Method, Request, Response};
use leash_tower::{Ended, SessionGuardLayer};
use tokio::sync::{Mutex, mpsc};
use tower_service::Service;

/// Far beyond the time that anything here takes.
const LIMIT: Duration = Duration::from_secs(40);

/// Short enough to wait for, and long enough for a few requests.
const IDLE: Duration = Duration::from_millis(150);

/// Waits for an event that must happen.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Polls until `look` returns a value.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            let _ = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
        }
    })
    .await
}

/// The ends that a guard has reported, in their order.
#[derive(Clone)]
struct Ends(Arc<Mutex<mpsc::UnboundedReceiver<Ended>>>);

impl Ends {
    /// The guard, with a listener for its ends.
    fn of(guard: SessionGuardLayer) -> (SessionGuardLayer, Ends) {
        let (tell, told) = mpsc::unbounded_channel();
        let guard = guard.on_end(move |ended| drop(tell.send(ended.clone())));
        (guard, Ends(Arc::new(Mutex::new(told))))
    }

    async fn next(&self) -> Ended {
        soon("an end", async { self.0.lock().await.recv().await }).await.expect("the guard is there")
    }

    async fn none_yet(&self) -> bool {
        self.0.lock().await.is_empty()
    }
}

/// A request as clients send it.
fn request(method: Method, session: Option<&str>, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let builder = Request::builder()
        .method(method)
        .uri("http://localhost/mcp")
        .header("host", "localhost")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    let builder = session.into_iter().fold(builder, |builder, id| builder.header("mcp-session-id", id));
    builder.body(Full::new(body.into())).expect("a request")
}

/// Sends a request, and returns the answer with an unread body.
async fn send<S, R>(service: &S, request: Request<Full<Bytes>>) -> Response<R>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone,
    S::Error: Debug,
{
    let mut service = service.clone();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.expect("a ready service");
    soon("an answer", service.call(request)).await.expect("an answer")
}

/// The whole text of a body.
async fn text<R: Body>(body: R) -> String
where
    R::Error: Debug,
{
    let body = soon("the end of a body", body.collect()).await.expect("a whole body");
    String::from_utf8_lossy(&body.to_bytes()).into_owned()
}

/// The session id in an answer.
fn session_of<R>(answer: &Response<R>) -> String {
    answer.headers()["mcp-session-id"].to_str().expect("text").to_owned()
}
