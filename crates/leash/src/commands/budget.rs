//! The budget for all of leash: `budget` in leash.json, which every start of a server reads.

use std::fs;

use leash_gateway::config::{ConfigMistakes, read_budget};
use leash_tree::contain::caps::{Caps, CpuCap};

use crate::output::printer::{Printer, bytes};
use crate::{exit_code, places};

/// The budget in leash.json; none if there is no such file.
pub(super) fn find() -> Result<Caps, ConfigMistakes> {
    let Some(file) = places::config_dir().map(|dir| dir.join("leash.json")) else { return Ok(Caps::default()) };
    // A file that cannot be read has been reported with the defaults of `leash run`; `leash serve` may not need it.
    let Ok(text) = fs::read_to_string(&file) else { return Ok(Caps::default()) };
    read_budget(&text, &file.display().to_string())
}

/// The budget for people to read.
pub(super) fn describe(budget: &Caps) -> String {
    let cpu = |cap| match cap {
        CpuCap::Weight(weight) => format!("processor weight {weight}"),
        CpuCap::Quota(percent) => format!("{percent}% of a processor"),
    };
    let parts = [
        budget.memory.map(|memory| format!("{} of memory", bytes(memory))),
        budget.pids.map(|count| format!("{count} processes")),
        budget.cpu.map(cpu),
    ];
    format!("{} for all of leash", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Prints the mistakes. Returns the exit code.
pub(super) fn report(mistakes: &ConfigMistakes, printer: Printer) -> u8 {
    printer.error_text(mistakes.to_string(), Some("correct the file; `budget` is for all of leash"));
    exit_code::USAGE
}
