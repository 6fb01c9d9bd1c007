//! The `leash` command: no process or session outlives its owner.

mod args;
mod commands;
mod exit_code;
mod output;
mod places;
mod runtime_dir;

use std::process::ExitCode;

use leash_core::tree::supervisor::FirstLook;

fn main() -> ExitCode {
    // A keeper process must stay small and needs none of the following.
    if leash_core::enter() {
        return ExitCode::SUCCESS;
    }
    // Descriptors that the host leaked to leash would otherwise stay open for the life of the tree.
    leash_core::close_inherited();
    // Take this before anything else: the parent may die at any moment.
    let first = FirstLook::take();
    ExitCode::from(commands::dispatch(first))
}
