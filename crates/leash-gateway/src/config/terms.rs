//! The terms of a server's sessions and trees: the keys of its own `leash` and, for all servers, of the one at top
//! level.

use std::time::Duration;

use schemars::{Schema, SchemaGenerator};

use super::json::{ConfigReader, Field};
use super::keys;
use super::settings::{KeepAlive, OwnerPolicy, ServerCommand, SessionPolicy};
use super::table::{Key, KeySchema, Table, key, shapes};
use leash_model::containment::{Containment, ContainmentWish};
use leash_model::limits;
use leash_tree::contain::{self, Situation, caps::Caps};

/// The terms read so far: the defaults, overridden by the top level, overridden by the server.
#[derive(Clone, Default)]
pub(super) struct ServerTerms {
    pub(super) policy: SessionPolicy,
    contain: Option<Containment>,
    require: Option<Containment>,
    spare: Vec<String>,
    caps: Caps,
}

impl ServerTerms {
    /// Copies the terms of a tree into a command line.
    pub(super) fn govern(&self, line: &mut ServerCommand) {
        line.contain = self.contain;
        line.require = self.require;
        line.spare.clone_from(&self.spare);
        line.caps = self.caps;
    }

    /// The reason that no containment can satisfy these terms on any machine; the first one that concerns them.
    pub(super) fn impossible(&self) -> Option<String> {
        let wish = ContainmentWish { exactly: self.contain, at_least: self.require };
        let (spares, caps) = (!self.spare.is_empty(), self.caps.any());
        let situation = Situation { own_proc: true, pid_one: false, spares, caps, slices: false };
        let (order, refused) = contain::candidates(wish, situation);
        if !order.is_empty() {
            return None;
        }
        let wanted = self.contain.or(self.require);
        let refusal = refused.into_iter().find(|refusal| wanted.is_none_or(|wanted| wanted == refusal.containment))?;
        Some(format!("`{}`: {}", refusal.containment, refusal.why))
    }
}

/// The keys of a server's `leash`.
pub(super) const TERMS: Table<ServerTerms> = Table {
    name: "ServerTerms",
    about: "The terms of a server's trees and client sessions, as in docs/reference/config.md.",
    keys: &[
        key!("idle", span_or_never => policy.idle, "A client session without traffic for this time ends."),
        key!(
            "abandoned",
            span_or_never => policy.abandoned,
            "A client session without traffic and connection for this time ends, even if its process lives."
        ),
        key!("maxAge", span_or_never => policy.max_age, "A client session of this age ends."),
        key!("maxSessions", count => Some(policy.max_sessions), "The limit of client sessions at once."),
        key!(
            "maxSessionsPerClient",
            count => Some(policy.max_sessions_per_client),
            "The limit of client sessions at once for one client."
        ),
        key!("grace", span => policy.grace, "The time between two steps of the end of a tree."),
        key!("linger", span => policy.linger, "The time that a client session outlives its last process."),
        key!("initTimeout", init_timeout => policy.init_timeout, "The time for the answer to `initialize`."),
        key!("keepAlive", keep_alive => policy.keep_alive, "The time between two pings to a client that listens."),
        key!(
            "keepAliveFailures",
            count => policy.keep_alive_failures,
            "The number of unanswered pings in a row after which a client counts as gone."
        ),
        key!("revive", boolean => policy.revive, "True if leash reopens a session that the server has lost."),
        key!("owner", owner => policy.owner, "The owner of a client session."),
        key!("replay", replay => policy.replay, "The bytes that a client session keeps for `Last-Event-ID`."),
        key!(
            "pressureStop",
            span_or_never => policy.pressure_stop,
            "Of a command: a tree that is idle for this time may be ended when memory is short."
        ),
        key!("contain", containment => Some(contain), "Of a command: exactly this containment."),
        key!("require", containment => Some(require), "Of a command: the weakest acceptable containment."),
        key!("spare", spare => spare, "Of a command: programs that may outlive the tree."),
        key!("memory", size => Some(caps.memory), "Of a command: the memory budget of a tree."),
        key!("pids", count => Some(caps.pids), "Of a command: the limit of processes and threads of a tree."),
        key!("cpu", cpu => Some(caps.cpu), "Of a command: the processor time of a tree: a percentage of one, or a weight."),
    ],
    null_is_absent: false,
    ..Table::EMPTY
};

/// The values of `owner`.
const OWNERS: [(&str, OwnerPolicy); 2] = [("auto", OwnerPolicy::Auto), ("traffic", OwnerPolicy::Traffic)];

impl<'a> ConfigReader<'a> {
    /// Reads the `leash` of a server over the defaults.
    pub(super) fn own_terms(&mut self, field: &Field<'a>) -> Option<ServerTerms> {
        let own = self.object(field.value, &field.to_string(), &field.place)?;
        let mut terms = self.defaults.clone();
        self.fields(&own, &TERMS, &mut terms, |name| keys::hint_in_leash(name, false));
        Some(terms)
    }

    fn init_timeout(&mut self, field: &Field<'a>) -> Option<Duration> {
        self.some_span(field, "give the server some time to start")
    }

    fn keep_alive(&mut self, field: &Field<'a>) -> Option<KeepAlive> {
        if field.value.get() == "\"auto\"" {
            return Some(KeepAlive::Auto);
        }
        self.span_or_never(field).map(|span| span.map_or(KeepAlive::Never, KeepAlive::Every))
    }

    fn owner(&mut self, field: &Field<'a>) -> Option<OwnerPolicy> {
        let text = self.string(field)?;
        let known = OWNERS.into_iter().find(|(name, _)| *name == text).map(|(_, owner)| owner);
        if known.is_none() {
            let hint = "\"auto\" finds the client's process where it can, \"traffic\" never looks for it";
            let what = format!("{field}: `{text}` is not one of {}", OWNERS.map(|(name, _)| name).join(", "));
            self.say(field.value.get(), what, hint.to_owned());
        }
        known
    }

    fn replay(&mut self, field: &Field<'a>) -> Option<usize> {
        if matches!(field.value.get(), "0" | "\"0\"") { Some(0) } else { self.buffer(field) }
    }

    fn spare(&mut self, field: &Field<'a>) -> Option<Vec<String>> {
        let names = self.strings(field)?;
        for (at, name) in &names {
            if name.len() > limits::LABEL_LENGTH || name.contains('/') {
                let hint = "write the name of the program as `ps` shows it, as in \"gpg-agent\"";
                self.say(at.get(), format!("{field}: this is not the name of a program"), hint.to_owned());
            }
        }
        Some(names.into_iter().map(|(_, name)| name).collect())
    }
}

shapes! {
    init_timeout: {"type": "string", "examples": ["30s"]},
    keep_alive: {"type": "string", "examples": ["30s", "auto", "never"]},
    owner: {"type": "string", "enum": OWNERS.map(|(name, _)| name)},
    replay: {"type": ["integer", "string"], "minimum": 0, "maximum": limits::LARGEST_BUFFER, "examples": ["1M", 0]},
    spare: {"type": "array", "items": {"type": "string", "minLength": 1, "examples": ["gpg-agent"]}},
}

impl KeySchema {
    pub(super) fn own_terms(generator: &mut SchemaGenerator) -> Schema {
        TERMS.schema(generator)
    }
}

/// Sets a value that could be read; after a mistake, keeps the old one.
pub(super) fn set<T>(slot: &mut T, read: Option<T>) {
    if let Some(value) = read {
        *slot = value;
    }
}
