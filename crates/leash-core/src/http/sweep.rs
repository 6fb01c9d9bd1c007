//! stub
use std::rc::Rc;
use super::gateway::Gateway;
pub(crate) async fn sweep(_gateway: Rc<Gateway>) {}
