//! The entry of one upstream session in a book of the ledger.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::receipt::{EndedBy, Holding, Reason, Receipt, UpstreamEnd, VERSION};
use crate::{clock, duration};

/// A session that is open at an upstream server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// leash's own id of the session.
    pub session: String,
    /// The server's name.
    pub server: String,
    /// The server's URL, without the query, which may hold a secret.
    pub url: String,
    /// The session's id at the server.
    pub id: String,
    /// The protocol version, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The text shown instead of the URL, if that is a secret: only we read the book, but other people read listings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// Its start, milliseconds since 1970.
    pub started_ms: u64,
}

impl Entry {
    /// The URL to show to people.
    pub fn shown(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.url)
    }

    /// The receipt of its end.
    pub fn receipt(&self, reason: Reason, ended_by: EndedBy, took: Duration, end: UpstreamEnd) -> Receipt {
        let end = match &self.shown {
            Some(shown) => UpstreamEnd { url: shown.clone(), ..end },
            None => end,
        };
        Receipt {
            version: VERSION,
            session: self.session.clone(),
            // A session at a server is a run of its own.
            run: self.session.clone(),
            name: self.server.clone(),
            labels: BTreeMap::new(),
            reason,
            client: None,
            containment: None,
            refused: Vec::new(),
            holdings: vec![Holding::Upstream(end)],
            dropped_holdings: 0,
            ended_by,
            started_ms: self.started_ms,
            ended_ms: clock::unix_ms(),
            took_ms: duration::as_ms(took),
        }
    }
}
