//! The machine setup that a containment needs for its tests, arranged without leash.

use std::fmt;
use std::rc::Rc;

use crate::scene::Scene;
use crate::user::{User, Who};
use crate::user_bus::UserBus;

/// The containments that promise that no process survives, by their names in leash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containment {
    /// A PID namespace.
    Sealed,
    /// A scope of the systemd user manager.
    Unit,
    /// A cgroup.
    Leaf,
    /// Descent (parent and child) alone.
    Reaper,
}

impl Containment {
    /// The value of `--contain`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Unit => "unit",
            Self::Leaf => "leaf",
            Self::Reaper => "reaper",
        }
    }
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A containment and a user, and the resources that they need while their tests run.
#[derive(Debug)]
pub struct Ground {
    containment: Containment,
    who: Who,
    bus: Option<Rc<UserBus>>,
}

impl Ground {
    /// Prepares it. The error says why this machine does not support it.
    pub fn prepare(containment: Containment, who: Who) -> Result<Self, String> {
        let user = User::find(who)?;
        let bus = match containment {
            Containment::Unit => Some(Rc::new(UserBus::start(user.uid(), user.uid())?)),
            Containment::Sealed | Containment::Leaf | Containment::Reaper => None,
        };
        let ground = Self { containment, who, bus };
        let scene = ground.scene()?;
        if containment == Containment::Sealed {
            check_namespaces(&scene)?;
        }
        Ok(ground)
    }

    /// The containment.
    pub fn containment(&self) -> Containment {
        self.containment
    }

    /// The user of this ground.
    pub fn who(&self) -> Who {
        self.who
    }

    /// A new scene on this ground.
    pub fn scene(&self) -> Result<Scene, String> {
        if let Some(bus) = &self.bus {
            return Ok(Scene::set_with(bus));
        }
        let scene = Scene::set(self.who)?;
        self.allow(&scene)?;
        Ok(scene)
    }

    /// Gives the scene's user the rights that the containment needs. Called again after [`Scene::bound`], which may
    /// have made another cgroup.
    pub fn allow(&self, scene: &Scene) -> Result<(), String> {
        match self.containment {
            Containment::Leaf => scene.delegate(),
            // The user manager takes a tree out of the cgroup of its host, and with it out of a bound of cgroup2.
            Containment::Unit if scene.bound_is_unified() => {
                Err("with cgroup2 the bound does not hold a tree in a unit".to_owned())
            }
            Containment::Sealed | Containment::Unit | Containment::Reaper => Ok(()),
        }
    }
}

/// Checks without leash that the kernel gives this user a PID namespace with its own `/proc`.
pub(crate) fn check_namespaces(scene: &Scene) -> Result<(), String> {
    let user = if scene.user().is_root() { "--pid" } else { "--user" };
    let mut command = scene.zoo(["ns", "--pid", "--proc", user, "--"]);
    let output = command.arg(scene.zoo_path()).args(["exit", "0"]).output();
    let output = output.map_err(|error| format!("cannot start zoo: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("no PID namespace here: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
