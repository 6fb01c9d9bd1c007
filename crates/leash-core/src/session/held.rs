//! A session in the hands of another program: several trees that end together.

use std::time::Duration;

use crate::clock::Moment;
use crate::id;
use crate::ledger::receipt::Receipt;
use crate::tree::{Places, Spec, Tree, TreeError};

/// One owner's claim on the servers it started. Ending it ends them all, at the same time; dropping it does too, in the
/// background.
///
/// ```no_run
/// use leash_core::session::Session;
/// use leash_core::tree::{Places, Spec};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut job = Session::new(Places::below("/run/my-host"));
/// let files = job.start(Spec::new(["mcp-server-files", "/srv"]))?;
/// let stdin = files.take_stdin();
/// // ... work ...
/// let ended = job.end();
/// assert!(ended.all_gone());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session {
    id: String,
    places: Places,
    trees: Vec<Tree>,
}

/// What became of a session's trees.
#[derive(Debug)]
pub struct SessionEnd {
    /// The session.
    pub id: String,
    /// A receipt per tree, or why there is none.
    pub trees: Vec<Result<Receipt, TreeError>>,
    /// From the call to the last proof.
    pub took: Duration,
}

impl SessionEnd {
    /// Whether everything is proved to be gone.
    pub fn all_gone(&self) -> bool {
        self.trees.iter().all(|tree| tree.as_ref().is_ok_and(Receipt::all_gone))
    }
}

impl Session {
    /// An empty session with an id of its own.
    pub fn new(places: Places) -> Session {
        Session::named(id::random(), places)
    }

    /// An empty session with a given id; `leash end ID` ends its trees as well.
    pub fn named(id: impl Into<String>, places: Places) -> Session {
        Session { id: id.into(), places, trees: Vec::new() }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Starts a server in the session.
    pub fn start(&mut self, spec: Spec) -> Result<&mut Tree, TreeError> {
        let tree = Tree::start(spec.session(self.id.clone()), &self.places)?;
        Ok(self.trees.push_mut(tree))
    }

    /// The trees, in the order they were started.
    pub fn trees(&mut self) -> &mut [Tree] {
        &mut self.trees
    }

    /// Ends all trees and returns when everything is gone, or when it is clear what is left.
    pub fn end(mut self) -> SessionEnd {
        let began = Moment::now();
        // All are asked before the first is awaited: they end side by side.
        self.trees.iter_mut().for_each(Tree::ask_to_end);
        let trees = std::mem::take(&mut self.trees).into_iter().map(Tree::wait).collect();
        SessionEnd { id: self.id, trees, took: Moment::now().since(began) }
    }
}
