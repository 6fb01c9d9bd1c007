//! The event streams of the page. One look serves all of them, and without a stream nothing is looked at.
//!
//! A stream begins with `samples` (the charts) and `snapshot`; then each look makes a `change`, or a `look` if nothing
//! is different, which shows the page that its rows are not old.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::source::PageSource;
use leash_model::feed::{DocumentKind, FeedLook, FeedRow, LiveFeed};
use leash_model::limits;
use leash_protocol::sse;
use leash_tree::blocking;
use leash_upstream::body::BodyError;

/// All event streams, and the last look.
#[derive(Default)]
pub(super) struct LiveStreams {
    feed: RefCell<LiveFeed>,
    samples: RefCell<VecDeque<Sample>>,
    readers: RefCell<Vec<Weak<PageStream>>>,
    is_watching: Cell<bool>,
    closed: CancellationToken,
}

/// The totals at a time: milliseconds since 1970, the memory of leash's trees, that of other servers, and the processes
/// of leash's trees.
type Sample = (u64, u64, u64, usize);

/// One event stream.
#[derive(Default)]
struct PageStream {
    queue: RefCell<VecDeque<Bytes>>,
    waker: RefCell<Option<Waker>>,
    /// True if it has the rows of the look before, so that a change is enough.
    has_rows: Cell<bool>,
    /// True if the stream ends after the events in the queue.
    last: Cell<bool>,
}

impl PageStream {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl LiveStreams {
    /// A new stream; `None` if there are too many. It gets its rows with the next look.
    pub(super) fn listen(&self) -> Option<PageStreamBody> {
        let mut readers = self.readers.borrow_mut();
        readers.retain(|reader| reader.strong_count() > 0);
        if readers.len() >= limits::PAGE_STREAMS || self.closed.is_cancelled() {
            return None;
        }
        let reader = Rc::new(PageStream::default());
        // A comment at once, so that the browser knows that it is connected.
        reader.queue.borrow_mut().push_back(Bytes::from_static(b": listening\n\n"));
        readers.push(Rc::downgrade(&reader));
        Some(PageStreamBody(reader))
    }

    /// Starts to look, unless that is under way.
    pub(super) fn watch(self: &Rc<Self>, source: &Arc<dyn PageSource>, tasks: &TaskTracker) {
        if self.is_watching.replace(true) {
            return;
        }
        // One look waits here at most: a busy gateway slows the looks down.
        let (sender, mut receiver) = mpsc::channel(1);
        let source = Arc::clone(source);
        let looking = blocking::attempt(move || source.follow(&mut |look| sender.blocking_send(look).is_ok()));
        let this = Rc::clone(self);
        tasks.spawn_local(async move {
            // Without a thread no look comes; the streams end, and the browsers try again.
            while looking.is_some()
                && let Some(look) = tokio::select! {
                    look = receiver.recv() => look,
                    () = this.closed.cancelled() => None,
                }
                && this.take(look)
            {}
            this.is_watching.set(false);
            this.finish();
        });
    }

    /// Sends a look to all streams. Returns false if there is none.
    fn take(&self, look: FeedLook) -> bool {
        let mut readers = self.readers.borrow_mut();
        readers.retain(|reader| reader.strong_count() > 0);
        if readers.is_empty() {
            return false;
        }
        let mut feed = self.feed.borrow_mut();
        let at_ms = look.at_ms;
        let change = feed.take(look).filter(|document| document.kind == DocumentKind::Change);
        let event = match change {
            Some(change) => encode("change", &change),
            None => encode("look", &json!({"at_ms": at_ms, "judged_ms": feed.last_look().judged_ms})),
        };
        let totals = feed.totals();
        self.sample((at_ms, totals.memory_bytes, totals.others_memory_bytes, totals.processes));
        let mut first = None;
        for reader in readers.iter().filter_map(Weak::upgrade) {
            let mut queue = reader.queue.borrow_mut();
            if queue.len() >= limits::PAGE_QUEUE {
                queue.clear();
                reader.has_rows.set(false);
            }
            if reader.has_rows.replace(true) {
                queue.push_back(event.clone());
            } else {
                let first = first.get_or_insert_with(|| {
                    [encode("samples", &*self.samples.borrow()), encode("snapshot", &feed.snapshot())]
                });
                queue.extend(first.iter().cloned());
            }
            drop(queue);
            reader.wake();
        }
        true
    }

    /// Keeps a sample of each second.
    fn sample(&self, sample: Sample) {
        let mut samples = self.samples.borrow_mut();
        if samples.back().is_some_and(|last| last.0 / 1000 == sample.0 / 1000) {
            samples.pop_back();
        }
        samples.push_back(sample);
        while samples.len() > limits::PAGE_SAMPLES {
            samples.pop_front();
        }
    }

    /// The row with this key in the last look.
    pub(super) fn row(&self, key: &str) -> Option<FeedRow> {
        self.feed.borrow().rows().iter().find(|row| row.key == key).cloned()
    }

    /// Ends all streams and looks no more.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.finish();
    }

    fn finish(&self) {
        let readers = self.readers.take();
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.last.set(true);
            reader.wake();
        }
    }
}

fn encode(name: &str, value: &impl Serialize) -> Bytes {
    let mut bytes = Vec::new();
    // All events consist of text, numbers and lists, so this cannot fail.
    sse::encode(&mut bytes, None, Some(name), &serde_json::to_vec(value).unwrap_or_default());
    bytes.into()
}

/// An event stream as the body of a response. Dropping it ends the stream.
pub(super) struct PageStreamBody(Rc<PageStream>);

impl HttpBody for PageStreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let reader = &self.0;
        if let Some(event) = reader.queue.borrow_mut().pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        if reader.last.get() {
            return Poll::Ready(None);
        }
        *reader.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
