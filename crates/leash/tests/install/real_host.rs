//! A real host (the TypeScript SDK) with a real server (`server-everything`) behind an installed leash. Each process
//! between the host and the server is killed once; nothing may be left.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use testkit::deps::Deps;
use testkit::lines::Lines;
use testkit::process::{self, Handle, Process};
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

/// A running host whose server has answered.
struct RealHost {
    child: Child,
    handle: Handle,
    _says: Lines<ChildStdout>,
}

impl RealHost {
    /// Starts the host with the server behind `leash`: the words in front of `run`.
    fn start(scene: &mut Scene, deps: &Deps, leash: &[OsString]) -> RealHost {
        // Each process passes stderr on, so the whole tree holds the census in its place.
        let census = fs::OpenOptions::new().write(true).open(scene.census().path()).expect("the census can be joined");
        let mut command = scene.command("node");
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_hosts/ts1.mjs"))
            .arg("wait")
            .args(leash)
            .args(["run", "--grace", "500ms", "--", "node"])
            .arg(deps.everything())
            // The host finds its SDK here.
            .current_dir(deps.npm())
            .stdout(Stdio::piped())
            .stderr(census);
        let mut child = command.spawn().expect("cannot start the host");
        let handle = Handle::open(pid_of(&child), |_| true).expect("it was not waited for");
        let mut says = Lines::new(child.stdout.take().expect("stdout is a pipe"));
        let ready = says.wait(LIMIT, |line| line.starts_with("READY ").then_some(()));
        assert!(ready.is_some(), "the host does not reach its server: {:?}", scene.census().wait_ready(Duration::ZERO));
        RealHost { child, handle, _says: says }
    }

    /// The processes from the host down to the keeper.
    fn chain(&self) -> Vec<Process> {
        let mut chain = vec![Process::read(self.handle.pid()).expect("it was not waited for")];
        loop {
            let children = process::children(chain[chain.len() - 1].pid);
            let [child] = &children[..] else { panic!("not one child but {children:?} below {chain:?}") };
            if child.to_string().contains("server-everything/dist/index.js") && !child.to_string().contains(" run ") {
                return chain;
            }
            chain.push(child.clone());
        }
    }
}

impl Drop for RealHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).expect("a child has a number")
}

/// Kills each process from the host to the keeper once. `names` are their programs, in this order; a launcher that stays in
/// front of leash would be one of them.
pub(crate) fn check_each_killed(scene: &mut Scene, deps: &Deps, leash: &[OsString], names: &[&str]) {
    for victim in 0..names.len() {
        check_killed(scene, deps, leash, names, victim);
    }
}

/// Kills one process of these. Only the host may be left, if it is not the one.
pub(crate) fn check_killed(scene: &mut Scene, deps: &Deps, leash: &[OsString], names: &[&str], victim: usize) {
    let host = RealHost::start(scene, deps, leash);
    let chain = host.chain();
    let found: Vec<String> = chain.iter().map(program_of).collect();
    assert_eq!(found, names, "{chain:#?}");
    let process = &chain[victim];
    let target = Handle::open(process.pid, |now| now.start == process.start).expect("it lives");
    target.signal(Signal::KILL).expect("it can be killed");
    let host_pid = host.handle.pid();
    let others = |scene: &mut Scene| {
        let holders = scene.census().holders().into_iter();
        holders.filter(|process| process.pid != host_pid).map(|process| process.to_string()).collect::<Vec<_>>()
    };
    let gone = wait::within(LIMIT, || others(scene).is_empty().then_some(()));
    assert!(gone.is_some(), "after the kill of {process}: {:#?}", others(scene));
    // The tree may be gone a moment before a killed host: the kernel closes its pipes first.
    if victim == 0 {
        assert!(host.handle.wait_gone(LIMIT), "the host was killed and does not exit");
    } else {
        assert!(host.handle.is_alive(), "the host has exited after the kill of {process}");
    }
    drop(host);
    if let Err(survivors) = scene.wait_gone(&[]) {
        panic!("after the kill of {process}: {survivors}");
    }
    scene.census().forget();
}

/// The name of the executable of a process. The keeper has the same as leash.
fn program_of(process: &Process) -> String {
    let exe = fs::read_link(format!("/proc/{}/exe", process.pid.as_raw_nonzero())).unwrap_or_default();
    exe.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
