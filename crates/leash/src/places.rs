//! The directories of leash, decided once from the environment.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::{env, fs};

use leash_orphans::clients::Roots;
use leash_tree::places::Places;

/// All directories of this process.
pub(crate) fn places() -> Places {
    Places {
        runtime_dir: runtime_dir(),
        receipts: state_dir().join("receipts.jsonl"),
        program: PathBuf::from("/proc/self/exe"),
        bus_address: env::var("DBUS_SESSION_BUS_ADDRESS").ok(),
        xdg_runtime_dir: path_variable("XDG_RUNTIME_DIR"),
    }
}

/// The runtime directory: the configured one, else that of the user's session, else a private one of this user.
pub(crate) fn runtime_dir() -> PathBuf {
    if let Some(dir) = env::var_os("LEASH_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        // LEASH_RUNTIME_DIR may be relative. The keeper must find the directory from any other one, so make it
        // absolute.
        return std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir));
    }
    let me = rustix::process::geteuid().as_raw();
    // After `sudo` the variable may still name the other user's directory, which we must not use.
    let ours = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == me);
    if let Some(dir) = path_variable("XDG_RUNTIME_DIR").filter(ours) {
        return dir.join("leash");
    }
    crate::runtime_dir::find(me, state_home().as_deref())
}

/// The directory for persistent state.
pub(crate) fn state_dir() -> PathBuf {
    // A service user without a home: the state lives as long as the runtime directory.
    state_home().unwrap_or_else(|| runtime_dir().join("state"))
}

/// The directory for persistent state, if there is a home.
fn state_home() -> Option<PathBuf> {
    let base = path_variable("XDG_STATE_HOME").or_else(|| Some(path_variable("HOME")?.join(".local/state")))?;
    Some(base.join("leash"))
}

/// The directory for configuration, if there is a home.
pub(crate) fn config_dir() -> Option<PathBuf> {
    Some(config_home()?.join("leash"))
}

/// The directory for units of the user's systemd, if there is a home.
pub(crate) fn units_dir() -> Option<PathBuf> {
    Some(config_home()?.join("systemd/user"))
}

fn config_home() -> Option<PathBuf> {
    path_variable("XDG_CONFIG_HOME").or_else(|| Some(path_variable("HOME")?.join(".config")))
}

/// The directories with the configurations of MCP clients, if there is a home.
pub(crate) fn roots(projects: &[PathBuf]) -> Option<Roots> {
    let home = path_variable("HOME")?;
    let variable = |name: &'static str| Some((name.to_owned(), path_variable(name)?));
    Some(Roots {
        config: config_home()?,
        projects: projects.iter().map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone())).collect(),
        variables: Roots::variables_wanted().into_iter().filter_map(variable).collect(),
        ..Roots::of_home(&home)
    })
}

/// The path under which other programs find leash: the name on PATH if it is there, which survives an upgrade, else
/// the path of this executable.
pub(crate) fn program() -> Option<PathBuf> {
    let me = env::current_exe().ok()?;
    let path = env::var_os("PATH").unwrap_or_default();
    let names = env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("leash"));
    let mut same = names.filter(|name| fs::canonicalize(name).is_ok_and(|found| found == me));
    Some(same.next().unwrap_or(me))
}

/// A path from the environment; an empty or relative one counts as unset, as the XDG specification requires.
fn path_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
