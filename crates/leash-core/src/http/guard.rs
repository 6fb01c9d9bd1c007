//! stub
use super::front::Call;
use super::gateway::Gateway;
use super::respond::Answer;
use super::server::Server;
use super::session::Session;
pub(crate) use super::upstream::Client;
use crate::ledger::receipt::{Reason, Receipt};
use std::rc::Rc;
pub(crate) struct Upstream;
impl Upstream {
    pub(crate) async fn end(&self, _g: &Rc<Gateway>, _s: &Session, _reason: Reason) -> Receipt {
        unimplemented!()
    }
}
pub(crate) async fn answer(_gateway: &Rc<Gateway>, _server: &Rc<Server>, _call: Call) -> Answer {
    super::respond::no_such_path()
}
pub(crate) async fn answer_sse(_gateway: &Rc<Gateway>, _server: &Rc<Server>, _rest: &str, _call: Call) -> Answer {
    super::respond::no_such_path()
}
