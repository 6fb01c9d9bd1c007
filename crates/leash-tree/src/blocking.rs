//! A pool of threads for blocking work, so that it does not run on the one thread that serves all clients.
//!
//! tokio's own blocking pool panics if the machine can start no thread, which ends a gateway and everything it holds.
//! This pool returns the work to the caller instead.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use leash_model::limits;

/// A closure that sends its result by itself.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The blocking threads of this process: started when needed, and ended soon after.
static POOL: BlockingPool =
    BlockingPool { state: Mutex::new(State { waiting: VecDeque::new(), threads: 0, idle: 0 }), more: Condvar::new() };

struct BlockingPool {
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    /// The number of threads that have nothing to do.
    idle: usize,
}

/// Runs the work on another thread, or on this one if no other can be started.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (job, told) = job(work);
    if let Err(job) = POOL.take(job) {
        job();
    }
    told
}

/// Runs the work on another thread; `None` if none can be started.
pub fn attempt<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<oneshot::Receiver<T>> {
    let (job, told) = job(work);
    POOL.take(job).is_ok().then_some(told)
}

fn job<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> (Job, oneshot::Receiver<T>) {
    let (tell, told) = oneshot::channel();
    // If the receiver is gone, the caller does not want the result.
    (Box::new(move || drop(tell.send(work()))), told)
}

impl BlockingPool {
    /// Gives a job to a thread, or back to the caller.
    fn take(&'static self, job: Job) -> Result<(), Job> {
        let mut state = self.lock();
        if state.idle <= state.waiting.len() && state.threads < limits::THREADS {
            let started = std::thread::Builder::new().name("aside".to_owned()).spawn(|| self.work());
            match started {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(job),
                // An existing thread takes the job.
                Err(_) => {}
            }
        }
        state.waiting.push_back(job);
        self.more.notify_one();
        Ok(())
    }

    /// The loop of a thread.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                drop(state);
                // A panic ends only the job: its receiver gets an error.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (woken, timeout) =
                self.more.wait_timeout(state, limits::THREAD_IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn work_is_done_on_other_threads_at_the_same_time() {
        let (here, there) = (mpsc::channel(), mpsc::channel());
        let first = spawn(move || (there.0.send(()), here.1.recv().is_ok(), thread::current().id()));
        let second = spawn(move || (here.0.send(()), there.1.recv().is_ok(), thread::current().id()));
        let (first, second) = (first.blocking_recv().expect("done"), second.blocking_recv().expect("done"));
        assert!(first.1 && second.1);
        assert!(first.2 != second.2 && first.2 != thread::current().id());
    }

    #[test]
    fn panic_ends_only_the_job() {
        let told = spawn(|| panic!("on purpose"));
        assert!(told.blocking_recv().is_err());
        assert_eq!(attempt(|| 7).map(|told| told.blocking_recv()), Some(Ok(7)));
    }

    /// More jobs than threads: some jobs wait for a thread.
    #[test]
    fn all_jobs_run_when_there_are_more_than_threads() {
        let all: Vec<_> = (0..limits::THREADS * 4).map(|number| spawn(move || number)).collect();
        let sum: usize = all.into_iter().map(|told| told.blocking_recv().expect("done")).sum();
        assert_eq!(sum, (0..limits::THREADS * 4).sum::<usize>());
    }
}
