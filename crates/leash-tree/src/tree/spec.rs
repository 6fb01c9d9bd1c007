//! The server to run, and the terms under which it runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::default_name::default_name;
use crate::contain::caps::Caps;
use crate::contain::slice::SharedBudgets;
use crate::platform::linux::InheritedSignals;
use leash_model::containment::ContainmentWish;
use leash_model::owner::OwnerWish;
use leash_model::{id, limits};

/// The variable that names the session in a server's environment. It is a label for people, tests and `ps`, and never a
/// proof.
pub const MARK: &str = "LEASH_ID";

/// The most bytes of a command that the ledger keeps for people to read.
const SHOWN_COMMAND: usize = 4096;

/// A server and the terms under which it runs.
///
/// ```
/// use leash_tree::tree::Spec;
/// let spec = Spec::new(["npx", "-y", "@modelcontextprotocol/server-everything"]).grace(std::time::Duration::ZERO);
/// assert_eq!(spec.name(), "server-everything");
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub(crate) command: Vec<OsString>,
    pub(crate) run: String,
    pub(crate) session: String,
    pub(crate) name: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) env: Vec<(OsString, Option<OsString>)>,
    pub(crate) contain: ContainmentWish,
    pub(crate) caps: Caps,
    #[serde(default)]
    pub(crate) budgets: SharedBudgets,
    /// The grace that the caller asked for; if none, [`limits::GRACE`].
    pub(crate) grace: Option<Duration>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) owners: Vec<OwnerWish>,
    pub(crate) spare: Vec<String>,
    /// True if leash keeps a copy of the server's stderr.
    #[serde(default)]
    pub(crate) log: bool,
    /// True if processes that the leader leaves behind live until an end is requested.
    #[serde(default)]
    pub(crate) patient: bool,
    #[serde(default)]
    pub(crate) pressure_stop: Option<Duration>,
}

impl Spec {
    /// A server by its command line, with the default terms.
    pub fn new<A: Into<OsString>>(command: impl IntoIterator<Item = A>) -> Spec {
        let run = id::random();
        Spec {
            command: command.into_iter().map(Into::into).collect(),
            session: run.clone(),
            run,
            name: None,
            labels: BTreeMap::new(),
            cwd: None,
            env: Vec::new(),
            contain: ContainmentWish::default(),
            caps: Caps::default(),
            budgets: SharedBudgets::default(),
            grace: None,
            max_age: None,
            owners: OwnerWish::DEFAULT.to_vec(),
            spare: Vec::new(),
            log: false,
            patient: false,
            pressure_stop: None,
        }
    }

    /// Does not end the processes that the first process leaves behind until an end is requested: the caller wants to
    /// see what they do. For the same reason the server starts with no signal ignored, also under `nohup` or a shell's
    /// `&`.
    pub fn patient(mut self) -> Spec {
        self.patient = true;
        self
    }

    /// Sets the session it belongs to. By default the run is a session of its own.
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Spec {
        self.session = session.into();
        self
    }

    /// Sets the name for listings. By default it is that of the package, script, module, image or program.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Spec {
        self.name = Some(name.into());
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Spec {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets the directory in which it is started.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Spec {
        self.cwd = Some(dir.into());
        self
    }

    /// Sets or (`None`) removes a variable of its environment.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: Option<OsString>) -> Spec {
        self.env.push((key.into(), value));
        self
    }

    /// Sets the wanted containment.
    #[must_use]
    pub fn contain(mut self, wish: ContainmentWish) -> Spec {
        self.contain = wish;
        self
    }

    /// Sets the budgets that the tree shares with other trees: those of its session, and all of the user.
    #[must_use]
    pub fn budgets(mut self, budgets: SharedBudgets) -> Spec {
        self.budgets = budgets;
        self
    }

    /// Sets caps for the whole tree.
    #[must_use]
    pub fn caps(mut self, caps: Caps) -> Spec {
        self.caps = caps;
        self
    }

    /// Sets the grace between two steps of the ending ladder; zero kills at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Spec {
        self.grace = Some(grace);
        self
    }

    /// Sets the longest time it may live.
    #[must_use]
    pub fn max_age(mut self, age: Option<Duration>) -> Spec {
        self.max_age = age;
        self
    }

    /// Sets its owners.
    #[must_use]
    pub fn owners(mut self, owners: impl Into<Vec<OwnerWish>>) -> Spec {
        self.owners = owners.into();
        self
    }

    /// Sets the idle time after which it may be ended when the machine's memory is short. Without it, it is never ended
    /// for that.
    #[must_use]
    pub fn pressure_stop(mut self, after: impl Into<Option<Duration>>) -> Spec {
        self.pressure_stop = after.into();
        self
    }

    /// Adds a program that is not ended with the tree.
    #[must_use]
    pub fn spare(mut self, name: impl Into<String>) -> Spec {
        self.spare.push(name.into());
        self
    }

    /// Keeps a copy of the server's stderr beside the receipts, for `leash logs`. The server's stderr is then a pipe of
    /// leash, which passes every byte on to ours.
    #[must_use]
    pub fn log(mut self, log: bool) -> Spec {
        self.log = log;
        self
    }

    /// The name for listings.
    pub fn name(&self) -> String {
        let default = || default_name(&self.command, self.cwd.as_deref());
        self.name.clone().or_else(default).unwrap_or_default()
    }

    /// The session's id.
    pub fn session_id(&self) -> &str {
        &self.session
    }

    /// This run's id.
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// The signals that the server starts with as ignored.
    pub(crate) fn ignored(&self, inherited: InheritedSignals) -> InheritedSignals {
        if self.patient { InheritedSignals::default() } else { inherited }
    }

    /// The grace between two steps of the ending ladder.
    pub(crate) fn pace(&self) -> Duration {
        self.grace.unwrap_or(limits::GRACE)
    }

    /// The command for people to read, cut after [`SHOWN_COMMAND`] bytes.
    pub(crate) fn shown_command(&self) -> Vec<String> {
        let mut room = SHOWN_COMMAND;
        let mut shown = Vec::new();
        for argument in &self.command {
            let text = argument.to_string_lossy();
            if text.len() > room {
                shown.push("...".to_owned());
                break;
            }
            room -= text.len();
            shown.push(text.into_owned());
        }
        shown
    }

    /// The changes to the environment; [`MARK`] comes last.
    pub(crate) fn environment(&self) -> Vec<(OsString, Option<OsString>)> {
        let mark = (OsString::from(MARK), Some(OsString::from(&self.session)));
        self.env.iter().cloned().chain([mark]).collect()
    }
}
