//! `leash watch --pressure`: looks at the memory of the machine, and stops idle servers that may be stopped.

use leash_model::alive::{MemberKind, SessionMember};
use leash_model::clock::Moment;
use leash_model::limits;
use leash_model::owner::Owner;
use leash_model::pressure::{MemoryState, PressureGauge, StallPercent, StopCandidate, next_to_stop};
use leash_model::record::{IdleStop, Phase};
use leash_orphans::act::idle::IdleMemory;
use leash_tree::platform::activity::TreeActivity;
use leash_tree::platform::pressure;
use leash_tree::session::{Ending, alive};

use super::super::survey::Survey;
use crate::output::message;
use crate::output::printer::Printer;
use crate::places;

/// The state of `--pressure`.
pub(super) struct PressureWatch {
    gauge: PressureGauge,
    /// The state at the last reading.
    pub(super) state: MemoryState,
    idle: IdleMemory,
    /// The next reading of the pressure.
    pub(super) next: Moment,
    /// No search before this moment.
    rests_until: Moment,
}

impl PressureWatch {
    /// Fails if the kernel does not measure the pressure.
    pub(super) fn new(threshold: StallPercent) -> std::io::Result<PressureWatch> {
        pressure::read()?;
        let now = Moment::now();
        Ok(PressureWatch {
            gauge: PressureGauge::new(threshold),
            state: MemoryState::Enough,
            idle: IdleMemory::default(),
            next: now,
            rests_until: now,
        })
    }

    /// Reads the pressure if a reading is due. Returns true if memory is low, and a search may find something to end.
    pub(super) fn must_act(&mut self, now: Moment) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + limits::PRESSURE_LOOK;
        // A reading that fails once says nothing; the next one may work.
        self.state = pressure::read().map_or(MemoryState::Enough, |reading| self.gauge.state(reading, now));
        self.state > MemoryState::Enough && now >= self.rests_until
    }

    /// Notes that a search found nothing to end.
    pub(super) fn rest(&mut self) {
        self.rests_until = Moment::now() + limits::PRESSURE_PAUSE;
    }

    /// Looks at the work of all servers that may be stopped, and returns them.
    pub(super) fn look(&mut self, survey: &Survey) -> Vec<(SessionMember, IdleStop)> {
        let mut stoppable: Vec<(SessionMember, IdleStop)> =
            survey.trees().filter_map(|member| idle_stop(&member).map(|stop| (member, stop))).collect();
        for (member, _) in &mut stoppable {
            alive::find_processes(std::slice::from_mut(member), &survey.proc);
        }
        let work = |(member, _): &(SessionMember, IdleStop)| {
            (member.run.clone(), TreeActivity::of(&survey.proc, member.processes().unwrap_or_default()))
        };
        self.idle.note(stoppable.iter().map(work).collect(), Moment::now());
        stoppable
    }

    /// Stops the server that is needed least. Returns false if there is none.
    pub(super) fn stop_one(&mut self, survey: &Survey, printer: Printer) -> bool {
        let (stoppable, now) = (self.look(survey), Moment::now());
        let candidate = |(member, stop): &(SessionMember, IdleStop)| StopCandidate {
            key: member.run.clone(),
            after: stop.after(),
            idle: self.idle.idle(&member.run, now),
            memory: alive::footprint(member, &survey.proc),
        };
        let Some(run) = next_to_stop(stoppable.iter().map(candidate).collect()) else { return false };
        let places = places::places();
        let mut ending = Ending::under_pressure(&places, &survey.proc, run);
        if let Err(error) = ending.round(&|_| false) {
            printer.warning(format!("cannot read the ledger: {error}"));
            return false;
        }
        let report = ending.report();
        for receipt in &report.receipts {
            printer.progress("Ended", message::receipt_line(receipt));
            message::left_lines(receipt).iter().for_each(|line| printer.warning(line));
        }
        for unfinished in &report.unfinished {
            printer.progress("Spared", format!("{}: {}", unfinished.session, unfinished.why));
        }
        report.warnings.iter().for_each(|warning| printer.warning(warning));
        !report.receipts.is_empty()
    }
}

/// The permission to stop a tree. `None` also for a tree that a program holds, such as a gateway: only that program knows
/// whether a call is in flight, and it looks at the pressure itself.
fn idle_stop(member: &SessionMember) -> Option<IdleStop> {
    let MemberKind::Tree { record, .. } = &member.kind else { return None };
    let is_running = record.phase == Phase::Running && !member.abandoned && !member.owners.contains(&Owner::Handle);
    record.idle_stop.filter(|_| is_running)
}
