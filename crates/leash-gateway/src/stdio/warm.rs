//! A server of a job that was started before a client asked for it. The first client gets it; if none comes, it ends
//! with the job.

use std::cell::{Cell, RefCell};
use std::{future::poll_fn, rc::Rc, task::Poll};

use tokio::{io::AsyncReadExt as _, net::unix::pipe::Receiver, sync::Notify};

use super::child::{self, ServerProcess, StartedTree};
use super::shared_trees;
use crate::state::gateway::Gateway;
use crate::state::server::{Occupied, Server};
use leash_model::{receipt::Reason, start_failure::StartFailure};

/// Holds the tree that was started in advance.
#[derive(Default)]
pub(crate) struct WarmTree {
    waiting: RefCell<Option<WaitingTree>>,
    /// True while it is being started.
    expected: Cell<bool>,
    /// Notified when the tree is taken out.
    taken: Notify,
}

struct WaitingTree {
    started: StartedTree,
    _occupied: Occupied,
}

impl WarmTree {
    /// Takes the tree, if there is one and it still runs.
    pub(super) fn take(&self) -> Option<StartedTree> {
        let waiting = self.waiting.borrow_mut().take()?;
        self.taken.notify_waiters();
        Some(waiting.started)
    }
}

/// Notes that a tree of a server is about to be started in advance.
pub(crate) fn expect_warm(server: &Server) {
    shared_trees(server).warm.expected.set(true);
}

/// True if a tree of a server waits for a client, or is being started for that.
pub(crate) fn has_warm(server: &Server) -> bool {
    let warm = &shared_trees(server).warm;
    warm.expected.get() || warm.waiting.borrow().is_some()
}

/// Starts a server's tree, which then waits for a client. Ends the tree at once if the server was told to end meanwhile.
pub(crate) async fn warm(gateway: &Rc<Gateway>, server: &Rc<Server>) -> Result<(), StartFailure> {
    let occupied = server.occupy();
    let started = child::start_new(gateway, server, "").await;
    shared_trees(server).warm.expected.set(false);
    let started = started?;
    if let Some(reason) = server.stop.reason() {
        end(gateway, server, started, &reason).await;
        return Err(StartFailure::Ended);
    }
    *shared_trees(server).warm.waiting.borrow_mut() = Some(WaitingTree { started, _occupied: occupied });
    gateway.tasks.spawn_local(watch(Rc::clone(gateway), Rc::clone(server)));
    Ok(())
}

/// Removes a waiting tree that exits by itself, so that the next client gets a new one.
async fn watch(gateway: Rc<Gateway>, server: Rc<Server>) {
    let mut taken = std::pin::pin!(shared_trees(&server).warm.taken.notified());
    let over = poll_fn(|cx| {
        if taken.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        match shared_trees(&server).warm.waiting.borrow_mut().as_mut() {
            Some(waiting) => waiting.started.tree.poll_over(cx).map(Some),
            None => Poll::Ready(None),
        }
    });
    let Some(receipt) = over.await else { return };
    let Some(waiting) = shared_trees(&server).warm.waiting.borrow_mut().take() else { return };
    let StartedTree { tree, stderr, .. } = waiting.started;
    stderr.finish().await;
    server.tree_ended(tree.run(), receipt.as_ref());
    tree.reap(&gateway.tasks);
}

/// Begins the end of the waiting tree of a server that was told to end, if there is one. A tree that is still being started
/// is ended once it runs.
pub(crate) fn end_warm(gateway: &Rc<Gateway>, server: &Rc<Server>) {
    let warm = &shared_trees(server).warm;
    let (Some(waiting), Some(reason)) = (warm.waiting.borrow_mut().take(), server.stop.reason()) else { return };
    warm.taken.notify_waiters();
    let WaitingTree { started, _occupied: occupied } = waiting;
    let (gateway, server) = (Rc::clone(gateway), Rc::clone(server));
    gateway.clone().tasks.spawn_local(async move {
        end(&gateway, &server, started, &reason).await;
        drop(occupied);
    });
}

/// Ends a tree that has no client.
async fn end(gateway: &Rc<Gateway>, server: &Server, started: StartedTree, reason: &Reason) {
    let StartedTree { tree, input, output, stderr } = started;
    let child = Rc::new(ServerProcess::new((input, stderr), gateway.tasks.clone(), server.stop.signal()));
    child.ask_to_end(reason);
    let reading = Rc::clone(&child);
    let reader = gateway.tasks.spawn_local(async move {
        drain(output).await;
        reading.output_ended();
    });
    let _ = child.reader.set(reader.abort_handle());
    let receipt = child.watch_until_over(tree, (server, &gateway.metrics.of(&server.bucket)), || ()).await;
    child.is_over(receipt);
}

/// Reads the output to its end: a server blocked on a full pipe would not notice that its input ended.
async fn drain(mut output: Receiver) {
    let mut scrap = [0; 4096];
    while let Ok(1..) = output.read(&mut scrap).await {}
}
