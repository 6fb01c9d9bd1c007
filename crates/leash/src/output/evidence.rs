//! Verdicts and evidence as sentences.

use leash_model::identity::Identity;
use leash_orphans::facts::{StdioStream, UnreadReason};
use leash_orphans::{Evidence, Finding, TreeRole, Verdict};

use super::ids::short;
use super::message;
use super::printer::{bytes, span};

/// A short description of the finding.
pub(crate) fn subject(finding: &Finding) -> String {
    let name = match finding.role {
        TreeRole::Host => finding.client.as_deref().unwrap_or("a client"),
        TreeRole::Server | TreeRole::Remnant => finding.server.as_deref().unwrap_or("a process of an ended session"),
    };
    let mut subject = format!("{name} (pid {})", finding.root.pid);
    match (&finding.holder, &finding.client) {
        (Some(holder), _) => subject.push_str(&format!(" of {} (pid {})", holder.name(), holder.process.pid)),
        (None, Some(client)) if finding.role != TreeRole::Host => subject.push_str(&format!(" of {client}")),
        (None, _) => {}
    }
    subject
}

/// The process that holds a server, with its PID, for a listing; without one, the client that started it.
pub(crate) fn holder(finding: &Finding) -> Option<String> {
    let holder = finding.holder.as_ref().map(|holder| format!("{} ({})", holder.name(), holder.process.pid));
    holder.or_else(|| finding.client.clone())
}

/// The note that a client has the same command in its configuration, if that client is not known to hold the server.
pub(crate) fn same_command(finding: &Finding) -> Option<String> {
    let (client, name) = finding.same_command()?;
    let is_other = finding.client.as_deref() != Some(client);
    is_other.then(|| format!("same command as `{name}` in {client}"))
}

/// The sentence for one piece of evidence.
pub(crate) fn sentence(evidence: &Evidence) -> String {
    let stream = |stream: &StdioStream| match stream {
        StdioStream::Stdin => "stdin",
        StdioStream::Stdout => "stdout",
    };
    let pid = |id: &Identity| id.pid;
    match evidence {
        Evidence::Declared { client, name } => {
            format!("it has the same command as `{name}` in {client}")
        }
        Evidence::Resembles { client, name } => format!(
            "it may have the same command as `{name}` in {client}: a variable or the directory is not known, or it works outside of the project"
        ),
        Evidence::Package { package } => format!("it runs the server package {package}"),
        Evidence::Mark { session } => format!("leash started it in session {}", short(session)),
        Evidence::HostProgram { client } => format!("it is the program of {client}"),
        Evidence::EndGone { stream: which } => {
            format!("the other end of its {} does not exist any more", stream(which))
        }
        Evidence::HeldBy { stream: which, by, name } => {
            format!("{name} (pid {}) holds the other end of its {}", pid(by), stream(which))
        }
        Evidence::HeldByItself { stream: which } => {
            format!("only its own processes hold the other end of its {}", stream(which))
        }
        Evidence::HeldByOrphans { stream: which, root } => {
            format!("only an orphan (pid {}) holds the other end of its {}", pid(root), stream(which))
        }
        Evidence::NotVisible { stream: which, why } => {
            format!("leash can't see which process holds the other end of its {}: {}", stream(which), reason(*why))
        }
        Evidence::NoChannel { stream: which } => {
            format!("its {} is the null device, a file, or closed, which proves nothing", stream(which))
        }
        Evidence::Terminal => "it reads from a terminal".to_owned(),
        Evidence::TerminalGone => "its terminal was closed".to_owned(),
        Evidence::Reparented => {
            "the process that started it has exited or detached it (its parent is a reaper)".to_owned()
        }
        Evidence::Parent { by, name } => format!("its parent {name} (pid {}) lives", pid(by)),
        Evidence::HostAbove { by, client } => format!("{client} (pid {}) is above it", pid(by)),
        Evidence::MemberHeld { member, by } => format!("pid {} holds its process {}", pid(by), pid(member)),
        Evidence::MemberAtTerminal { member } => format!("its process {} uses a terminal", pid(member)),
        Evidence::MemberUnread { member } => format!("leash can't see which process holds its process {}", pid(member)),
        Evidence::Serves { port } => format!("a client is connected to it on port {port}"),
        Evidence::OthersUnread { count } => {
            format!("{} that may hold it could not be read", message::processes(*count))
        }
        Evidence::OthersHidden => "a process that can't be seen here may hold it".to_owned(),
        Evidence::NotSettled { gone_ms, needed_ms } => format!(
            "its pipes have been closed for {} of the {} that its host has to end it properly",
            span(*gone_ms),
            span(*needed_ms)
        ),
        Evidence::Leashed { session } => format!("leash supervises it (session {})", short(session)),
        Evidence::LeashLost { session } => format!("leash and its keeper are gone (session {})", short(session)),
        Evidence::ForeignLeash { session } if session.is_empty() => {
            "it is a process of leash that our ledger does not know".to_owned()
        }
        Evidence::ForeignLeash { session } => {
            format!("it belongs to session {}, which our ledger does not know", short(session))
        }
        Evidence::OtherUser { uid } => format!("it belongs to user {uid}"),
        Evidence::SwappedOut { swap } => format!("{} of it have been in swap for long", bytes(*swap)),
    }
}

fn reason(why: UnreadReason) -> &'static str {
    match why {
        UnreadReason::NotPermitted => "it may not be read",
        UnreadReason::NoSocketAnswer => "the kernel says nothing about this socket",
        UnreadReason::Unseen => "its holder can't be seen",
        UnreadReason::Exhausted => "leash had no free descriptor",
    }
}

/// The advice how to end it.
pub(crate) fn remedy(finding: &Finding) -> String {
    match finding.verdict {
        Verdict::OrphanProved => "`leash reap --yes` ends it".to_owned(),
        Verdict::OrphanLikely if finding.leashed.is_some() => {
            "the next start of leash ends it, `leash reap --yes` too".to_owned()
        }
        Verdict::OrphanLikely => format!("`leash reap --likely {} --yes` ends it", finding.root.pid),
        Verdict::StaleHost => "`leash reap --stale --yes` ends it, with everything that it started".to_owned(),
        Verdict::Live => match &finding.leashed {
            Some(session) => format!("it ends with its owner; `leash end {}` ends it now", short(session)),
            None => "it ends when its holder closes the pipes and it notices that; leash does not touch it".to_owned(),
        },
        Verdict::Unknown => "leash does not touch it".to_owned(),
    }
}
