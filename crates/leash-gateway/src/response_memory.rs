//! Counts the responses that wait in memory until their clients read them, up to the last byte in a socket: per server
//! pipe, per origin, and in total. While there are too many, leash does not read from the servers, and they wait with a
//! full pipe.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{collections::HashMap, future::Future, sync::Arc};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use leash_model::limits;
use leash_upstream::origin::Origin;

/// A number of bytes, and a notification when it falls. Shared with buffers, which must be [`Send`], hence the atomics.
#[derive(Debug, Default)]
struct ByteCount {
    bytes: AtomicUsize,
    lowered: Notify,
}

impl ByteCount {
    fn get(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn raise(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lower(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.lowered.notify_waiters();
    }

    /// Adjusts the level from one value to another.
    fn change(&self, from: usize, to: usize) {
        if to > from {
            self.raise(to - from);
        } else if from > to {
            self.lower(from - to);
        }
    }
}

/// The memory of all servers, or of one origin's servers.
#[derive(Debug)]
struct MemoryPool {
    level: Arc<ByteCount>,
    /// Permits for long lines that servers have begun to write and have not finished.
    lines: Arc<Semaphore>,
}

impl MemoryPool {
    fn new(lines: usize) -> MemoryPool {
        MemoryPool { level: Arc::default(), lines: Arc::new(Semaphore::new(lines)) }
    }
}

/// The memory for a gateway's responses.
pub(crate) struct ResponseMemory {
    all: Rc<MemoryPool>,
    origins: RefCell<HashMap<Origin, Weak<MemoryPool>>>,
}

impl Default for ResponseMemory {
    fn default() -> ResponseMemory {
        ResponseMemory { all: Rc::new(MemoryPool::new(limits::LONG_LINES)), origins: RefCell::default() }
    }
}

impl ResponseMemory {
    /// The number of bytes that wait for clients.
    pub(crate) fn held(&self) -> usize {
        self.all.level.get()
    }

    /// Creates the account of a server pipe whose messages are for this origin.
    pub(crate) fn account(&self, origin: Origin) -> MemoryAccount {
        let mut origins = self.origins.borrow_mut();
        let known = origins.get(&origin).and_then(Weak::upgrade);
        let pool = known.unwrap_or_else(|| {
            origins.retain(|_, pool| pool.strong_count() > 0);
            let pool = Rc::new(MemoryPool::new(limits::LONG_LINES_ORIGIN));
            origins.insert(origin, Rc::downgrade(&pool));
            pool
        });
        MemoryAccount { own: Arc::default(), origin: pool, all: Rc::clone(&self.all), queued: Cell::default() }
    }
}

/// The memory that the messages of one server take.
pub(crate) struct MemoryAccount {
    own: Arc<ByteCount>,
    origin: Rc<MemoryPool>,
    all: Rc<MemoryPool>,
    /// The last value passed to [`MemoryAccount::queue`].
    queued: Cell<QueuedBytes>,
}

/// The size of the messages that were not handed to a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueuedBytes {
    /// Bytes that connections wait for.
    pub(crate) unread: usize,
    /// Bytes that no connection waits for, of a message larger than the whole buffer for clients that come back.
    pub(crate) unclaimed: usize,
}

/// The right to read a long line to its end.
#[derive(Debug)]
pub(crate) struct LongLine {
    _of_origin: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl MemoryAccount {
    /// Counts the bytes until the last piece of them is dropped.
    pub(crate) fn hold(&self, bytes: Bytes) -> Bytes {
        let levels = [&self.own, &self.origin.level, &self.all.level].map(Arc::clone);
        levels.iter().for_each(|level| level.raise(bytes.len()));
        Bytes::from_owner(CountedBytes { bytes, levels })
    }

    /// Sets the size of the queue.
    pub(crate) fn queue(&self, now: QueuedBytes) {
        let before = self.queued.replace(now);
        self.own.change(before.unread, now.unread);
        for pool in [&self.origin, &self.all] {
            pool.level.change(before.unread + before.unclaimed, now.unread + now.unclaimed);
        }
    }

    /// True if its origin, or all origins together, hold more than the limit.
    pub(crate) fn is_strained(&self) -> bool {
        self.origin.level.get() > limits::HELD_ORIGIN || self.all.level.get() > limits::HELD
    }

    /// True if leash must stop reading from a server that has begun a line of so many bytes.
    pub(crate) fn is_full(&self, begun: usize) -> bool {
        let own = self.own.get();
        own > limits::HELD_PIPE || (own + begun > limits::UNREAD_STREAMS && self.is_strained())
    }

    /// Completes when a client has read something, or a message was dropped, since the call.
    pub(crate) fn lowered(&self) -> impl Future<Output = ()> {
        let [own, origin, all] = [&self.own, &self.origin.level, &self.all.level].map(|level| level.lowered.notified());
        async move {
            tokio::select! {
                () = own => {}
                () = origin => {}
                () = all => {}
            }
        }
    }

    /// Waits for a permit to read a long line. Each origin has some permits, and the total is limited, so that long
    /// lines stay a small part of the memory.
    pub(crate) async fn long_line(&self) -> Option<LongLine> {
        let of_origin = Arc::clone(&self.origin.lines).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all.lines).acquire_owned().await.ok()?;
        Some(LongLine { _of_origin: of_origin, _of_all: of_all })
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.queue(QueuedBytes::default());
    }
}

/// Bytes that a connection holds.
struct CountedBytes {
    bytes: Bytes,
    levels: [Arc<ByteCount>; 3],
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.levels.iter().for_each(|level| level.lower(self.bytes.len()));
    }
}
