//! `unit`: a systemd user scope that is bound to a guard unit.
//!
//! The keeper asks the user manager for two transient units. The guard service only waits for the death of both
//! supervisor and keeper. The delegated scope holds the keeper and is bound to the guard (`BindsTo=`). A scope alone
//! does not follow its leader. Bound to the guard, systemd kills it when all of leash is gone. Inside the scope the
//! tree gets its own leaf, so everything that `leaf` promises holds as well.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

pub(crate) use super::dbus::UserBus;
use super::dbus::{Bus, ExecCommand, Property};
use super::leaf;
use crate::platform::identity::HeldProcess;
use crate::platform::poll;
use crate::platform::proc::Proc;
use leash_model::clock::Moment;
use leash_model::identity::Identity;
use leash_model::limits;

/// `argv[0]` of leash in guard mode. It does not contain the tool's name, so `pkill -f leash` does not find the guard.
pub(crate) const GUARD: &str = "mcp-guard";

/// The interval at which the keeper checks whether the manager has moved it. The move takes some 10 ms.
const LOOK: Duration = Duration::from_millis(1);

/// Moves the calling process into a scope of its own that dies with `supervisor` and `keeper`. Returns the directory
/// for the tree's leaf. The error text is ready to be shown.
pub(crate) fn enter(bus: &UserBus, run: &str, supervisor: Identity, keeper: Identity) -> Result<PathBuf, String> {
    if bus.address.is_none() && bus.runtime_dir.is_none() {
        return Err("no user bus: neither DBUS_SESSION_BUS_ADDRESS nor XDG_RUNTIME_DIR is set".to_owned());
    }
    let program = std::env::current_exe().map_err(|error| format!("our own program can't be found: {error}"))?;
    let mut bus = Bus::connect(bus, limits::BUS).map_err(|error| format!("no user bus: {error}"))?;
    let guard = format!("leash-{run}-guard.service");
    let scope = format!("leash-{run}.scope");
    let (guard_properties, scope_properties) =
        (guard_properties(&program, &scope, supervisor, keeper), scope_properties(&guard, keeper));
    bus.start_transient_unit(&guard, &guard_properties).map_err(|error| format!("starting the guard unit: {error}"))?;
    let moved = bus
        .start_transient_unit(&scope, &scope_properties)
        .map_err(|error| format!("starting the scope: {error}"))
        .and_then(|_| wait_until_moved(&mut bus, &scope))
        .and_then(|dir| leaf::move_to_sibling(&dir));
    if moved.is_err() {
        // Without the scope the guard is useless. It would end with us anyway.
        bus.renew(limits::BUS);
        let _ = bus.stop_unit(&guard);
    }
    moved
}

fn guard_properties(
    program: &Path,
    scope: &str,
    supervisor: Identity,
    keeper: Identity,
) -> Vec<(&'static str, Property)> {
    let argv = [
        GUARD.to_owned(),
        scope.to_owned(),
        supervisor.pid.to_string(),
        supervisor.start.to_string(),
        keeper.pid.to_string(),
        keeper.start.to_string(),
    ];
    let exec = ExecCommand { path: program.to_string_lossy().into_owned(), argv: argv.to_vec(), ignore_failure: false };
    vec![
        ("Description", Property::Str("guard of an MCP server's process tree".to_owned())),
        // A guard counts as started once it is executed. With another type, a failed exec would end the scope, and us
        // with it, a little later.
        ("Type", Property::Str("exec".to_owned())),
        ("ExecStart", Property::Exec(vec![exec])),
        ("StandardOutput", Property::Str("null".to_owned())),
        ("StandardError", Property::Str("null".to_owned())),
        ("CollectMode", Property::Str("inactive-or-failed".to_owned())),
    ]
}

fn scope_properties(guard: &str, keeper: Identity) -> Vec<(&'static str, Property)> {
    vec![
        ("Description", Property::Str("an MCP server's process tree".to_owned())),
        ("PIDs", Property::PidList(vec![keeper.pid.unsigned_abs()])),
        ("BindsTo", Property::StrList(vec![guard.to_owned()])),
        ("After", Property::StrList(vec![guard.to_owned()])),
        // When the guard ends, no process of leash is left to give the tree a grace.
        ("KillSignal", Property::I32(9)),
        ("Delegate", Property::Bool(true)),
        // The manager's default would be a limit that the host did not set.
        ("TasksMax", Property::U64(u64::MAX)),
        ("CollectMode", Property::Str("inactive-or-failed".to_owned())),
    ]
}

/// Waits until the manager has moved us. It answers when the job is queued, and moves us a little later. It reports a
/// failed move to no process; then the scope does not exist any more.
fn wait_until_moved(bus: &mut Bus, scope: &str) -> Result<PathBuf, String> {
    let give_up = Moment::now() + limits::BUS;
    loop {
        let dir = leaf::own_cgroup()?;
        if dir.file_name().is_some_and(|name| name == scope) {
            return Ok(dir);
        }
        let vanished = bus.unit_property_string(scope, "Unit", "LoadState").is_ok_and(|state| state == "not-found");
        if vanished || Moment::now() >= give_up {
            return Err("the user manager did not move us into the scope".to_owned());
        }
        poll::pause(LOOK);
    }
}

/// Runs the guard. It exits when supervisor and keeper are both gone, and systemd then kills the scope.
pub(crate) fn guard(arguments: &[OsString]) {
    let Ok(proc) = Proc::own() else { return };
    let number =
        |index: usize| arguments.get(index).and_then(|text| text.to_str()).and_then(|text| text.parse::<u64>().ok());
    for first in [1, 3] {
        let (Some(pid), Some(start)) = (number(first), number(first + 1)) else { return };
        let Some(held) = HeldProcess::open_same(&proc, Identity { pid: pid as i32, start, inode: None }) else {
            continue;
        };
        let mut fds = [PollFd::new(&held, PollFlags::IN)];
        while matches!(rustix::event::poll(&mut fds, None), Ok(0) | Err(rustix::io::Errno::INTR)) {}
    }
    // The user manager does not kill members that became root. The kernel does if the cgroup's owner asks.
    let scope =
        arguments.first().and_then(|scope| leaf::own_cgroup().ok().and_then(|dir| Some(dir.parent()?.join(scope))));
    if let Some(leaf) = scope.and_then(|dir| leaf::Leaf::open(&dir).ok()) {
        let _ = leaf.kill();
    }
}
