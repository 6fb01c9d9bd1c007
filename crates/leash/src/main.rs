//! `leash`: nothing outlives its owner.

mod args;
mod commands;
mod exit_code;
mod output;
mod places;
mod runtime_dir;

use std::process::ExitCode;

use leash_tree::tree::supervisor::FirstLook;

fn main() -> ExitCode {
    // The keeper must stay small, and has inherited what it needs.
    if leash_tree::tree::keeper::enter(&[leash_upstream::keeper::process::ENTRY_POINT]) {
        return ExitCode::SUCCESS;
    }
    // What a host leaks to leash would else stay open for the life of the tree.
    leash_tree::platform::linux::close_inherited();
    // Before anything else: the parent may die at any moment.
    let first = FirstLook::take();
    ExitCode::from(commands::dispatch(first))
}
