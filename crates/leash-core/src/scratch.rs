//! For tests: a directory that is removed after the test.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::id;

/// The directory.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let dir = std::env::temp_dir().join(format!("leash-core-{}", id::random()));
        fs::create_dir(&dir).expect("a directory");
        Scratch(dir)
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
