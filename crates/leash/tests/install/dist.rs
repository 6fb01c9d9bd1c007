//! The packages, and what all of them are tested with.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use rustix::process::Signal;
use testkit::host::Manner;
use testkit::leash::Answer;
use testkit::scene::Scene;
use testkit::wait::LIMIT;

/// The directory of the packages. The error says how to make them.
pub(crate) fn dist() -> Result<PathBuf, &'static str> {
    env::var_os("LEASH_DIST").map(PathBuf::from).ok_or("LEASH_DIST is not set; `cargo xtask dist` makes the packages")
}

/// The one package whose name has this end.
pub(crate) fn package(end: &str) -> Result<PathBuf, &'static str> {
    let dist = dist()?;
    let paths = fs::read_dir(&dist).expect("the directory exists").flatten().map(|entry| entry.path());
    let found: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    let [path] = &found[..] else { panic!("{} has {found:?}, expected one *{end}", dist.display()) };
    Ok(path.clone())
}

/// Every path below a directory, the directory itself excepted.
pub(crate) fn everything_below(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
            found.insert(entry.path().strip_prefix(dir).expect("it is below").to_owned());
        }
    }
    found
}

/// Runs a command to its end. It must succeed.
pub(crate) fn succeed(command: &mut Command) -> Answer {
    let answer: Answer = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")).into();
    assert_eq!(answer.code, 0, "{command:?}: {answer:?}");
    answer
}

/// Runs a command that must fail.
pub(crate) fn refuse(command: &mut Command) -> Answer {
    let answer: Answer = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")).into();
    assert_ne!(answer.code, 0, "{command:?}: {answer:?}");
    answer
}

/// The output of `leash demo` says that the tree with leash is gone.
pub(crate) fn check_demo(answer: &Answer) {
    assert!(answer.stdout.contains("With leash, every process was gone"), "{answer:?}");
}

/// Kills a host whose server is behind this leash, with a descendant that called `setsid`: nothing is left.
pub(crate) fn check_killed_host(scene: &mut Scene, leash: &Path) {
    let mut words: Vec<OsString> = vec![leash.into(), "run".into(), "--grace".into(), "100ms".into(), "--".into()];
    words.extend(scene.tree("setsid", [] as [&str; 0]));
    let mut host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    host.signal(Signal::KILL);
    host.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}
