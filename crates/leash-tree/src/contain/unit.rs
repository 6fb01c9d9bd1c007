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
use super::dbus::{Bus, BusError, ExecCommand, Property};
use super::leaf;
use super::slice::{BudgetSlice, PlannedSlice};
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

/// The number of times to try if another keeper makes the same slice at the same time.
const TRIES: usize = 8;

/// The processes that a scope dies with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) supervisor: Identity,
    pub(crate) keeper: Identity,
}

/// Moves the calling process into a scope of its own that dies with the supervisor and the keeper, in these slices,
/// outermost first. Returns the directory for the tree's leaf, and the slices. The error text is ready to be shown.
pub(crate) fn enter(
    bus: &UserBus,
    run: &str,
    watched: Watched,
    slices: &[PlannedSlice],
) -> Result<(PathBuf, Vec<BudgetSlice>), String> {
    if bus.address.is_none() && bus.runtime_dir.is_none() {
        return Err("no user bus: neither DBUS_SESSION_BUS_ADDRESS nor XDG_RUNTIME_DIR is set".to_owned());
    }
    let program = std::env::current_exe().map_err(|error| format!("our own program can't be found: {error}"))?;
    let mut bus = Bus::connect(bus, limits::BUS).map_err(|error| format!("no user bus: {error}"))?;
    let guard = format!("leash-{run}-guard.service");
    let scope = format!("leash-{run}.scope");
    let path: PathBuf = slices.iter().map(|slice| slice.name.as_str()).chain([scope.as_str()]).collect();
    bus.start_transient_unit(&guard, &guard_properties(&program, &path, watched), &[])
        .map_err(|error| format!("starting the guard unit: {error}"))?;
    let moved = start_scope(&mut bus, &scope, &scope_properties(&guard, watched.keeper, slices), slices)
        .map_err(|error| format!("starting the scope: {error}"))
        .and_then(|()| wait_until_moved(&mut bus, &scope))
        .and_then(|dir| Ok((enforce(&mut bus, &dir, slices)?, leaf::move_to_sibling(&dir)?)))
        .map(|(slices, dir)| (dir, slices));
    // Inside the scope, the end of the guard would kill us before we can say what is wrong.
    let is_inside = leaf::own_cgroup().is_ok_and(|dir| dir.iter().any(|part| part == scope.as_str()));
    if moved.is_err() && !is_inside {
        // Without the scope the guard is useless. It would end with us anyway.
        bus.renew(limits::BUS);
        let _ = bus.stop_unit(&guard);
    }
    moved
}

/// Starts the scope, and the slices that do not exist yet.
fn start_scope(
    bus: &mut Bus,
    scope: &str,
    properties: &[(&str, Property)],
    slices: &[PlannedSlice],
) -> Result<(), BusError> {
    for _ in 1..TRIES {
        let mut missing = Vec::new();
        for slice in slices {
            missing.extend(slice.missing(bus)?);
        }
        match bus.start_transient_unit(scope, properties, &missing) {
            // Another keeper made the slice meanwhile.
            Err(error) if error.is_existing_unit() && !missing.is_empty() => {}
            started => return started.map(drop),
        }
    }
    bus.start_transient_unit(scope, properties, &[]).map(drop)
}

/// Makes sure that the slices around a scope have their limits: they may have existed with others, or be made without.
fn enforce(bus: &mut Bus, scope: &Path, slices: &[PlannedSlice]) -> Result<Vec<BudgetSlice>, String> {
    let around = scope.ancestors().skip(1);
    slices.iter().rev().zip(around).map(|(slice, dir)| slice.enforce(bus, dir)).collect()
}

fn guard_properties(program: &Path, scope: &Path, watched: Watched) -> Vec<(&'static str, Property)> {
    let Watched { supervisor, keeper } = watched;
    let argv = [
        GUARD.to_owned(),
        scope.to_string_lossy().into_owned(),
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

fn scope_properties(guard: &str, keeper: Identity, slices: &[PlannedSlice]) -> Vec<(&'static str, Property)> {
    // Without a slice, the manager's own choice.
    let slice = slices.last().map(|slice| ("Slice", Property::Str(slice.name.clone())));
    let mut properties = vec![
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
    ];
    properties.extend(slice);
    properties
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
    let Some((scope, own)) = arguments.first().zip(leaf::own_cgroup().ok()) else { return };
    if let Some(leaf) = find_scope(&own, Path::new(scope)).and_then(|dir| leaf::Leaf::open(&dir).ok()) {
        let _ = leaf.kill();
    }
}

/// Finds a scope by its path below a slice that also holds us. The manager decides in which slice we are.
fn find_scope(own: &Path, scope: &Path) -> Option<PathBuf> {
    own.ancestors().skip(1).map(|dir| dir.join(scope)).find(|dir| dir.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_finds_its_scope_in_any_slice() {
        let dir = testkit::Scratch::new();
        let own = dir.join("user/app.slice/guard.service");
        for scope in ["leash-1.scope", "leash.slice/leash-a.slice/leash-2.scope"] {
            let place = dir.join(if scope == "leash-1.scope" { "user/app.slice" } else { "user" }).join(scope);
            assert_eq!(find_scope(&own, Path::new(scope)), None);
            std::fs::create_dir_all(&place).expect("ours");
            assert_eq!(find_scope(&own, Path::new(scope)), Some(place));
        }
    }
}
