//! The errors of starting a tree.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use super::control::Failure;
use crate::ledger::store::StoreError;
use crate::owner::OwnerError;
use crate::platform::resolve::ResolveError;
use leash_model::containment::Refusal;

/// The reason why a tree could not be started. Nothing was left behind.
#[derive(Debug, Error)]
pub enum StartError {
    /// The command line is empty.
    #[error("no command was given")]
    NoCommand,
    /// The command was not found or may not be executed.
    #[error(transparent)]
    Command(ResolveError),
    /// The kernel did not execute it.
    #[error("cannot execute the command")]
    Exec(#[source] io::Error),
    /// The keeper could not change to the working directory.
    #[error("cannot change to `{}`", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An owner is already gone, or never existed.
    #[error(transparent)]
    Owner(OwnerError),
    /// The ledger's directory could not be used.
    #[error(transparent)]
    Ledger(StoreError),
    /// No acceptable containment works here.
    #[error("no acceptable containment works here")]
    Contain(Vec<Refusal>),
    /// The kernel made no process.
    #[error("cannot start a process")]
    Fork(#[source] io::Error),
    /// The keeper could not be started, or failed before the server ran.
    #[error("cannot start the keeper")]
    Keeper(#[source] io::Error),
    /// Signals could not be listened to.
    #[error("cannot listen to signals: {0}")]
    Signals(Errno),
    /// The kernel has no subreapers.
    #[error("cannot become a subreaper: {0}")]
    Subreaper(Errno),
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> StartError {
        let os = io::Error::from_raw_os_error;
        match failure {
            Failure::Contain(refused) => StartError::Contain(refused),
            Failure::Chdir(dir, errno) => StartError::Directory { dir: dir.into(), source: os(errno) },
            Failure::Exec(errno) => StartError::Exec(os(errno)),
            Failure::Fork(errno) => StartError::Fork(os(errno)),
            Failure::Keeper(text) => StartError::Keeper(io::Error::other(text)),
        }
    }
}
