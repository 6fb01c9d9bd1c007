//! The types that the control API shows; those of its sessions are in `leash_model::view`, because the commands read them,
//! too. `docs/reference/openapi.json` is made from them and their doc comments.

use schemars::JsonSchema;
use serde::Serialize;

use leash_model::receipt::Receipt;
pub(super) use leash_model::view::{
    HoldingView, KindView, OwnerView, ServerView, SessionView, SessionsView, StateView, VersionView,
};

/// The receipts of several sessions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Receipts")]
pub(super) struct ReceiptsView {
    /// One for each session.
    pub(super) receipts: Vec<Receipt>,
}

/// The result of an abort.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Aborted")]
pub(super) struct AbortedView {
    /// The number of requests that were cancelled.
    pub(super) aborted: usize,
}

/// The data of an event: `started`, `owner-lost`, `ending` or `ended`; `lost` says that the reader was too slow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Event")]
pub(super) struct EventView {
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// The time of the event, milliseconds since 1970.
    pub(super) at_ms: u64,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// The receipt; only in `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<Receipt>,
}
