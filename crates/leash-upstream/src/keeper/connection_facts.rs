//! The facts about a connection that its receipt needs and that never change.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use leash_model::receipt::{EndedBy, Holding, Reason, Receipt, UpstreamEnd, VERSION};
use leash_model::{clock, duration};

/// The ids, name and labels of a connection. The connection and its keeper write the same receipt from them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionFacts {
    /// The id of the session.
    pub session: String,
    /// The id of this connection.
    pub run: String,
    /// The name for listings.
    pub name: String,
    /// The labels for listings.
    pub labels: BTreeMap<String, String>,
    /// The text that is shown instead of the address.
    pub shown: Option<String>,
    /// When the connection began, in milliseconds since 1970.
    pub started_ms: u64,
}

impl ConnectionFacts {
    /// The receipt that names all ended upstream sessions.
    pub fn receipt(&self, reason: Reason, ended_by: EndedBy, took: Duration, ends: Vec<UpstreamEnd>) -> Receipt {
        let shown = |end: UpstreamEnd| match &self.shown {
            Some(shown) => UpstreamEnd { url: shown.clone(), ..end },
            None => end,
        };
        Receipt {
            version: VERSION,
            session: self.session.clone(),
            run: self.run.clone(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            reason,
            client: None,
            containment: None,
            refused: Vec::new(),
            holdings: ends.into_iter().map(shown).map(Holding::Upstream).collect(),
            dropped_holdings: 0,
            ended_by,
            started_ms: self.started_ms,
            ended_ms: clock::unix_ms(),
            took_ms: duration::as_ms(took),
        }
    }
}
