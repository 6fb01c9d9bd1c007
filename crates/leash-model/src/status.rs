//! A gateway as `leash status` and the control API show it.

use serde::{Deserialize, Serialize};

use crate::client::GatewayClient;
use crate::receipt::{Exit, Reason, Receipt, signal_name};
use crate::view::KindView;

/// A gateway, as it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Status"))]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// The version of leash.
    pub version: String,
    /// The pid of the gateway.
    pub pid: u32,
    /// The time at which it began to listen, milliseconds since 1970.
    pub started_at_ms: u64,
    /// The address at which clients on this machine reach it.
    pub url: String,
    /// The servers of its configuration, in the order of their names.
    pub servers: Vec<StatusServerView>,
    /// The number of sessions of the control API; `GET /v1/sessions` lists them.
    pub control_sessions: usize,
    /// The last problems, the newest last.
    pub problems: Vec<ProblemView>,
}

/// A server of a gateway's configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "StatusServer"))]
#[serde(rename_all = "camelCase")]
pub struct StatusServerView {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: KindView,
    /// The URL for clients.
    pub url: String,
    /// False if clients cannot use it, because its command or its settings are wrong.
    pub available: bool,
    /// Its client sessions, the oldest first.
    pub sessions: Vec<StatusSessionView>,
    /// The number of its process trees.
    pub trees: usize,
    /// The private memory of its trees when their keepers last measured it.
    pub memory_bytes: u64,
}

/// A client session of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "StatusSession"))]
#[serde(rename_all = "camelCase")]
pub struct StatusSessionView {
    /// The beginning of leash's own id for it. The whole id is a credential of the client.
    pub id: String,
    /// The time at which it began, milliseconds since 1970.
    pub started_at_ms: u64,
    /// Its client.
    pub client: GatewayClient,
    /// The requests that the client has sent in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Those of them that were not answered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<usize>,
}

/// A problem of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "StatusProblem"))]
#[serde(rename_all = "camelCase")]
pub struct ProblemView {
    /// The time at which it happened last, milliseconds since 1970.
    pub at_ms: u64,
    /// The problem, for people.
    pub text: String,
}

/// What went wrong with a session, in one line; `None` if its end was in order.
pub fn problem_of(receipt: &Receipt) -> Option<String> {
    let name = &receipt.name;
    if let Reason::StartFailed { why: Some(why) } = &receipt.reason {
        return Some(format!("`{name}` did not start: {}", why.line()));
    }
    if !receipt.nothing_left() {
        return Some(format!("something is left of `{name}`; `leash history --left` names it"));
    }
    let tree = receipt.trees().next()?;
    let how = match (&receipt.reason, tree.exit) {
        // A server that exits at once may do so before or after its gateway gives it up.
        (Reason::ServerExited | Reason::NotInitialized, Some(Exit::Code(code @ 1..))) => {
            format!("exited with code {code}")
        }
        (Reason::ServerExited, Some(Exit::Signal(signal))) => format!("was ended by {}", signal_name(signal)),
        (Reason::NotInitialized, _) => "did not answer `initialize`".to_owned(),
        (Reason::MemoryBudget { .. }, _) => "was ended because of a memory budget".to_owned(),
        _ => return None,
    };
    let said = tree.stderr.last().map_or_else(String::new, |line| format!("; its stderr ends with: {line}"));
    Some(format!("`{name}` {how}{said}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(reason: serde_json::Value, tree: serde_json::Value) -> Receipt {
        let mut holding = json!({"kind": "tree", "fate": "gone", "how": "exited", "members": 1, "memory_bytes": 0});
        holding.as_object_mut().unwrap().extend(tree.as_object().unwrap().clone());
        let receipt = json!({
            "version": 1, "session": "s", "run": "r", "name": "files", "labels": {}, "reason": reason, "refused": [],
            "holdings": [holding], "ended_by": "keeper", "started_ms": 1, "ended_ms": 2, "took_ms": 1,
        });
        serde_json::from_value(receipt).unwrap()
    }

    #[test]
    fn only_a_disorderly_end_is_a_problem() {
        let exited = || json!({"kind": "server_exited"});
        let check = |reason, tree, expected: Option<&str>| {
            assert_eq!(problem_of(&receipt(reason, tree)).as_deref(), expected);
        };
        check(exited(), json!({"exit": {"code": 0}}), None);
        check(json!({"kind": "idle"}), json!({"exit": {"code": 1}}), None);
        check(
            exited(),
            json!({"exit": {"code": 3}, "stderr": ["a", "no key"]}),
            Some("`files` exited with code 3; its stderr ends with: no key"),
        );
        check(json!({"kind": "not_initialized"}), json!({"exit": {"code": 3}}), Some("`files` exited with code 3"));
        check(
            json!({"kind": "not_initialized"}),
            json!({"exit": {"signal": 15}, "stderr": ["slow"]}),
            Some("`files` did not answer `initialize`; its stderr ends with: slow"),
        );
        check(exited(), json!({"exit": {"signal": 9}}), Some("`files` was ended by SIGKILL"));
        check(
            json!({"kind": "idle"}),
            json!({"fate": "left"}),
            Some("something is left of `files`; `leash history --left` names it"),
        );
    }
}
