//! Where leash keeps things: decided here, from the environment, once.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use leash_orphans::clients::Roots;
use leash_tree::places::Places;

/// All places of this process.
pub(crate) fn places() -> Places {
    Places {
        runtime_dir: runtime_dir(),
        receipts: state_dir().join("receipts.jsonl"),
        program: PathBuf::from("/proc/self/exe"),
        bus_address: env::var("DBUS_SESSION_BUS_ADDRESS").ok(),
        xdg_runtime_dir: path_variable("XDG_RUNTIME_DIR"),
    }
}

/// The runtime directory: as told, else the session's, else one that this user can have to itself.
pub(crate) fn runtime_dir() -> PathBuf {
    if let Some(dir) = env::var_os("LEASH_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        // Our own variable: a relative path means what it says. The keeper must find it from any directory.
        return std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir));
    }
    let me = rustix::process::geteuid().as_raw();
    // After `sudo` the variable may still name the other user's directory; that one is not ours to write to.
    let ours = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == me);
    if let Some(dir) = path_variable("XDG_RUNTIME_DIR").filter(ours) {
        return dir.join("leash");
    }
    crate::runtime_dir::find(me, state_home().as_deref())
}

/// The directory for what is kept for good.
pub(crate) fn state_dir() -> PathBuf {
    // No home: a service user. What is kept then lives as long as the runtime directory.
    state_home().unwrap_or_else(|| runtime_dir().join("state"))
}

/// The directory for what is kept for good, if there is a home.
fn state_home() -> Option<PathBuf> {
    let base = path_variable("XDG_STATE_HOME").or_else(|| Some(path_variable("HOME")?.join(".local/state")))?;
    Some(base.join("leash"))
}

/// The directory for configuration, if there is a home.
pub(crate) fn config_dir() -> Option<PathBuf> {
    let base = path_variable("XDG_CONFIG_HOME").or_else(|| Some(path_variable("HOME")?.join(".config")))?;
    Some(base.join("leash"))
}

/// The directory for units of the user's systemd, if there is a home.
pub(crate) fn units_dir() -> Option<PathBuf> {
    let base = path_variable("XDG_CONFIG_HOME").or_else(|| Some(path_variable("HOME")?.join(".config")))?;
    Some(base.join("systemd/user"))
}

/// Where MCP clients have their configurations, if there is a home.
pub(crate) fn roots(projects: &[PathBuf]) -> Option<Roots> {
    let home = path_variable("HOME")?;
    let variable = |name: &'static str| Some((name.to_owned(), path_variable(name)?));
    Some(Roots {
        config: path_variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
        projects: projects.iter().map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone())).collect(),
        variables: Roots::variables_wanted().into_iter().filter_map(variable).collect(),
        ..Roots::of_home(&home)
    })
}

/// Where others find this program: under the name on PATH if it is there, which stays when leash is installed anew, else where it is.
pub(crate) fn program() -> Option<PathBuf> {
    let me = env::current_exe().ok()?;
    let path = env::var_os("PATH").unwrap_or_default();
    let names = env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("leash"));
    let mut same = names.filter(|name| fs::canonicalize(name).is_ok_and(|found| found == me));
    Some(same.next().unwrap_or(me))
}

/// A path from the environment; an empty or relative one counts as unset, as the XDG specification asks for.
fn path_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
