//! What is to be run, and under which terms.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contain::caps::Caps;
use crate::platform::linux::InheritedSignals;
use leash_model::containment::Wish as ContainWish;
use leash_model::owner::Wish;
use leash_model::{id, limits};

/// The variable that names the session in a server's environment: a label for people, tests and `ps`. Never a proof.
pub const MARK: &str = "LEASH_ID";

/// Most bytes of a command that the ledger keeps for people to read.
const SHOWN_COMMAND: usize = 4096;

/// A server and the terms it runs under.
///
/// ```
/// use leash_tree::tree::Spec;
/// let spec = Spec::new(["npx", "-y", "@modelcontextprotocol/server-everything"]).grace(std::time::Duration::ZERO);
/// assert_eq!(spec.name(), "npx");
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
    pub(crate) contain: ContainWish,
    pub(crate) caps: Caps,
    /// As asked for; else [`limits::GRACE`].
    pub(crate) grace: Option<Duration>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) owners: Vec<Wish>,
    pub(crate) spare: Vec<String>,
    /// Whether what a leader leaves behind is let be until the end is asked for.
    #[serde(default)]
    pub(crate) patient: bool,
}

impl Spec {
    /// A server by its command line, on the default terms.
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
            contain: ContainWish::default(),
            caps: Caps::default(),
            grace: None,
            max_age: None,
            owners: Wish::DEFAULT.to_vec(),
            spare: Vec::new(),
            patient: false,
        }
    }

    /// What its first process leaves behind is not ended before the end is asked for: somebody wants to see what it does. For the
    /// same reason it starts with no signal ignored, also below `nohup` or a shell's `&`.
    pub fn patient(mut self) -> Spec {
        self.patient = true;
        self
    }

    /// The session it belongs to; else the run is a session of its own.
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Spec {
        self.session = session.into();
        self
    }

    /// A name for listings; else the command's.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Spec {
        self.name = Some(name.into());
        self
    }

    /// A label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Spec {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The directory it is started in.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Spec {
        self.cwd = Some(dir.into());
        self
    }

    /// A variable of its environment, set or (`None`) removed.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: Option<OsString>) -> Spec {
        self.env.push((key.into(), value));
        self
    }

    /// Which containment is wanted.
    #[must_use]
    pub fn contain(mut self, wish: ContainWish) -> Spec {
        self.contain = wish;
        self
    }

    /// Caps for the whole tree.
    #[must_use]
    pub fn caps(mut self, caps: Caps) -> Spec {
        self.caps = caps;
        self
    }

    /// The pace of the ending ladder; zero kills at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Spec {
        self.grace = Some(grace);
        self
    }

    /// The longest it may live.
    #[must_use]
    pub fn max_age(mut self, age: Option<Duration>) -> Spec {
        self.max_age = age;
        self
    }

    /// What it lives for.
    #[must_use]
    pub fn owners(mut self, owners: impl Into<Vec<Wish>>) -> Spec {
        self.owners = owners.into();
        self
    }

    /// A program that is not ended with the tree.
    #[must_use]
    pub fn spare(mut self, name: impl Into<String>) -> Spec {
        self.spare.push(name.into());
        self
    }

    /// The name for listings.
    pub fn name(&self) -> String {
        let program = || {
            self.command
                .first()
                .and_then(|command| Path::new(command).file_name())
                .map(|name| name.to_string_lossy().into_owned())
        };
        self.name.clone().or_else(program).unwrap_or_default()
    }

    /// The session's id.
    pub fn session_id(&self) -> &str {
        &self.session
    }

    /// This run's id.
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// The signals that it starts with as ignored, of those that were ignored here.
    pub(crate) fn ignored(&self, inherited: InheritedSignals) -> InheritedSignals {
        if self.patient { InheritedSignals::default() } else { inherited }
    }

    /// The pace of the ending ladder.
    pub(crate) fn pace(&self) -> Duration {
        self.grace.unwrap_or(limits::GRACE)
    }

    /// The command for people, cut where it becomes too long to read.
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

    /// Changes to the environment, the mark last.
    pub(crate) fn environment(&self) -> Vec<(OsString, Option<OsString>)> {
        let mark = (OsString::from(MARK), Some(OsString::from(&self.session)));
        self.env.iter().cloned().chain([mark]).collect()
    }
}
