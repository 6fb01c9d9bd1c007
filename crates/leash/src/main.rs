//! The `leash` command: no process or session outlives its owner.

mod args;
mod commands;
mod exit_code;
mod output;
mod places;
mod runtime_dir;

use std::process::ExitCode;

use leash_tree::tree::first_look::FirstLook;

fn main() -> ExitCode {
    // A keeper process must stay small and needs none of the following.
    if leash_tree::tree::keeper::enter(&[leash_upstream::keeper::process::ENTRY_POINT]) {
        return ExitCode::SUCCESS;
    }
    // Descriptors that the host leaked to leash would otherwise stay open for the life of the tree.
    leash_tree::platform::linux::close_inherited();
    // Take this before anything else: the parent may die at any moment.
    let first = FirstLook::take();
    ExitCode::from(commands::dispatch(first))
}
