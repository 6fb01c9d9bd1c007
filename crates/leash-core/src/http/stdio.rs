//! stub
use super::front::Call;
use super::gateway::Gateway;
use super::respond::Answer;
use super::server::Server;
use crate::ledger::receipt::{Reason, Receipt};
use std::rc::Rc;
pub(crate) struct Bridge;
impl Bridge {
    pub(crate) async fn end(&self, _reason: &Reason) -> Option<Receipt> {
        None
    }
}
#[derive(Default)]
pub(crate) struct ModernTrees;
impl ModernTrees {
    pub(crate) fn end_all(&self, _reason: &Reason) -> usize {
        0
    }
}
pub(crate) async fn answer(_gateway: &Rc<Gateway>, _server: &Rc<Server>, _call: Call) -> Answer {
    super::respond::no_such_path()
}
