//! stub
use super::gateway::Gateway;
use std::rc::Rc;
pub(crate) async fn sweep(_gateway: Rc<Gateway>) {}
