//! `leash watch`.

mod pressure;

use std::os::fd::AsFd as _;
use std::time::Duration;

use leash_model::clock::{Moment, timeout_until};
use leash_model::identity::Identity;
use leash_model::pressure::MemoryState;
use leash_orphans::act::ReapSettings;
use leash_orphans::act::watch::{self, WatchMemory};
use leash_orphans::scan::{UnrelatedProcesses, resources};
use leash_orphans::{Evidence, Finding, Verdict};
use leash_tree::platform::identity::HeldProcess;
use rustix::event::{PollFd, PollFlags};

use pressure::PressureWatch;

use super::survey::Survey;
use super::{reap, unit};
use crate::args::Watch;
use crate::exit_code;
use crate::output::printer::Printer;
use crate::output::{evidence, message};

/// The most hosts whose exit is watched; each costs a descriptor. The next scan notices the exit of further ones.
const HOSTS: usize = 256;

/// The time until the next scan after a host has exited.
const SOON: Duration = Duration::from_secs(1);

pub(crate) fn watch(args: &Watch) -> u8 {
    // Its work is to end processes, so every end is printed.
    let printer = Printer::new(true);
    let pressure = match args.pressure.map(PressureWatch::new).transpose() {
        Ok(pressure) => pressure,
        Err(error) => {
            let hint = "the kernel needs CONFIG_PSI, and on some systems the parameter psi=1";
            printer.error_text(format!("cannot read the memory pressure: {error}"), Some(hint));
            return exit_code::LEASH_FAILED;
        }
    };
    if args.install {
        return unit::install(printer, args);
    }
    if args.uninstall {
        return unit::uninstall(printer);
    }
    let mut survey = match Survey::open(printer, &[]) {
        Ok(survey) => survey,
        Err(code) => return code,
    };
    let mut watcher = Watcher {
        printer,
        memory: WatchMemory::default(),
        unrelated: UnrelatedProcesses::default(),
        settings: watch::WatchSettings {
            settle: args.settle,
            min_age: args.min_age,
            ..watch::WatchSettings::default()
        },
        pressure,
        ended: 0,
        nothing_left: true,
        args,
    };
    let findings = watcher.look(&mut survey);
    if args.once {
        // Scan again when waiting servers can be proved; usually there are none.
        if findings.iter().any(|finding| finding.ends_gone) {
            reap::pause_until(Moment::now() + args.settle);
            watcher.look(&mut survey);
        }
        return if watcher.nothing_left { exit_code::OK } else { exit_code::NOT_ALL };
    }
    let mut hosts = holders(&findings);
    drop(findings);
    loop {
        let next = watcher.memory.next_scan(&watcher.settings, args.interval, Moment::now());
        let woken = wait(&survey, &hosts, next, watcher.pressure.as_mut());
        // Clients' configurations change, so read them again; if that fails, the next scan tries again.
        if let Ok(fresh) = Survey::open(printer, &[]) {
            survey = fresh;
        }
        let findings = match woken {
            Woken::ToScan if !watcher.memory_is_low() => watcher.look(&mut survey),
            Woken::ToScan | Woken::MemoryIsLow => watcher.relieve(&mut survey),
        };
        hosts = holders(&findings);
    }
}

/// The reason for the end of a wait.
enum Woken {
    /// A host has exited, or the next scan is due.
    ToScan,
    /// Memory is low or short.
    MemoryIsLow,
}

struct Watcher<'a> {
    printer: Printer,
    memory: WatchMemory,
    unrelated: UnrelatedProcesses,
    settings: watch::WatchSettings,
    pressure: Option<PressureWatch>,
    /// The number of servers that were ended.
    ended: usize,
    nothing_left: bool,
    args: &'a Watch,
}

impl Watcher<'_> {
    fn memory_is_low(&self) -> bool {
        self.pressure.as_ref().is_some_and(|pressure| pressure.state > MemoryState::Enough)
    }

    /// Ends what is needed least: all proved orphans. If there are none and memory is short, one idle server that may be
    /// stopped.
    fn relieve(&mut self, survey: &mut Survey) -> Vec<Finding> {
        let ended = self.ended;
        let mut findings = Vec::new();
        for _ in 0..self.settings.scans {
            findings = self.look(survey);
        }
        if self.ended == ended
            && let Some(pressure) = &mut self.pressure
            && !(pressure.state == MemoryState::Short && pressure.stop_one(survey, self.printer))
        {
            pressure.rest();
        }
        findings
    }

    /// Scans once, and ends the servers that are due.
    fn look(&mut self, survey: &mut Survey) -> Vec<Finding> {
        let now = Moment::now();
        self.settings.memory_is_low = self.memory_is_low();
        let policy = self.memory.policy(&self.settings, now);
        let findings = survey.look_again(&policy, &mut self.unrelated);
        let due = self.memory.note(&findings, &self.settings, now);
        if let Some(pressure) = &mut self.pressure {
            pressure.look(survey);
        }
        if due.is_empty() {
            return findings;
        }
        let is_due = |finding: &&Finding| finding.leashed.is_none() && due.contains(&finding.root);
        let weigh = |finding: &Finding| resources::memory(&survey.proc, &finding.tree).memory;
        let mut due: Vec<(Finding, u64)> =
            findings.iter().filter(is_due).map(|finding| (finding.clone(), weigh(finding))).collect();
        // Measuring all servers reads many files, so it is done only if a budget is set.
        let in_use = self.args.max_memory.map_or(0, |_| findings.iter().map(weigh).sum());
        watch::order(&mut due, in_use, self.args.max_memory);
        let settings = ReapSettings { verdicts: vec![Verdict::OrphanProved], grace: self.args.grace };
        for (finding, _) in due {
            match reap::end(self.printer, survey, finding.root, &settings, &policy) {
                Ok(receipt) => {
                    self.ended += 1;
                    self.nothing_left &= receipt.nothing_left();
                    self.printer.progress("Ended", message::receipt_line(&receipt));
                    message::left_lines(&receipt).iter().for_each(|line| self.printer.warning(line));
                }
                Err(spared) => self.printer.progress("Spared", format!("{}: {spared}", evidence::subject(&finding))),
            }
        }
        findings
    }
}

/// The holders of living servers: when one of them exits, its servers may be orphans.
fn holders(findings: &[Finding]) -> Vec<Identity> {
    let mut hosts: Vec<Identity> = Vec::new();
    for fact in findings.iter().flat_map(|finding| &finding.evidence) {
        if let Evidence::HeldBy { by, .. } = fact
            && !hosts.contains(by)
            && hosts.len() < HOSTS
        {
            hosts.push(*by);
        }
    }
    hosts
}

/// Waits until a host has exited, until the next scan, or until memory is low.
fn wait(survey: &Survey, hosts: &[Identity], next: Moment, mut pressure: Option<&mut PressureWatch>) -> Woken {
    let held: Vec<HeldProcess> = hosts.iter().filter_map(|id| HeldProcess::open_same(&survey.proc, *id)).collect();
    // A host has exited since the scan, or its pidfd can't be opened. The latter may stay so, and scans must not
    // follow each other without a pause.
    let next = if held.len() < hosts.len() { next.min(Moment::now() + SOON) } else { next };
    watch::release_memory();
    loop {
        let mut fds: Vec<PollFd<'_>> =
            held.iter().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
        let wake = pressure.as_ref().map_or(next, |pressure| pressure.next.min(next));
        match rustix::event::poll(&mut fds, Some(&timeout_until(wake, Moment::now()))) {
            Ok(0) if Moment::now() >= next => return Woken::ToScan,
            Ok(0) | Err(_) => {}
            Ok(_) => return Woken::ToScan,
        }
        if pressure.as_mut().is_some_and(|pressure| pressure.must_act(Moment::now())) {
            return Woken::MemoryIsLow;
        }
    }
}
