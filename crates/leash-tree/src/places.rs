//! Where leash keeps things.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where leash keeps things, decided by the program: the library reads no environment and no home directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Places {
    /// The runtime directory, for the ledger.
    pub runtime_dir: PathBuf,
    /// The receipts file.
    pub receipts: PathBuf,
    /// A program that calls [`crate::enter`] first; it is executed again as the keeper. `/proc/self/exe` is this very program,
    /// even after an update replaced its file.
    pub program: PathBuf,
    /// `DBUS_SESSION_BUS_ADDRESS`, if `unit` may be tried.
    pub bus_address: Option<String>,
    /// `XDG_RUNTIME_DIR`, if `unit` may be tried.
    pub xdg_runtime_dir: Option<PathBuf>,
}

impl Places {
    /// Everything below one directory of the program's own, on a file system that is gone after a reboot or kept, as it likes;
    /// this very program as the keeper; `unit` is not tried.
    pub fn below(dir: impl AsRef<Path>) -> Places {
        Places {
            runtime_dir: dir.as_ref().join("run"),
            receipts: dir.as_ref().join("receipts.jsonl"),
            program: PathBuf::from("/proc/self/exe"),
            bus_address: None,
            xdg_runtime_dir: None,
        }
    }
}
