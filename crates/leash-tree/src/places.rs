//! Where leash keeps things.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The paths that leash uses. The program decides them: the library reads no environment and no home directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Places {
    /// The runtime directory: this program writes its ledger here.
    pub runtime_dir: PathBuf,
    /// The runtime directories that programs of the same user with another environment may use. leash reads and sweeps
    /// them if they are safe, and never makes them.
    #[serde(default)]
    pub other_runtime_dirs: Vec<PathBuf>,
    /// The receipts file.
    pub receipts: PathBuf,
    /// A program that calls [`enter`](crate::tree::keeper::enter) first. leash executes it again as the keeper. `/proc/self/exe` is this
    /// very program, even after an update replaced its file.
    pub program: PathBuf,
    /// `DBUS_SESSION_BUS_ADDRESS`, if leash may try `unit`.
    pub bus_address: Option<String>,
    /// `XDG_RUNTIME_DIR`, if leash may try `unit`.
    pub xdg_runtime_dir: Option<PathBuf>,
}

impl Places {
    /// Puts everything below one directory of the program's own. Its file system may or may not survive a reboot. Uses
    /// this very program as the keeper and does not try `unit`.
    pub fn below(dir: impl AsRef<Path>) -> Places {
        Places {
            runtime_dir: dir.as_ref().join("run"),
            other_runtime_dirs: Vec::new(),
            receipts: dir.as_ref().join("receipts.jsonl"),
            program: PathBuf::from("/proc/self/exe"),
            bus_address: None,
            xdg_runtime_dir: None,
        }
    }
}
