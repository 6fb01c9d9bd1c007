//! The holders of a server's ends, and their names.

use super::verdict::Holder;
use crate::facts::{Process, StdioStream, UnreadReason};
use crate::knowledge::identify::client_of;
use leash_model::identity::Identity;

/// The holder of one end of a case.
pub(super) enum EndHolder<'a> {
    Gone,
    Itself,
    Orphans(Identity),
    Living(Identity, Option<&'a Process>),
    Unseen(UnreadReason),
    Terminal,
    Nothing,
}

/// The client whose program this process is.
pub(super) fn client(process: &Process) -> Option<&'static str> {
    client_of(&process.comm, &process.argv).map(|client| client.name)
}

/// The name of a process: that of its client, else its command in short.
pub(super) fn name(process: &Process) -> String {
    client(process).map_or_else(|| process.short_command(), str::to_owned)
}

/// The living process that holds a server; the one at its stdin is preferred.
pub(super) fn holder(holds: &[(StdioStream, EndHolder<'_>); 2]) -> Option<Holder> {
    holds.iter().find_map(|(_, holder)| {
        let EndHolder::Living(by, seen) = holder else { return None };
        let client = seen.and_then(client).map(str::to_owned);
        Some(Holder { process: *by, client, command: seen.map(Process::short_command).unwrap_or_default() })
    })
}
