//! Caps on what a tree may use, enforced by the kernel in the tree's cgroup.

use serde::{Deserialize, Serialize};

/// Caps for a whole tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

impl Caps {
    /// True if any cap is set.
    pub fn any(&self) -> bool {
        self.memory.is_some() || self.pids.is_some()
    }

    /// Controller, file and value of each cap.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let memory = self.memory.map(|bytes| ("memory", "memory.max", bytes));
        let pids = self.pids.map(|count| ("pids", "pids.max", count));
        memory.into_iter().chain(pids)
    }
}

/// Reads a size: `512M`, `2G`, `100K`, or plain bytes.
///
/// ```
/// assert_eq!(leash_tree::contain::caps::parse_bytes("512M"), Ok(512 << 20));
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        other => return Err(format!("unknown unit `{other}`: use K, M, G or T")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` does not start with a whole number"))?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(|| format!("`{text}` is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        for text in ["", "0", "G", "1.5G", "-1", "1X", "99999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
