//! Identities of processes, as values.

use serde::{Deserialize, Serialize};

/// A process, distinct from every other process that had or will have its number since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Identity {
    /// Its number in our PID namespace.
    pub pid: i32,
    /// Its start, in clock ticks since boot (10 ms coarse).
    pub start: u64,
    /// The inode of its pidfd, unique since boot where the kernel has pidfs (6.9 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
}

impl Identity {
    /// True if both name the same process. The inode decides if both have one.
    pub fn is(&self, other: &Identity) -> bool {
        self.pid == other.pid
            && self.start == other.start
            && match (self.inode, other.inode) {
                (Some(a), Some(b)) => a == b,
                // One of the two was recorded on a kernel without pidfs. Compare pid and start time only.
                _ => true,
            }
    }
}
