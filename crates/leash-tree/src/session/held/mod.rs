//! A session in the hands of another program: servers that end together.

mod elsewhere;
mod ending;
mod gather;
mod streams;

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

pub(crate) use elsewhere::elsewhere;
pub use ending::SessionEnding;
#[cfg(feature = "tokio")]
pub use streams::AsyncStreams;

use crate::places::Places;
use crate::tree::{Spec, Tree, TreeError};
use leash_model::clock;
use leash_model::clock::Moment;
use leash_model::id;
use leash_model::owner::Wish;

/// One owner's claim on the servers it started. Ending it ends them all, at the same time, and yields one receipt; dropping it
/// does too, in the background. Neither needs a runtime, and both hold when this program crashes or is killed: the end is in
/// the hands of a supervisor and a keeper per server, which are processes of their own.
///
/// What is set here (labels, grace, age, owners) goes for every server that is started afterwards.
///
/// ```standalone_crate
/// use std::io::{BufRead as _, BufReader, Write as _};
/// use leash_core::{Places, Session, Spec};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if leash_tree::tree::keeper::enter() {
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
    owners: Vec<Wish>,
    born: Moment,
    started_ms: u64,
    trees: Vec<Tree>,
}

/// Why a session could not start a server. Nothing of that server was left behind; the others go on.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The id can't be used.
    #[error("`{id}` cannot be the id of a session: {why}")]
    Id {
        /// The id.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// Its time is over.
    #[error("the session `{0}` has reached its greatest age")]
    TooOld(String),
    /// The server could not be started.
    #[error("cannot start the server `{name}`")]
    Start {
        /// Which.
        name: String,
        /// Why.
        source: TreeError,
    },
}

impl Session {
    /// An empty session with an id of its own.
    pub fn new(places: Places) -> Session {
        Session::named(id::random(), places)
    }

    /// An empty session with a given id, by which it is listed by `leash ps` and can be ended by `leash end ID`, where those look
    /// at the same places. Letters, digits and `- _ . : @ +`, at most 128; it is checked when the first server starts.
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

    /// A label of its servers, where they have none by this key.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Session {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The pace of the ending ladder of its servers, where they say nothing else; zero kills at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Session {
        self.grace = Some(grace);
        self
    }

    /// The longest it may live, from its making. The keepers see to it, whatever becomes of this program.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Session {
        self.max_age = Some(age);
        self
    }

    /// A further owner: when this process is gone, so are the servers. The calling process always is one.
    #[must_use]
    pub fn owner(mut self, pid: i32) -> Session {
        self.owners.push(Wish::Pid(pid));
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

    /// The same for async code, on any runtime: the waiting is done by a thread. Dropping the future ends what was started.
    pub async fn start_async(&mut self, spec: Spec) -> Result<&mut Tree, SessionError> {
        let (name, spec) = self.admit(spec)?;
        let places = self.places.clone();
        let tree = elsewhere("leash-start", move || Tree::start(spec, &places)).await;
        self.hold(name, tree)
    }

    /// The specification under the terms of the session, and the name for a failure.
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

    fn hold(&mut self, name: String, tree: Result<Tree, TreeError>) -> Result<&mut Tree, SessionError> {
        let tree = tree.map_err(|source| SessionError::Start { name, source })?;
        Ok(self.trees.push_mut(tree))
    }

    /// The servers, in the order they were started.
    pub fn trees(&mut self) -> &mut [Tree] {
        &mut self.trees
    }

    /// Ends everything. The end has begun when this returns; what it returns is for waiting: `.await` it on any runtime, or call
    /// [`SessionEnding::wait`]. Who does neither has the same end, and no receipt of the whole.
    ///
    /// A server is asked to leave by the end of its stdin, which a stdin that was taken must be dropped for. One whose stdin is
    /// still open gets SIGTERM.
    pub fn end(mut self) -> SessionEnding {
        let began = Moment::now();
        // All are asked before the first is awaited: they end side by side.
        self.trees.iter_mut().for_each(Tree::ask_to_end);
        SessionEnding::new(gather::Session {
            id: self.id,
            labels: self.labels,
            places: self.places,
            started_ms: self.started_ms,
            began,
            trees: self.trees,
        })
    }
}
