//! The instructions of a start and of a call, which do not depend on the load of the machine. Fails if one of them passes
//! its bound.

use testkit::instructions::WORKS;
use testkit::valgrind::Valgrind;

use super::super::plot::Goal;
use super::super::report::{Claim, Report};
use super::super::stats::{Estimate, Rounds};
use crate::step::{Failure, Outcome};

const ABOUT: &str = "instructions in user space, counted by callgrind. `start` is `leash run` of a server that exits at \
once. `stdio-call` and `http-call` are the gateway's for one call on a kept connection. The kernel's work is not \
counted. The processes that leash executes anew are not counted either. The bounds are in \
`crates/testkit/src/instructions.rs`.";

pub(super) fn measure() -> Outcome<Report> {
    let valgrind = Valgrind::find().map_err(Failure::new)?;
    let mut report = Report::new("Instructions", ABOUT, ["work", "instructions", "bound", "to the bound"]);
    let mut passed = Vec::new();
    for work in &WORKS {
        let count = work.measure(&valgrind).map_err(Failure::new)?;
        let (found, most) = (count.found as f64, work.most as f64);
        report.row([work.name.into(), count.found.to_string(), work.most.to_string(), format!("{:.3}", found / most)]);
        report.keep(work.name, "instructions", &Rounds::of(vec![vec![found]]), 0);
        let what = format!("instructions of `{}`", work.name);
        report.claim(Claim { what, unit: "", found: Estimate::single(found), goal: Goal::AtMost(most) });
        passed.extend(count.check().err());
    }
    match passed.is_empty() {
        true => Ok(report),
        false => Err(Failure::new(passed.join("\n"))),
    }
}
