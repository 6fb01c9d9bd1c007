//! What a bench found: a table for people, and everything for programs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::stats::{Estimate, Rounds};
use crate::step::{Failure, Outcome};

/// A table with its title, and the samples behind it.
pub(crate) struct Report {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    samples: Vec<Value>,
}

impl Report {
    pub(crate) fn new<const N: usize>(title: impl Into<String>, head: [&str; N]) -> Self {
        Self { title: title.into(), head: head.map(str::to_owned).into(), rows: Vec::new(), samples: Vec::new() }
    }

    /// Adds a line to the table.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.head.len(), "a row has as many cells as the head");
        self.rows.push(cells.into());
    }

    /// Adds a line about what could not be measured.
    pub(crate) fn missing(&mut self, name: &str, why: &str) {
        let mut cells = vec![String::new(); self.head.len()];
        cells[0] = name.to_owned();
        // A line break or a bar would end the cell.
        cells[1] = format!("not measured: {}", why.replace(['\n', '|'], " "));
        self.rows.push(cells);
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

    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.head.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("\n### {}\n\n{}{}{rows}", self.title, line(&self.head), line(&rule))
    }

    /// Writes `NAME.json` into `dir`.
    pub(crate) fn save(&self, dir: &Path, name: &str) -> Outcome<PathBuf> {
        let file = dir.join(name).with_extension("json");
        let whole = json!({
            "format": 1,
            "bench": name,
            "title": self.title,
            "machine": machine(),
            "head": self.head,
            "rows": self.rows,
            "arms": self.samples,
        });
        fs::create_dir_all(dir).map_err(Failure::at(dir))?;
        fs::write(&file, format!("{whole:#}\n")).map_err(Failure::at(&file))?;
        Ok(file)
    }
}

/// What the numbers depend on besides leash.
fn machine() -> Value {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    json!({
        "kernel": kernel,
        "cpus": cpus,
        "load_after": load.trim(),
        "root": rustix::process::geteuid().is_root(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_its_file() {
        let mut report = Report::new("Echo", ["arm", "µs"]);
        report.row(["bare".into(), "1.5".into()]);
        report.missing("a peer", "no\nnetwork");
        let rows = "| bare | 1.5 |\n| a peer | not measured: no network |\n";
        assert_eq!(report.markdown(), format!("\n### Echo\n\n| arm | µs |\n| --- | --- |\n{rows}"));

        let rounds = Rounds::take(3, 1, |_| Ok::<_, ()>(1.5)).expect("no sample failed");
        report.keep("bare", "µs", &rounds, 0);
        let dir = std::env::temp_dir().join(testkit::unique("leash-bench"));
        let file = report.save(&dir, "echo").expect("the directory is ours");
        let text = fs::read_to_string(&file).expect("it was just written");
        let saved: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(saved["arms"][0]["samples"], json!([1.5, 1.5, 1.5]));
        assert_eq!(saved["rows"][0][0], "bare");
        fs::remove_dir_all(&dir).expect("the directory is ours");
    }
}
