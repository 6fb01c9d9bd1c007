//! A session for programs that use the library: servers that end together.

mod ending;
mod gather;
mod streams;
mod thread_task;

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

pub use ending::SessionEnding;
#[cfg(feature = "tokio")]
pub use streams::AsyncStreams;
pub(crate) use thread_task::run_on_thread;

use crate::places::Places;
use crate::tree::{Spec, Tree};
use leash_model::clock::{self, Moment};
use leash_model::id;
use leash_model::owner::OwnerWish;
use leash_model::start_failure::StartFailure;

/// The servers that one owner started for one job. Ending it ends them all, at the same time, and returns one receipt.
/// Dropping it does the same, in the background and without the receipt. Neither needs a runtime, and both work if this
/// program crashes or is killed: each server has a supervisor and a keeper, which are separate processes.
///
/// The settings made here (labels, grace, age, owners) apply to every server that is started afterwards.
///
/// ```standalone_crate
/// use std::io::{BufRead as _, BufReader, Write as _};
/// use leash_tree::places::Places;
/// use leash_tree::session::Session;
/// use leash_tree::tree::Spec;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if leash_tree::tree::keeper::enter(&[]) {
///         return Ok(()); // This process is a supervisor or a keeper: the program is executed again as one.
///     }
///     let dir = std::env::temp_dir().join(format!("leash-session-{}", std::process::id()));
///     let mut job = Session::new(Places::below(&dir)).label("job", "7");
///     let server = job.start(Spec::new(["cat"]))?;
///     let (mut stdin, stdout) = server.take_streams().expect("they were not taken yet");
///     stdin.write_all(b"hello\n")?;
///     let mut line = String::new();
///     BufReader::new(stdout).read_line(&mut line)?;
///     assert_eq!(line, "hello\n");
///
///     let receipt = job.end().wait(); // In async code: `job.end().await`, on any runtime.
///     assert!(receipt.all_gone());
///     assert_eq!(receipt.holdings.len(), 1);
///     std::fs::remove_dir_all(dir)?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Session {
    id: String,
    places: Places,
    labels: BTreeMap<String, String>,
    grace: Option<Duration>,
    max_age: Option<Duration>,
    owners: Vec<OwnerWish>,
    born: Moment,
    started_ms: u64,
    trees: Vec<Tree>,
}

/// The reason why a session could not start a server. Nothing of that server was left behind; the other servers go on.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The id can't be used.
    #[error("`{id}` cannot be the id of a session: {why}")]
    Id {
        /// The id.
        id: String,
        /// The reason.
        why: String,
    },
    /// The session has reached its maximum age.
    #[error("the session `{0}` has reached its maximum age")]
    TooOld(String),
    /// The server could not be started.
    #[error("cannot start the server `{name}`")]
    Start {
        /// The server's name.
        name: String,
        /// The reason.
        source: StartFailure,
    },
}

impl Session {
    /// An empty session with a new random id.
    pub fn new(places: Places) -> Session {
        Session::named(id::random(), places)
    }

    /// An empty session with a given id. `leash ps` lists it by that id and `leash end ID` ends it, if they use the
    /// same places. Letters, digits and `- _ . : @ +`, at most 128. The id is checked when the first server starts.
    pub fn named(id: impl Into<String>, places: Places) -> Session {
        Session {
            id: id.into(),
            places,
            labels: BTreeMap::new(),
            grace: None,
            max_age: None,
            owners: Vec::new(),
            born: Moment::now(),
            started_ms: clock::unix_ms(),
            trees: Vec::new(),
        }
    }

    /// Adds a label for its servers. A server's own label with this key takes precedence.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Session {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets the grace between two steps of the ending ladder, for servers that do not set their own. Zero kills at
    /// once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Session {
        self.grace = Some(grace);
        self
    }

    /// Sets the longest time it may live, from its creation. The keepers enforce it, even if this program is gone.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Session {
        self.max_age = Some(age);
        self
    }

    /// Adds an owner: when this process is gone, leash ends the servers. The calling process is always an owner.
    #[must_use]
    pub fn owner(mut self, pid: i32) -> Session {
        self.owners.push(OwnerWish::Pid(pid));
        self
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Starts a server in the session and returns when it runs, which takes some 5 ms.
    pub fn start(&mut self, spec: Spec) -> Result<&mut Tree, SessionError> {
        let (name, spec) = self.admit(spec)?;
        let tree = Tree::start(spec, &self.places);
        self.hold(name, tree)
    }

    /// The same as [`Session::start`] for async code, on any runtime: a thread does the waiting. Dropping the future
    /// ends a server that it has started.
    pub async fn start_async(&mut self, spec: Spec) -> Result<&mut Tree, SessionError> {
        let (name, spec) = self.admit(spec)?;
        let places = self.places.clone();
        let tree = run_on_thread("leash-start", move || Tree::start(spec, &places)).await;
        self.hold(name, tree)
    }

    /// Applies the settings of the session to the specification. Also returns the name, for an error.
    fn admit(&self, mut spec: Spec) -> Result<(String, Spec), SessionError> {
        id::check_session(&self.id).map_err(|why| SessionError::Id { id: self.id.clone(), why })?;
        for (key, value) in &self.labels {
            spec.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        spec.grace = spec.grace.or(self.grace);
        if let Some(age) = self.max_age {
            let left = age.saturating_sub(Moment::now().since(self.born));
            if left.is_zero() {
                return Err(SessionError::TooOld(self.id.clone()));
            }
            spec.max_age = Some(spec.max_age.map_or(left, |own| own.min(left)));
        }
        spec.owners.extend(&self.owners);
        Ok((spec.name(), spec.session(self.id.clone())))
    }

    fn hold(&mut self, name: String, tree: Result<Tree, StartFailure>) -> Result<&mut Tree, SessionError> {
        let tree = tree.map_err(|source| SessionError::Start { name, source })?;
        Ok(self.trees.push_mut(tree))
    }

    /// The servers, in the order in which they were started.
    pub fn trees(&mut self) -> &mut [Tree] {
        &mut self.trees
    }

    /// Ends everything. The end has begun when this returns. `.await` the returned value on any runtime, or call
    /// [`SessionEnding::wait`]. If the program does neither, the servers end in the same way, but there is no receipt
    /// of the whole.
    ///
    /// leash asks a server to exit by closing its stdin. If the program took the stdin, it must drop it. A server whose
    /// stdin is still open gets SIGTERM.
    pub fn end(mut self) -> SessionEnding {
        let began = Moment::now();
        // Ask all servers before waiting for the first, so that they end at the same time.
        self.trees.iter_mut().for_each(Tree::ask_to_end);
        SessionEnding::new(gather::EndingSession {
            id: self.id,
            labels: self.labels,
            places: self.places,
            started_ms: self.started_ms,
            began,
            trees: self.trees,
        })
    }
}
