//! The resources of a tree: memory, listening ports, and files that it keeps locked.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use std::mem::MaybeUninit;

use serde::Serialize;

use leash_model::identity::Identity;
use leash_tree::owner::peer::table;
use leash_tree::platform::descriptors::{Descriptors, Link};
use leash_tree::platform::proc::{self, Proc, read_small};

/// The resources that are released when a tree ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeResources {
    /// Memory in bytes: proportional (PSS) if that is readable, else the private pages.
    pub memory: u64,
    /// Swap in bytes, proportional.
    pub swap: u64,
    /// TCP ports on which it listens.
    pub ports: BTreeSet<u16>,
    /// Files that it keeps locked.
    pub locks: BTreeSet<String>,
}

/// Memory and swap of a tree. Values of processes of another user may be missing.
pub fn memory(proc: &Proc, tree: &[Identity]) -> TreeResources {
    let mut resources = TreeResources::default();
    for member in tree {
        resources.memory += proc.proportional_bytes(member.pid);
        resources.swap += proc.proportional_swap(member.pid);
    }
    resources
}

/// All resources of a tree.
pub fn of(proc: &Proc, tree: &[Identity]) -> TreeResources {
    let mut resources = memory(proc, tree);
    let listeners = listeners();
    for member in tree {
        // A member that can't be read is skipped, and so is one that has ended.
        let state = proc.stat(member.pid).map_or('S', |stat| stat.state);
        let dir = proc::directory(member.pid, state);
        let Ok(fds) = Descriptors::open(&dir) else { continue };
        let _ = fds.each(|number, link| match link {
            Some(Link::Socket(inode)) => resources.ports.extend(listeners.get(&inode)),
            Some(Link::Pipe(_)) => {}
            None => resources.locks.extend(locked(&dir, &fds, number)),
        });
    }
    resources
}

/// The listening TCP sockets of our network namespace, by inode.
fn listeners() -> HashMap<u64, u16> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| read_small(path).unwrap_or_default());
    let entries = tables.iter().flat_map(|table| table.lines()).filter_map(table::entry);
    entries.filter(|entry| entry.listens).map(|entry| (entry.inode, entry.local.port())).collect()
}

/// The path of a descriptor on which a lock is held. The kernel lists the locks in `fdinfo`, so the file system is not
/// accessed.
fn locked(dir: &str, fds: &Descriptors, number: &CStr) -> Option<String> {
    let mut space = [MaybeUninit::uninit(); 4096];
    let path = fds.target(number, &mut space).ok()?;
    let number = number.to_str().ok().filter(|number| number.parse::<u32>().is_ok())?;
    if !path.starts_with(b"/") || path.starts_with(b"/dev/") {
        return None;
    }
    let path = String::from_utf8_lossy(path).into_owned();
    let facts = read_small(format!("{dir}/fdinfo/{number}"))?;
    facts.lines().any(|line| line.starts_with("lock:")).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;

    use super::*;
    use testkit::Scratch;

    #[test]
    fn own_ports_locks_and_memory_are_found() {
        let dir = Scratch::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lock = File::create(dir.join("lock")).unwrap();
        let unlocked = File::create(dir.join("plain")).unwrap();
        lock.lock().unwrap();
        let proc = Proc::own().unwrap();
        let me = leash_tree::platform::identity::current(&proc).unwrap();
        let found = of(&proc, &[me]);
        assert!(found.ports.contains(&listener.local_addr().unwrap().port()), "{found:?}");
        let named = |name: &str| found.locks.contains(dir.join(name).to_str().unwrap());
        assert!(named("lock") && !named("plain"), "{found:?}");
        assert!(found.memory > 0);
        drop(unlocked);
    }
}
