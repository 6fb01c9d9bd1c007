//! Sessions as an API: `POST /v1/sessions` and its kin, on the control socket.

mod account;
mod jobs;

use std::rc::Rc;

use hyper::Request;
use hyper::body::Incoming;

use super::gateway::Gateway;
use super::respond::{self, Answer};

pub(crate) use account::Account;
pub(crate) use jobs::Jobs;

/// Answers a request of the control API. Who may ask is decided by the one who accepted the connection.
pub(crate) async fn answer(gateway: Rc<Gateway>, request: Request<Incoming>) -> Answer {
    let _ = (gateway, request);
    respond::no_such_path()
}
