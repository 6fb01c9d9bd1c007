//! The directories of leash, decided once from the environment.
//!
//! Hosts pass different environments to their servers. So a command uses the same directories with and without the
//! usual variables, and reads all places in which a run of the same user can be, unless LEASH_RUNTIME_DIR names one.

mod known;

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{env, fs};

use leash_gateway::control_client;
use leash_orphans::clients::{ConfigFile, Roots, found_project_configs};
use leash_orphans::knowledge::projects;
use leash_tree::ledger;
use leash_tree::places::Places;
use leash_tree::platform::proc::Proc;

use self::known::KnownPlace;
use crate::runtime_dir;

/// The name of the file of receipts.
const RECEIPTS: &str = "receipts.jsonl";

/// All directories of this process.
pub(crate) fn places() -> Places {
    let (runtime_dir, other_runtime_dirs) = runtime_dirs();
    let (bus_address, xdg_runtime_dir) = user_bus();
    Places {
        receipts: state_home().unwrap_or_else(|| runtime_dir.join("state")).join(RECEIPTS),
        runtime_dir,
        other_runtime_dirs,
        program: PathBuf::from("/proc/self/exe"),
        bus_address,
        xdg_runtime_dir,
    }
}

/// The same for a command that starts something: commands with another environment can find its runs and receipts.
pub(crate) fn announced() -> Places {
    let places = places();
    if explicit().is_none()
        && let Some(common) = runtime_dir::common(my_uid())
    {
        // The first receipt makes the directory, too. Before that, the link would look like one to a removed directory.
        let _ = places.receipts.parent().map(fs::create_dir_all);
        known::note(&common, KnownPlace::Receipts, &places.receipts);
        if !runtime_dir::candidates(my_uid()).contains(&places.runtime_dir) {
            known::note(&common, KnownPlace::Runtime, &places.runtime_dir);
        }
    }
    places
}

fn my_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_ours(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == my_uid())
}

/// The directory in LEASH_RUNTIME_DIR. It may be relative there. The keeper must find it from any other directory.
fn explicit() -> Option<PathBuf> {
    let dir = env::var_os("LEASH_RUNTIME_DIR").filter(|dir| !dir.is_empty())?;
    Some(std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir)))
}

/// The runtime directory for new runs, and the others in which runs of this user can be.
fn runtime_dirs() -> (PathBuf, Vec<PathBuf>) {
    if let Some(dir) = explicit() {
        return (dir, Vec::new());
    }
    let me = my_uid();
    // After `sudo` the variable may still name the other user's directory, which we must not use.
    let named = path_variable("XDG_RUNTIME_DIR").filter(|dir| is_ours(dir));
    let named = named.map(|dir| fs::canonicalize(&dir).unwrap_or(dir));
    let own = match &named {
        Some(dir) if *dir != runtime_dir::of_session(me) => dir.join("leash"),
        // A process without the variable decides the same.
        _ => runtime_dir::find(me, state_home().as_deref()),
    };
    let mut all = runtime_dir::candidates(me);
    all.extend(named.map(|dir| dir.join("leash")));
    all.extend(state_homes().iter().filter_map(|state| runtime_dir::private(state, me)));
    all.extend(runtime_dir::candidates(me).iter().flat_map(|dir| known::read(dir, KnownPlace::Runtime)));
    let mut others: Vec<PathBuf> = Vec::new();
    for dir in all {
        if dir != own && !others.contains(&dir) {
            others.push(dir);
        }
    }
    (own, others)
}

/// The address of the user bus and the directory in which it may be.
fn user_bus() -> (Option<String>, Option<PathBuf>) {
    let address = env::var("DBUS_SESSION_BUS_ADDRESS").ok().filter(|address| !address.is_empty());
    let dir = path_variable("XDG_RUNTIME_DIR").or_else(|| {
        let usual = Some(runtime_dir::of_session(my_uid())).filter(|dir| address.is_none() && is_ours(dir))?;
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        is_in_session(&cgroups, my_uid()).then_some(usual)
    });
    (address, dir)
}

/// True if a process with these cgroups belongs to a session of this user. The user manager ends with the last session.
/// It must not take along the servers of a system service or of `sudo -u`.
fn is_in_session(cgroups: &str, me: u32) -> bool {
    cgroups.contains(&format!("/user-{me}.slice/"))
}

/// The control socket of the user's `leash serve`: the first at which a gateway listens, else the one that a gateway with
/// this environment would make. A killed gateway leaves its socket behind.
pub(crate) fn control_socket() -> PathBuf {
    let places = places();
    let mut sockets = ledger::runtime_dirs(&places).map(control_client::socket_path);
    let answers = |socket: &PathBuf| UnixStream::connect(socket).is_ok();
    sockets.find(answers).unwrap_or_else(|| control_client::socket_path(&places.runtime_dir))
}

/// Every file in which receipts of this user's runs can be; the first is the one that this process writes.
pub(crate) fn receipts_files() -> Vec<PathBuf> {
    let places = places();
    let mut files = vec![places.receipts.clone()];
    if explicit().is_none() {
        let homes = state_homes().into_iter();
        let of_runtime_dirs = ledger::runtime_dirs(&places).map(|dir| dir.join("state"));
        let linked = ledger::runtime_dirs(&places).flat_map(|dir| known::read(dir, KnownPlace::Receipts));
        for file in homes.chain(of_runtime_dirs).map(|dir| dir.join(RECEIPTS)).chain(linked) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files
}

/// The directory for persistent state.
pub(crate) fn state_dir() -> PathBuf {
    // A service user without a home: the state lives as long as the runtime directory.
    state_home().unwrap_or_else(|| runtime_dirs().0.join("state"))
}

/// The directory for persistent state, if there is a home.
fn state_home() -> Option<PathBuf> {
    state_homes().into_iter().next()
}

/// The directories for persistent state that this environment names, with and without XDG_STATE_HOME.
fn state_homes() -> Vec<PathBuf> {
    let named = path_variable("XDG_STATE_HOME");
    let usual = || Some(home()?.join(".local/state"));
    named.into_iter().chain(usual()).map(|base| base.join("leash")).collect()
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
    path_variable("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))
}

/// The home directory: HOME, else the one in the password database, if that is ours. Service users have `/` or
/// `/nonexistent` there.
fn home() -> Option<PathBuf> {
    path_variable("HOME").or_else(|| env::home_dir().filter(|dir| dir.is_absolute() && is_ours(dir)))
}

/// The directories in which processes of this user work, and the projects around them.
pub(crate) fn project_dirs(proc: &Proc) -> Vec<PathBuf> {
    projects::directories(proc, my_uid(), home().as_deref())
}

/// The configuration files in such a directory.
pub(crate) fn found_configs(dir: &Path) -> Vec<ConfigFile> {
    found_project_configs(dir, my_uid())
}

/// The directories with the configurations of MCP clients, if there is a home.
pub(crate) fn roots(projects: &[PathBuf]) -> Option<Roots> {
    let home = home()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_the_slice_of_its_user() {
        for (cgroups, expected) in [
            ("0::/user.slice/user-1000.slice/session-3.scope\n", true),
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n", true),
            ("2:cpu:/\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n", true),
            ("0::/user.slice/user-10001.slice/session-3.scope\n", false),
            ("0::/system.slice/mcp.service\n", false),
            ("0::/\n", false),
            ("", false),
        ] {
            assert_eq!(is_in_session(cgroups, 1000), expected, "{cgroups}");
        }
    }
}
