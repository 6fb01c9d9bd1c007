//! The options of a guard.

use std::sync::Arc;

use super::release::Ended;
use leash_model::client_session::SessionTimes;

/// The function that is called for every end.
type Listener = Arc<dyn Fn(&Ended) + Send + Sync>;

/// The options.
#[derive(Clone)]
pub(super) struct GuardOptions {
    pub(super) times: SessionTimes,
    pub(super) max_sessions: usize,
    pub(super) on_end: Option<Listener>,
}
