//! Slices of the systemd user manager: cgroups around several trees, with a budget for all of them together.
//!
//! `leash.slice` holds the trees of the user, and `leash-SESSION.slice` inside it those of a session. systemd makes a
//! slice with the first scope in it, and removes it after the last one.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::caps::{CapSetting, Caps, CpuCap};
use super::dbus::{Bus, BusError, Property, TransientUnit};
use super::memory::{self, MemoryGauge};
use crate::platform::poll;
use crate::platform::proc::read_small;
use leash_model::clock::Moment;
use leash_model::limits;
use leash_model::receipt::BudgetScope;

/// The longest name of a unit that systemd accepts.
const LONGEST_NAME: usize = 255;

/// The interval at which the keeper checks whether the manager has set a limit.
const LOOK: Duration = Duration::from_millis(1);

/// Budgets for several trees together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedBudgets {
    /// For all trees of the session that are started with a budget of the session.
    pub session: Caps,
    /// For all trees of the user that are started with such a budget.
    pub all: Caps,
}

impl SharedBudgets {
    /// True if any budget is set.
    pub fn any(&self) -> bool {
        self.session.any() || self.all.any()
    }

    /// The slices around a tree of a session, outermost first. The error text is ready to be shown.
    pub(crate) fn slices(&self, session: &str) -> Result<Vec<PlannedSlice>, String> {
        let mut slices = Vec::new();
        if self.any() {
            slices.push(PlannedSlice { of: BudgetScope::All, name: "leash.slice".to_owned(), caps: self.all });
        }
        if self.session.any() {
            let name = format!("leash-{}.slice", escape(session));
            if name.len() > LONGEST_NAME {
                return Err("the id of the session is too long for the name of a slice".to_owned());
            }
            slices.push(PlannedSlice { of: BudgetScope::Session, name, caps: self.session });
        }
        Ok(slices)
    }
}

/// Escapes a part of a unit's name as systemd does. A dash would be a slice of its own.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("\\x{other:02x}")),
        }
    }
    escaped
}

/// A slice that a tree is to be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedSlice {
    pub(crate) of: BudgetScope,
    pub(crate) name: String,
    caps: Caps,
}

impl PlannedSlice {
    /// The slice as a unit to be made together with its first scope; `None` if it exists.
    pub(crate) fn missing(&self, bus: &mut Bus) -> Result<Option<TransientUnit>, BusError> {
        let state = bus.unit_property_string(&self.name, "Unit", "ActiveState")?;
        let mut properties = vec![
            ("Description", Property::Str("MCP servers with a common budget".to_owned())),
            // Nothing else would remove an empty slice.
            ("StopWhenUnneeded", Property::Bool(true)),
        ];
        properties.extend(self.limits());
        Ok((state == "inactive").then(|| TransientUnit { name: self.name.clone(), properties }))
    }

    /// Makes sure that the slice with this directory has its limits, and opens it.
    pub(crate) fn enforce(&self, bus: &mut Bus, dir: &Path) -> Result<BudgetSlice, String> {
        if !self.is_enforced(dir)? {
            bus.set_unit_properties(&self.name, &self.limits())
                .map_err(|error| format!("setting the budget of {}: {error}", self.name))?;
            // The manager answers before it writes to the cgroup.
            let give_up = Moment::now() + limits::BUS;
            while !self.is_enforced(dir)? {
                if Moment::now() >= give_up {
                    return Err(format!("the user manager did not set the budget of {}", self.name));
                }
                poll::pause(LOOK);
            }
        }
        BudgetSlice::open(self.of, dir).map_err(|error| format!("open {}: {error}", dir.display()))
    }

    /// True if the cgroup has all limits of the budget.
    fn is_enforced(&self, dir: &Path) -> Result<bool, String> {
        for setting in self.caps.limits().into_iter().filter(|setting| setting.required) {
            // The scope is delegated, so its slices have all controllers that the manager has.
            if !dir.join(setting.file).exists() {
                return Err(format!("the `{}` controller is not available in {}", setting.controller, dir.display()));
            }
            if !read_small(dir.join(setting.file)).is_some_and(|value| has(&value, &setting)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The limits as properties of a unit.
    fn limits(&self) -> Vec<(&'static str, Property)> {
        let mut properties = Vec::new();
        if let Some(bytes) = self.caps.memory {
            properties.push(("MemoryHigh", Property::U64(Caps::slow_at(bytes))));
            properties.push(("MemoryMax", Property::U64(bytes)));
            properties.push(("MemorySwapMax", Property::U64(0)));
        }
        properties.extend(self.caps.pids.map(|count| ("TasksMax", Property::U64(count))));
        properties.extend(self.caps.cpu.map(|cap| match cap {
            CpuCap::Weight(weight) => ("CPUWeight", Property::U64(weight)),
            // Microseconds in each second.
            CpuCap::Quota(percent) => ("CPUQuotaPerSecUSec", Property::U64(percent * 10_000)),
        }));
        properties
    }
}

/// True if a file of a cgroup has the value of a setting. The kernel rounds bytes down to whole pages.
fn has(value: &str, setting: &CapSetting) -> bool {
    let page = rustix::param::page_size() as u64;
    let pages = |text: &str| text.trim().parse::<u64>().ok().map(|bytes| bytes / page);
    match setting.controller {
        "memory" => pages(value).is_some_and(|read| Some(read) == pages(&setting.value)),
        _ => value.trim() == setting.value,
    }
}

/// A slice around a tree.
#[derive(Debug)]
pub(crate) struct BudgetSlice {
    of: BudgetScope,
    dir: PathBuf,
    /// Present if the slice has a memory budget.
    gauge: Option<MemoryGauge>,
    /// The times that the memory budget had been used up before our tree was in it.
    exhausted_before: u64,
}

/// The memory of one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeMemory {
    /// The name of its scope.
    pub(crate) scope: String,
    pub(crate) bytes: u64,
}

/// How the trees in a slice keep to their memory budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceUse {
    pub(crate) of: BudgetScope,
    /// True if the budget was used up since our tree is in it.
    pub(crate) is_exhausted: bool,
    /// All trees in it if the kernel slows them down.
    pub(crate) slowed_down: Option<Vec<TreeMemory>>,
}

impl BudgetSlice {
    fn open(of: BudgetScope, dir: &Path) -> std::io::Result<BudgetSlice> {
        // The trees in it have events of their own.
        let gauge = MemoryGauge::open(dir, "memory.events.local")?;
        let exhausted_before = gauge.as_ref().and_then(MemoryGauge::read).map_or(0, |usage| usage.exhausted);
        Ok(BudgetSlice { of, dir: dir.to_owned(), gauge, exhausted_before })
    }

    /// True if it has a memory budget.
    pub(crate) fn has_memory_budget(&self) -> bool {
        self.gauge.is_some()
    }

    /// The descriptor to poll.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd as _;
        self.gauge.as_ref().map(MemoryGauge::as_fd)
    }

    /// How the trees in it keep to their memory budget; `None` if they have none.
    pub(crate) fn memory_use(&self) -> Option<SliceUse> {
        let usage = self.gauge.as_ref()?.read()?;
        Some(SliceUse {
            of: self.of,
            is_exhausted: usage.exhausted > self.exhausted_before,
            slowed_down: usage.is_slowed_down.then(|| trees(&self.dir)),
        })
    }
}

/// The trees in a slice and in the slices inside it.
fn trees(slice: &Path) -> Vec<TreeMemory> {
    let mut found = Vec::new();
    for entry in fs::read_dir(slice).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.ends_with(".slice") {
            found.extend(trees(&path));
        } else if name.ends_with(".scope")
            && let Some(bytes) = memory::in_use(&path.join(super::leaf::TREE))
        {
            found.push(TreeMemory { scope: name, bytes });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(session: Caps, all: Caps) -> Vec<String> {
        let planned = SharedBudgets { session, all }.slices("a-b.c@d").expect("short");
        planned.iter().map(|slice| format!("{} {}", slice.name, slice.limits().len())).collect()
    }

    #[test]
    fn a_session_has_a_slice_inside_that_of_the_user() {
        let caps = Caps { memory: Some(8 << 20), pids: Some(9), cpu: Some(CpuCap::Quota(150)) };
        assert_eq!(names(Caps::default(), Caps::default()), [""; 0]);
        assert_eq!(names(Caps::default(), caps), ["leash.slice 5"]);
        assert_eq!(names(caps, Caps::default()), ["leash.slice 0", r"leash-a\x2db.c\x40d.slice 5"]);
        let only_pids = Caps { pids: Some(9), ..Caps::default() };
        assert_eq!(names(only_pids, caps), ["leash.slice 5", r"leash-a\x2db.c\x40d.slice 1"]);
    }

    #[test]
    fn a_name_that_systemd_would_refuse_is_refused() {
        let budgets = SharedBudgets { session: Caps { pids: Some(9), ..Caps::default() }, ..SharedBudgets::default() };
        assert!(budgets.slices(&"a".repeat(128)).is_ok());
        assert!(budgets.slices(&"-".repeat(128)).is_err());
        assert!(SharedBudgets::default().slices(&"-".repeat(128)).is_ok());
    }

    #[test]
    fn limits_are_compared_in_whole_pages() {
        let page = rustix::param::page_size() as u64;
        let check = |caps: Caps, file: &str, value: &str| {
            let setting = caps.limits().into_iter().find(|setting| setting.file == file).expect("a limit");
            has(value, &setting)
        };
        let caps = Caps { memory: Some(9 * page + 7), pids: Some(5000), cpu: Some(CpuCap::Quota(200)) };
        assert!(check(caps, "memory.max", &format!("{}\n", 9 * page)));
        assert!(check(caps, "pids.max", "5000\n") && check(caps, "cpu.max", "200000 100000\n"));
        for (file, value) in
            [("memory.max", "max"), ("memory.max", "4096"), ("pids.max", "5001"), ("cpu.max", "max 100000")]
        {
            assert!(!check(caps, file, value), "{file} {value}");
        }
    }
}
