//! The benches of `leash run`.

mod death;
mod echo;
mod memory;
mod scan;
mod start;

use std::ffi::OsString;

use testkit::scene::Scene;
use testkit::user::Who;

use super::Bench;
use crate::step::{Failure, Outcome};

pub(super) const BENCHES: [Bench; 5] = [
    Bench { name: "echo", peers: false, measure: |effort, _| echo::measure(effort) },
    Bench { name: "start", peers: false, measure: |effort, _| start::measure(effort) },
    Bench { name: "death", peers: false, measure: |effort, _| death::measure(effort) },
    Bench { name: "memory", peers: false, measure: |effort, _| memory::measure(effort) },
    Bench { name: "scan", peers: false, measure: |effort, _| scan::measure(effort) },
];

/// The stage for one sample, for whoever runs the bench.
fn scene() -> Outcome<Scene> {
    let who = if rustix::process::geteuid().is_root() { Who::Root } else { Who::User };
    Scene::set(who).map_err(Failure::new)
}

/// A server behind nothing, or behind leash with these options.
fn words(scene: &Scene, leash: Option<&[&str]>, server: &[&str]) -> Vec<OsString> {
    let mut line = vec![scene.zoo_path().into_os_string()];
    line.extend(server.iter().map(OsString::from));
    match leash {
        Some(options) => scene.run_words(options, &line),
        None => line,
    }
}
