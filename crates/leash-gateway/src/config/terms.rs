//! The terms of a server's sessions and trees: the keys of its own `leash` and, for all servers, of the one at top
//! level.

use super::json::{ConfigReader, Field};
use super::settings::{KeepAlive, OwnerPolicy, ServerCommand, SessionPolicy};
use leash_model::containment::{Containment, ContainmentWish};
use leash_model::limits;
use leash_tree::contain::{self, Situation};

/// The terms read so far: the defaults, overridden by the top level, overridden by the server.
#[derive(Clone, Default)]
pub(super) struct ServerTerms {
    pub(super) policy: SessionPolicy,
    contain: Option<Containment>,
    require: Option<Containment>,
    spare: Vec<String>,
    memory: Option<u64>,
    pids: Option<u64>,
}

impl ServerTerms {
    /// Copies the terms of a tree into a command line.
    pub(super) fn govern(&self, line: &mut ServerCommand) {
        line.contain = self.contain;
        line.require = self.require;
        line.spare.clone_from(&self.spare);
        line.memory = self.memory;
        line.pids = self.pids;
    }

    /// The reason that no containment can satisfy these terms on any machine; the first one that concerns them.
    pub(super) fn impossible(&self) -> Option<String> {
        let wish = ContainmentWish { exactly: self.contain, at_least: self.require };
        let caps = self.memory.is_some() || self.pids.is_some();
        let situation = Situation { own_proc: true, pid_one: false, spares: !self.spare.is_empty(), caps };
        let (order, refused) = contain::candidates(wish, situation);
        if !order.is_empty() {
            return None;
        }
        let wanted = self.contain.or(self.require);
        let refusal = refused.into_iter().find(|refusal| wanted.is_none_or(|wanted| wanted == refusal.containment))?;
        Some(format!("`{}`: {}", refusal.containment, refusal.why))
    }
}

impl<'a> ConfigReader<'a> {
    /// Reads a field into the terms. Returns false if it is not one of theirs.
    pub(super) fn term(&mut self, field: &Field<'a>, terms: &mut ServerTerms) -> bool {
        let policy = &mut terms.policy;
        match field.name.as_str() {
            "idle" => set(&mut policy.idle, self.span_or_never(field)),
            "maxAge" => set(&mut policy.max_age, self.span_or_never(field)),
            "maxSessions" => set(&mut policy.max_sessions, self.count(field).map(Some)),
            "maxSessionsPerClient" => set(&mut policy.max_sessions_per_client, self.count(field).map(Some)),
            "grace" => set(&mut policy.grace, self.span(field)),
            "linger" => set(&mut policy.linger, self.span(field)),
            "initTimeout" => {
                set(&mut policy.init_timeout, self.some_span(field, "give the server some time to start"));
            }
            "keepAlive" => set(&mut policy.keep_alive, self.keep_alive(field)),
            "keepAliveFailures" => set(&mut policy.keep_alive_failures, self.count(field)),
            "revive" => set(&mut policy.revive, self.boolean(field)),
            "owner" => set(&mut policy.owner, self.owner(field)),
            "replay" => set(&mut policy.replay, self.replay(field)),
            "contain" => set(&mut terms.contain, self.containment(field).map(Some)),
            "require" => set(&mut terms.require, self.containment(field).map(Some)),
            "spare" => set(&mut terms.spare, self.spare(field)),
            "memory" => set(&mut terms.memory, self.size(field).map(Some)),
            "pids" => set(&mut terms.pids, self.count(field).map(Some)),
            _ => return false,
        }
        true
    }

    fn keep_alive(&mut self, field: &Field<'a>) -> Option<KeepAlive> {
        if field.value.get() == "\"auto\"" {
            return Some(KeepAlive::Auto);
        }
        self.span_or_never(field).map(|span| span.map_or(KeepAlive::Never, KeepAlive::Every))
    }

    fn owner(&mut self, field: &Field<'a>) -> Option<OwnerPolicy> {
        match self.string(field)?.as_str() {
            "auto" => Some(OwnerPolicy::Auto),
            "traffic" => Some(OwnerPolicy::Traffic),
            other => {
                let hint = "\"auto\" finds the client's process where it can, \"traffic\" never looks for it";
                let what = format!("{field}: `{other}` is not one of auto, traffic");
                self.say(field.value.get(), what, hint.to_owned());
                None
            }
        }
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

/// Sets a value that could be read; after a mistake, keeps the old one.
pub(super) fn set<T>(slot: &mut T, read: Option<T>) {
    if let Some(value) = read {
        *slot = value;
    }
}
