//! The async runtime of a process that talks to upstream servers.

use std::io;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// Makes a runtime with one thread. It is not a `LocalSet`: a runtime sees a `LocalSet` as one task, and waking a task
/// inside it costs a system call.
pub fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}
