//! Caps on what a tree may use, enforced by the kernel in the tree's cgroup.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The part of a memory budget at which the kernel begins to slow the tree down: seven eighths.
const SLOW_AT: u64 = 8;

/// The period of a processor quota, in microseconds: the kernel's own default.
const PERIOD_US: u64 = 100_000;

/// The greatest weight that the kernel takes.
const GREATEST_WEIGHT: u64 = 10_000;

/// Caps for a whole tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
    /// Time of processors.
    pub cpu: Option<CpuCap>,
}

/// A cap on the time of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuCap {
    /// The share beside other cgroups that want processors at the same time. A cgroup without a cap has 100.
    Weight(u64),
    /// Most processor time, in percent of one processor.
    Quota(u64),
}

/// A file of a cgroup, and the value to write to it.
pub(crate) struct CapSetting {
    /// The controller whose file it is.
    pub(crate) controller: &'static str,
    pub(crate) file: &'static str,
    pub(crate) value: Cow<'static, str>,
    /// False for a file that some kernels lack, without which the cap still holds.
    pub(crate) required: bool,
}

impl CapSetting {
    /// If the kernel kills a process for lack of memory, it kills the whole tree, so that no half of a server stays.
    pub(crate) const END_TOGETHER: CapSetting =
        CapSetting { controller: "memory", file: "memory.oom.group", value: Cow::Borrowed("1"), required: true };
}

impl Caps {
    /// True if any cap is set.
    pub fn any(&self) -> bool {
        self.memory.is_some() || self.pids.is_some() || self.cpu.is_some()
    }

    /// The number of bytes at which the kernel begins to slow a tree down.
    pub(crate) fn slow_at(bytes: u64) -> u64 {
        bytes - bytes / SLOW_AT
    }

    /// The files to write for one tree.
    pub(crate) fn settings(&self) -> Vec<CapSetting> {
        let mut settings = self.limits();
        if self.memory.is_some() {
            settings.push(CapSetting::END_TOGETHER);
        }
        settings
    }

    /// The files with the limits, for one tree or for several together.
    pub(crate) fn limits(&self) -> Vec<CapSetting> {
        let set =
            |controller, file, value: String| CapSetting { controller, file, value: value.into(), required: true };
        let mut settings = Vec::new();
        if let Some(bytes) = self.memory {
            // A tree that comes near its budget is slowed down, and does not use swap instead.
            settings.push(set("memory", "memory.high", Caps::slow_at(bytes).to_string()));
            settings.push(set("memory", "memory.max", bytes.to_string()));
            // A kernel without swap has no such file.
            settings.push(CapSetting { required: false, ..set("memory", "memory.swap.max", "0".to_owned()) });
        }
        settings.extend(self.pids.map(|count| set("pids", "pids.max", count.to_string())));
        settings.extend(self.cpu.map(|cap| match cap {
            CpuCap::Weight(weight) => set("cpu", "cpu.weight", weight.to_string()),
            CpuCap::Quota(percent) => set("cpu", "cpu.max", format!("{} {PERIOD_US}", percent * PERIOD_US / 100)),
        }));
        settings
    }
}

/// Reads a processor cap: `50%` of one processor, or a weight such as `20`.
///
/// ```
/// use leash_tree::contain::caps::{CpuCap, parse_cpu};
/// assert_eq!(parse_cpu("150%"), Ok(CpuCap::Quota(150)));
/// assert_eq!(parse_cpu("20"), Ok(CpuCap::Weight(20)));
/// ```
pub fn parse_cpu(text: &str) -> Result<CpuCap, String> {
    let text = text.trim();
    let number = |digits: &str, most: u64| {
        digits.parse().ok().filter(|number| (1..=most).contains(number)).ok_or_else(|| {
            format!("`{text}` is neither a percentage of a processor, such as `50%`, nor a weight from 1 to {GREATEST_WEIGHT}")
        })
    };
    match text.strip_suffix('%') {
        Some(digits) => number(digits, 100_000).map(CpuCap::Quota),
        None => number(text, GREATEST_WEIGHT).map(CpuCap::Weight),
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

    #[test]
    fn processor_caps_are_parsed() {
        assert_eq!(parse_cpu(" 1% "), Ok(CpuCap::Quota(1)));
        assert_eq!(parse_cpu("10000"), Ok(CpuCap::Weight(10_000)));
        for text in ["", "0", "0%", "10001", "-1", "50 %", "1.5%", "fast", "999999999%"] {
            assert!(parse_cpu(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_tree_is_slowed_down_before_it_is_killed() {
        let caps = Caps { memory: Some(64 << 20), pids: Some(9), cpu: Some(CpuCap::Quota(150)) };
        let written: Vec<String> =
            caps.settings().iter().map(|setting| format!("{}={}", setting.file, setting.value)).collect();
        let expected = [
            "memory.high=58720256",
            "memory.max=67108864",
            "memory.swap.max=0",
            "pids.max=9",
            "cpu.max=150000 100000",
            "memory.oom.group=1",
        ];
        assert_eq!(written, expected);
    }
}
