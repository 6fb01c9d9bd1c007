//! The benches of `leash run`.

mod death;
mod echo;
mod memory;
mod start;

use std::ffi::OsString;

use testkit::scene::Scene;
use testkit::user::Who;

use super::Bench;
use crate::step::{Failure, Outcome};

pub(super) const BENCHES: [Bench; 4] = [
    Bench { name: "echo", measure: echo::measure },
    Bench { name: "start", measure: start::measure },
    Bench { name: "death", measure: death::measure },
    Bench { name: "memory", measure: memory::measure },
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
