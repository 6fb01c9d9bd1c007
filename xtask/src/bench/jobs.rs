//! The benches of the control API: creating and ending sessions, and the time from DELETE to the proof of the end.

mod ends;
mod rate;

use serde_json::{Value, json};
use testkit::control::Control;
use testkit::gateway::Gateway;
use testkit::scene::Scene;
use testkit::user::Who;

use super::Bench;
use crate::step::{Failure, Outcome};

pub(super) const BENCHES: [Bench; 2] = [
    Bench { name: "jobs", peers: false, measure: |plan| rate::measure(plan.effort) },
    Bench { name: "job-ends", peers: false, measure: |plan| ends::measure(plan.effort) },
];

/// A daemon, and its client.
struct Stage {
    scene: Scene,
    gateway: Gateway,
    control: Control,
}

impl Stage {
    fn set() -> Outcome<Self> {
        let scene = Scene::set(Who::me()).map_err(Failure::new)?;
        let gateway = Gateway::single(&scene, &[], &["cat".into()]);
        let control = Control::of(&scene).unchecked();
        Ok(Self { scene, gateway, control })
    }

    /// A tree of the zoo as an entry of `mcpServers`.
    fn tree(&self, kind: &str, size: usize, grace: &str) -> Value {
        let words = self.scene.tree(kind, ["--mcp", "--size", &size.to_string()]);
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        json!({"command": words[0], "args": words[1..], "leash": {"grace": grace}})
    }
}

/// Checks that a receipt says that everything is gone.
fn all_gone(receipt: &Value) -> Outcome {
    let holdings = receipt["holdings"].as_array().map(Vec::as_slice).unwrap_or_default();
    match holdings.iter().find(|holding| holding["fate"] != "gone") {
        None if !holdings.is_empty() => Ok(()),
        _ => Err(Failure::new(format!("not everything is gone: {receipt}"))),
    }
}
