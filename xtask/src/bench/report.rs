//! The result of a bench: a table and a picture for people, and all samples for programs.

use serde_json::{Value, json};

use super::plot::{Goal, Panel, digits, svg};
use super::stats::{Estimate, Rounds};

/// A table with its title, and the samples behind it.
pub(crate) struct Report {
    title: String,
    about: &'static str,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    panels: Vec<Panel>,
    claims: Vec<Claim>,
    samples: Vec<Value>,
}

/// A number with a target.
pub(crate) struct Claim {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) found: Estimate,
    pub(crate) goal: Goal,
}

impl Report {
    /// `about` explains the measurement, in sentences.
    pub(crate) fn new<const N: usize>(title: impl Into<String>, about: &'static str, head: [&str; N]) -> Self {
        Self {
            title: title.into(),
            about,
            head: head.map(str::to_owned).into(),
            rows: Vec::new(),
            panels: Vec::new(),
            claims: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Adds a line to the table.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.head.len(), "a row has as many cells as the head");
        self.rows.push(cells.into());
    }

    /// Adds a row for something that could not be measured.
    pub(crate) fn missing(&mut self, name: &str, why: &str) {
        let mut cells = vec![String::new(); self.head.len()];
        cells[0] = name.to_owned();
        cells[1] = format!("not measured: {}", in_a_cell(why));
        self.rows.push(cells);
    }

    /// Adds bars to the picture. A panel without any is left out.
    pub(crate) fn panel(&mut self, panel: Panel) {
        if !panel.is_empty() {
            self.panels.push(panel);
        }
    }

    /// Adds a number with a target.
    pub(crate) fn claim(&mut self, claim: Claim) {
        self.claims.push(claim);
    }

    /// Keeps the samples of one arm for the file.
    pub(crate) fn keep(&mut self, arm: &str, unit: &str, rounds: &Rounds, index: usize) {
        let Estimate { value, low, high } = rounds.median(index);
        self.samples.push(json!({
            "arm": arm,
            "unit": unit,
            "median": value,
            "interval95": [low, high],
            "max": rounds.max(index),
            "samples": rounds.samples(index),
        }));
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The explanation of the measurement, and the table.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.head.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}\n\n{}{}{rows}", self.about, line(&self.head), line(&rule))
    }

    /// The picture, if there is one.
    pub(crate) fn svg(&self) -> Option<String> {
        (!self.panels.is_empty()).then(|| svg(&self.title, &self.panels))
    }

    pub(crate) fn json(&self) -> Value {
        let claim = |claim: &Claim| {
            json!({
                "what": claim.what,
                "unit": claim.unit,
                "value": claim.found.value,
                "interval95": [claim.found.low, claim.found.high],
                "target": claim.goal.words(),
                "met": claim.verdict(),
            })
        };
        json!({
            "title": self.title,
            "head": self.head,
            "rows": self.rows,
            "claims": self.claims.iter().map(claim).collect::<Vec<_>>(),
            "arms": self.samples,
        })
    }
}

impl Claim {
    /// A line of the table of targets.
    pub(crate) fn row(&self) -> String {
        let Estimate { value, low, high } = self.found;
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let found = match low == high {
            // One sample, or only equal ones.
            true => format!("{}{unit}", digits(value)),
            false => format!("{}{unit} [{}, {}]", digits(value), digits(low), digits(high)),
        };
        format!("| {} | {found} | {} | {} |\n", self.what, self.goal.words(), self.verdict())
    }

    /// The verdict on the target. An interval that contains the target does not decide it.
    fn verdict(&self) -> &'static str {
        let Estimate { value, low, high } = self.found;
        // True if the number meets the target.
        let below = |number: f64| match self.goal {
            Goal::AtMost(most) => number <= most,
            Goal::AtLeast(least) => number >= least,
        };
        match (below(value), below(low) && below(high)) {
            (true, true) => "yes",
            (true, false) => "yes, but its interval reaches beyond",
            (false, _) if below(low) || below(high) => "no, but its interval reaches it",
            (false, _) => "no",
        }
    }
}

/// A line break or a bar would end a cell.
pub(crate) fn in_a_cell(text: &str) -> String {
    text.replace(['\n', '|'], " ")
}

#[cfg(test)]
mod tests {
    use super::super::plot::Tone;
    use super::*;

    #[test]
    fn a_table_its_picture_and_its_samples() {
        let mut report = Report::new("Echo", "All on one processor.", ["arm", "µs"]);
        report.row(["bare".into(), "1.5".into()]);
        report.missing("a peer", "no\nnetwork");
        let rows = "| bare | 1.5 |\n| a peer | not measured: no network |\n";
        assert_eq!(report.markdown(), format!("All on one processor.\n\n| arm | µs |\n| --- | --- |\n{rows}"));

        let rounds = Rounds::take(3, 1, |_| Ok::<_, ()>(1.5)).expect("no sample failed");
        report.keep("bare", "µs", &rounds, 0);
        assert_eq!(report.json()["arms"][0]["samples"], json!([1.5, 1.5, 1.5]));
        assert_eq!(report.json()["rows"][0][0], "bare");

        report.panel(Panel::new("nothing"));
        assert!(report.svg().is_none());
        let mut panel = Panel::new("µs");
        panel.bar("bare", Tone::Floor, rounds.median(0));
        report.panel(panel);
        assert!(report.svg().is_some_and(|text| text.contains("bare")));
    }

    #[test]
    fn target_is_met_missed_or_undecided() {
        let check = |goal: Goal, [low, value, high]: [f64; 3], expected: &str| {
            let claim = Claim { what: "x".into(), unit: "ms", found: Estimate { value, low, high }, goal };
            assert_eq!(claim.verdict(), expected, "{goal:?} {value}");
        };
        check(Goal::AtMost(1.3), [1.1, 1.2, 1.3], "yes");
        check(Goal::AtMost(1.3), [1.1, 1.2, 1.4], "yes, but its interval reaches beyond");
        check(Goal::AtMost(1.3), [1.2, 1.4, 1.5], "no, but its interval reaches it");
        check(Goal::AtMost(1.3), [1.35, 1.4, 1.5], "no");
        check(Goal::AtLeast(0.8), [0.8, 0.9, 1.0], "yes");
        check(Goal::AtLeast(0.8), [0.7, 0.9, 1.0], "yes, but its interval reaches beyond");
        check(Goal::AtLeast(0.8), [0.6, 0.7, 0.75], "no");
    }
}
