//! The facts about a connection that its receipt needs and that never change.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::ledger::receipt::{EndedBy, Holding, Reason, Receipt, UpstreamEnd, VERSION};

/// The ids, name and labels of a connection. The connection and its keeper write the same receipt from them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) session: String,
    pub(crate) run: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The text that is shown instead of the address.
    pub(crate) shown: Option<String>,
    pub(crate) started_ms: u64,
}

impl Terms {
    pub(crate) fn receipt(&self, reason: Reason, ended_by: EndedBy, took: Duration, ends: Vec<UpstreamEnd>) -> Receipt {
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
            containment: None,
            refused: Vec::new(),
            holdings: ends.into_iter().map(shown).map(Holding::Upstream).collect(),
            dropped_holdings: 0,
            ended_by,
            started_ms: self.started_ms,
            ended_ms: clock::unix_ms(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
