//! Blocking work for async code, on any runtime or without one: a thread does it and wakes the waiting task.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

/// Work that a thread does. Dropping this does not stop the work, but drops its result.
#[derive(Debug)]
pub(crate) struct ThreadTask<T> {
    state: State<T>,
    wake_state: Arc<Mutex<WakeState>>,
}

#[derive(Debug)]
enum State<T> {
    Runs(JoinHandle<T>),
    /// No thread could be started, so the caller's thread did the work.
    Done(T),
    Taken,
}

#[derive(Debug, Default)]
struct WakeState {
    is_done: bool,
    waker: Option<Waker>,
}

/// Wakes the waiting task when the work is done, also after a panic.
struct WakeOnDrop(Arc<Mutex<WakeState>>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        let waker = {
            let mut wake_state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            wake_state.is_done = true;
            wake_state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Starts the work at once.
pub(crate) fn run_on_thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> ThreadTask<T> {
    let wake_state = Arc::<Mutex<WakeState>>::default();
    // The thread may fail to start. The work is kept where both this function and the thread can take it.
    let kept = Arc::new(Mutex::new(Some(work)));
    let take = |kept: &Mutex<Option<_>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let spawned = {
        let (wake_on_drop, kept) = (WakeOnDrop(Arc::clone(&wake_state)), Arc::clone(&kept));
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _wake_on_drop = wake_on_drop;
            let work = take(&kept).expect("the thread runs, so the caller did not take the work");
            work()
        })
    };
    let state = match spawned {
        Ok(thread) => State::Runs(thread),
        // This blocks the caller, which is better than not doing the work.
        Err(_) => State::Done(take(&kept).expect("no thread was started that could take the work")()),
    };
    ThreadTask { state, wake_state }
}

impl<T> ThreadTask<T> {
    /// Waits for the result, and blocks.
    pub(crate) fn wait(self) -> T {
        match self.state {
            State::Runs(thread) => join(thread),
            State::Done(result) => result,
            State::Taken => unreachable!("the result was taken, so no caller can wait for it"),
        }
    }
}

// No field is pinned.
impl<T> Unpin for ThreadTask<T> {}

impl<T> Future for ThreadTask<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let State::Runs(_) = self.state {
            let mut wake_state = self.wake_state.lock().unwrap_or_else(PoisonError::into_inner);
            if !wake_state.is_done {
                wake_state.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            // The thread has set `is_done`, so it is about to end.
            State::Runs(thread) => Poll::Ready(join(thread)),
            State::Done(result) => Poll::Ready(result),
            State::Taken => panic!("polled after it was done"),
        }
    }
}

fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;

    use super::*;

    struct Told(Mutex<mpsc::Sender<()>>);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().send(());
        }
    }

    #[test]
    fn waiting_task_is_woken() {
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Told(Mutex::new(tell))));
        let mut cx = Context::from_waker(&waker);
        let (go, gate) = mpsc::channel::<()>();
        let mut work = run_on_thread("work", move || gate.recv().map(|()| 7));
        assert!(Pin::new(&mut work).poll(&mut cx).is_pending());
        go.send(()).unwrap();
        told.recv().unwrap();
        assert_eq!(Pin::new(&mut work).poll(&mut cx), Poll::Ready(Ok(7)));
    }

    #[test]
    fn wait_works_without_a_runtime() {
        assert_eq!(run_on_thread("work", || 7).wait(), 7);
    }

    #[test]
    fn panic_of_the_work_reaches_the_waiting_caller() {
        let work = run_on_thread("work", || std::panic::resume_unwind(Box::new("torn")));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.wait()));
        let caught: Result<(), _> = caught;
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"torn"));
    }
}
