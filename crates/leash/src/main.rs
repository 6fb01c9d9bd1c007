//! The `leash` command: no process or session outlives its owner.

mod args;
mod commands;
mod exit_code;
mod installed;
mod output;
mod places;
mod runtime_dir;

use std::process::ExitCode;

use leash_tree::platform::launcher::NpmLauncher;
use leash_tree::tree::first_look::FirstLook;

/// The allocator of musl is slow, and others need much memory; crates/leash/Cargo.toml has the numbers.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    // A keeper process must stay small and needs none of the following.
    if leash_tree::tree::keeper::enter(&[leash_upstream::keeper::process::ENTRY_POINT]) {
        return ExitCode::SUCCESS;
    }
    // Before anything looks at the limits and the signals that Node has changed.
    let launcher = NpmLauncher::undo();
    // Descriptors that the host leaked to leash would otherwise stay open for the life of the tree.
    let report = output::report::take_inherited(std::env::args_os());
    // Take this before anything else: the parent may die at any moment.
    let first = FirstLook::take();
    ExitCode::from(commands::dispatch(first, launcher, report))
}
