//! `leash`: nothing outlives its owner.

mod args;
mod commands;
mod exit_code;
mod output;
mod places;

use std::process::ExitCode;

use leash_core::tree::supervisor::FirstLook;

fn main() -> ExitCode {
    // Before anything else: the parent may die at any moment, and the keeper must stay small.
    let first = FirstLook::take();
    if leash_core::enter() {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(commands::dispatch(first))
}
