//! A machine of its own whose kernel reports the memory that the test wants.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leash_model::pressure::MemoryState;
use testkit::namespace::inside;
use testkit::user::{User, Who};
use testkit::{Scratch, wait};

/// The time between two changes of the reported pressure.
const STEP: Duration = Duration::from_millis(20);

/// Longer than any test.
const LONGEST: Duration = Duration::from_secs(3600);

/// The machine, once the test runs inside of it. Dropping it stops the thread that writes the pressure.
pub(crate) struct Machine {
    state: Arc<Mutex<MemoryState>>,
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    _files: Scratch,
}

impl Machine {
    /// Starts the test called `test` again on a machine of its own; `None` in the outer run, after the inner one has
    /// passed. The error says why that is not possible.
    pub(crate) fn enter(test: &str) -> Result<Option<Machine>, String> {
        User::find(Who::Root)?;
        fs::metadata("/proc/pressure/memory").map_err(|_| "the kernel does not measure pressure")?;
        Ok(inside(test, &[]).then(Machine::make))
    }

    /// In place of the kernel's files there are two of our own. All programs of this mount namespace see them.
    fn make() -> Machine {
        let files = Scratch::new();
        let kernel_files = ["pressure/memory", "meminfo"].map(|name| {
            let ours = files.join(name.replace('/', "-"));
            let file = File::create(&ours).expect("ours");
            let mounted = Command::new("mount").arg("--bind").arg(&ours).arg(format!("/proc/{name}")).status();
            assert!(mounted.expect("there is a mount").success());
            file
        });
        write_state(&kernel_files, MemoryState::Enough, 0);
        let (state, is_over) = (Arc::new(Mutex::new(MemoryState::Enough)), Arc::new(AtomicBool::new(false)));
        let writer = std::thread::spawn({
            let (state, is_over) = (Arc::clone(&state), Arc::clone(&is_over));
            move || write(&kernel_files, &state, &is_over)
        });
        Machine { state, is_over, writer: Some(writer), _files: files }
    }

    /// From now on the memory is in this state.
    pub(crate) fn set_memory(&self, state: MemoryState) {
        *self.state.lock().expect("no thread panics with it") = state;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

/// Writes the state of the machine again and again: the time in which processes wait for memory grows.
fn write(files: &[File; 2], state: &Mutex<MemoryState>, is_over: &AtomicBool) {
    let mut stalled = 0;
    wait::every(STEP, LONGEST, || {
        let state = *state.lock().expect("no thread panics with it");
        // More than the time of a step, which may take longer: some process waits all the time.
        stalled += if state == MemoryState::Short { 20 * STEP.as_micros() } else { 0 };
        write_state(files, state, stalled);
        is_over.load(Ordering::Relaxed).then_some(())
    });
}

/// Every state has the same length and is written at once, so a reader never sees a part of one.
fn write_state([pressure, memory]: &[File; 2], state: MemoryState, stalled: u128) {
    let (average, available) = match state {
        MemoryState::Enough => ("00.00", "00900"),
        MemoryState::Low => ("00.00", "00200"),
        MemoryState::Short => ("90.00", "00050"),
    };
    let rest = format!("avg60=00.00 avg300=00.00 total={stalled:020}\n");
    let text = format!("some avg10={average} {rest}full avg10={average} {rest}");
    memory.write_all_at(format!("MemTotal: 01000 kB\nMemAvailable: {available} kB\n").as_bytes(), 0).expect("ours");
    pressure.write_all_at(text.as_bytes(), 0).expect("ours");
}
