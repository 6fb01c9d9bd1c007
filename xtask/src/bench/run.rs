//! The benches of `leash run`.

mod death;
mod echo;
mod instructions;
pub(super) mod memory;
mod scan;
mod start;
mod top;

use std::ffi::OsString;

use testkit::scene::Scene;
use testkit::user::Who;

use super::Bench;
use crate::step::{Failure, Outcome};
pub(super) use death::kernel_alone;

/// The bench that needs valgrind.
pub(super) const INSTRUCTIONS: &str = "instructions";

pub(super) const BENCHES: [Bench; 7] = [
    Bench { name: "echo", peers: false, measure: |plan| echo::measure(plan.effort) },
    Bench { name: INSTRUCTIONS, peers: false, measure: |_| instructions::measure() },
    Bench { name: "start", peers: false, measure: |plan| start::measure(plan.effort) },
    Bench { name: "death", peers: false, measure: |plan| death::measure(plan.effort) },
    Bench { name: "memory", peers: false, measure: |plan| memory::measure(plan.effort) },
    Bench { name: "scan", peers: false, measure: |plan| scan::measure(plan.effort) },
    Bench { name: "top", peers: false, measure: |plan| top::measure(plan.effort) },
];

/// The scene for one sample, for the user that runs the bench.
fn scene() -> Outcome<Scene> {
    Scene::set(who()).map_err(Failure::new)
}

/// The user that runs the bench.
fn who() -> Who {
    if rustix::process::geteuid().is_root() { Who::Root } else { Who::User }
}

/// The command line of a server, either direct or through leash with these options.
fn words(scene: &Scene, leash: Option<&[&str]>, server: &[&str]) -> Vec<OsString> {
    let mut line = vec![scene.zoo_path().into_os_string()];
    line.extend(server.iter().map(OsString::from));
    match leash {
        Some(options) => scene.run_words(options, &line),
        None => line,
    }
}
