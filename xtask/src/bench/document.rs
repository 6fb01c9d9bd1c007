//! One run as one document: the machine and date, the targets, and every table.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::order::Effort;
use super::report::{Report, in_a_cell};
use crate::step::{Failure, Outcome, Step, Workspace};

/// The circumstances of the measurements.
pub(super) struct Setting {
    command: String,
    effort: Effort,
    date: String,
    revision: String,
    compiler: String,
    kernel: String,
    processor: String,
    processors: usize,
    is_root: bool,
    /// The load before anything was started.
    load: String,
    /// The names of other gateways, and their installed versions.
    peers: Vec<(&'static str, String)>,
}

impl Setting {
    pub(super) fn look(
        workspace: &Workspace,
        effort: Effort,
        command: String,
        peers: Vec<(&'static str, String)>,
    ) -> Self {
        let ask = |step: Step| step.answer().unwrap_or_else(|| "unknown".to_owned());
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            command,
            effort,
            date: ask(Step::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])),
            revision: ask(Step::new("git")
                .args(["describe", "--always", "--dirty", "--abbrev=12"])
                .dir(&workspace.root)),
            compiler: ask(Step::new("rustc").args(["--version"]).dir(&workspace.root)),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            processor: model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned()),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            is_root: rustix::process::geteuid().is_root(),
            load: fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
            peers,
        }
    }

    fn markdown(&self, took: Duration) -> String {
        let recent = self.load.split(' ').next().unwrap_or_default();
        let user = if self.is_root { "root" } else { "a user" };
        let effort = match self.effort {
            Effort::Quick => {
                "Few rounds, to see that everything works: repeat it without `--quick` before you believe it. "
            }
            Effort::Full => "",
        };
        let mut text = format!(
            "{}, `{}`, leash at {} ({}, release) as {user} on Linux {}, {} x {}, load before {recent}; it took {} min {:02} s. \
             {effort}Medians with 95 % bootstrap intervals, of interleaved rounds: what disturbs one path disturbs all. \
             The ratios are what carries over to other machines, but for those to the prototype, whose milliseconds are of \
             another day; the milliseconds are of this machine.\n",
            self.date,
            self.command,
            self.revision,
            self.compiler,
            self.kernel,
            self.processors,
            self.processor,
            took.as_secs() / 60,
            took.as_secs() % 60,
        );
        if !self.peers.is_empty() {
            let peers: Vec<String> = self.peers.iter().map(|(name, found)| format!("{name} ({found})")).collect();
            write!(text, "\nPeers: {}.\n", peers.join(", ")).expect("a string can be written to");
        }
        text
    }

    fn json(&self) -> Value {
        let peers = self.peers.iter().map(|(name, found)| json!({"name": name, "installed": found}));
        json!({
            "command": self.command,
            "effort": self.effort.pick("quick", "full"),
            "date": self.date,
            "revision": self.revision,
            "compiler": self.compiler,
            "machine": {
                "kernel": self.kernel,
                "processor": self.processor,
                "processors": self.processors,
                "root": self.is_root,
                "load_before": self.load,
            },
            "peers": peers.collect::<Vec<_>>(),
        })
    }
}

/// The result of one bench.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) found: Outcome<Report>,
    pub(super) took: Duration,
}

/// The whole run so far.
pub(super) struct Document {
    pub(super) setting: Setting,
    pub(super) sections: Vec<Section>,
}

impl Document {
    /// The whole document, as a page of docs/reference or in `target/bench`. Seen from both, the plots are in
    /// `../bench`.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("# Numbers\n\n{}", self.setting.markdown(self.took()));
        let targets = self.targets();
        if !targets.is_empty() {
            write!(text, "\n## Targets\n\n{targets}").expect("a string can be written to");
        }
        for Section { name, found, .. } in &self.sections {
            let section = match found {
                Ok(report) => {
                    let plot = report.svg().map(|_| format!("\n![{}](../bench/{name}.svg)\n", report.title()));
                    format!("\n## {}\n\n`{name}`: {}{}", report.title(), report.markdown(), plot.unwrap_or_default())
                }
                Err(why) => format!("\n## {name}\n\nNot measured: {why}\n"),
            };
            text.push_str(&section);
        }
        text
    }

    /// The short form, for docs/explain/proof.md.
    pub(super) fn summary(&self) -> String {
        let mut text = format!("## Benchmarks\n\n{}\n{}", self.setting.markdown(self.took()), self.targets());
        text.push_str("\nEvery table: [numbers](../reference/numbers.md).\n");
        for Section { name, found, .. } in &self.sections {
            let line = match found {
                Ok(report) if report.svg().is_some() => format!("\n![{}](../bench/{name}.svg)\n", report.title()),
                Ok(_) => continue,
                Err(why) => format!("\n`{name}` was not measured: {why}\n"),
            };
            text.push_str(&line);
        }
        text
    }

    fn targets(&self) -> String {
        let claims = self.sections.iter().filter_map(|section| section.found.as_ref().ok()).flat_map(Report::claims);
        let rows: String = claims.map(|claim| claim.row()).collect();
        match rows.is_empty() {
            true => rows,
            false => format!("| what | leash | target | met |\n| --- | --- | --- | --- |\n{rows}"),
        }
    }

    pub(super) fn json(&self) -> Value {
        let section = |section: &Section| {
            let mut value = match &section.found {
                Ok(report) => report.json(),
                Err(why) => json!({"failed": in_a_cell(&why.to_string())}),
            };
            value["bench"] = section.name.into();
            value["seconds"] = section.took.as_secs_f64().into();
            value
        };
        let mut whole = self.setting.json();
        whole["format"] = 2.into();
        whole["seconds"] = self.took().as_secs_f64().into();
        whole["benches"] = self.sections.iter().map(section).collect();
        whole
    }

    /// Writes everything into `dir`, and the plots into `plots` as well.
    pub(super) fn save(&self, dir: &Path, plots: Option<&Path>) -> Outcome {
        let texts = [
            ("report.md", self.markdown()),
            ("summary.md", self.summary()),
            ("report.json", format!("{:#}\n", self.json())),
        ];
        texts.iter().try_for_each(|(name, text)| write(dir, name, text))?;
        for Section { name, found, .. } in &self.sections {
            let plot = found.as_ref().ok().and_then(Report::svg);
            if let Some(plot) = plot {
                [Some(dir), plots]
                    .into_iter()
                    .flatten()
                    .try_for_each(|dir| write(dir, &format!("{name}.svg"), &plot))?;
            }
        }
        Ok(())
    }

    fn took(&self) -> Duration {
        self.sections.iter().map(|section| section.took).sum()
    }
}

fn write(dir: &Path, name: &str, text: &str) -> Outcome {
    fs::create_dir_all(dir).map_err(Failure::at(dir))?;
    let file = dir.join(name);
    fs::write(&file, text).map_err(Failure::at(&file))
}

#[cfg(test)]
mod tests {
    use super::super::plot::{Goal, Panel, Tone};
    use super::super::report::Claim;
    use super::super::stats::Estimate;
    use super::*;

    fn document() -> Document {
        let mut report = Report::new("Echo", "On one processor.", ["path", "ratio"]);
        report.row(["leash".into(), "1.02".into()]);
        let found = Estimate { value: 1.02, low: 1.0, high: 1.04 };
        report.claim(Claim { what: "echo".into(), unit: "", found, goal: Goal::AtMost(1.1) });
        let mut panel = Panel::ratios("to bare");
        panel.bar("leash", Tone::Leash, found);
        report.panel(panel);
        let setting = Setting {
            command: "cargo xtask bench".into(),
            effort: Effort::Full,
            date: "2026-11-16".into(),
            revision: "abc".into(),
            compiler: "rustc 1".into(),
            kernel: "6.18".into(),
            processor: "fast".into(),
            processors: 2,
            is_root: true,
            load: "0.10 0 0".into(),
            peers: vec![("npm x", "1.0.0".into())],
        };
        let took = Duration::from_secs(65);
        let failed = Section { name: "death", found: Err(Failure::new("no cgroup")), took: Duration::ZERO };
        Document { setting, sections: vec![Section { name: "echo", found: Ok(report), took }, failed] }
    }

    #[test]
    fn page_has_setting_targets_and_every_bench() {
        let page = document().markdown();
        for part in [
            "# Numbers\n\n2026-11-16, `cargo xtask bench`, leash at abc",
            "it took 1 min 05 s",
            "Peers: npm x (1.0.0).",
            "| echo | 1.02 [1, 1.04] | at most 1.1 | yes |",
            "## Echo\n\n`echo`: On one processor.\n\n| path | ratio |",
            "![Echo](../bench/echo.svg)",
            "## death\n\nNot measured: no cgroup",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let summary = document().summary();
        assert!(summary.contains("![Echo](../bench/echo.svg)") && summary.contains("| echo | 1.02"), "{summary}");
    }

    #[test]
    fn files_are_where_the_page_links_to() {
        let dir = std::env::temp_dir().join(testkit::unique("leash-bench"));
        let (main, docs) = (dir.join("bench"), dir.join("docs"));
        document().save(&main, Some(&docs)).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(fs::read(main.join("echo.svg")).ok(), fs::read(docs.join("echo.svg")).ok());
        assert!(main.join("../bench/echo.svg").exists() && main.join("summary.md").exists());
        let text = fs::read_to_string(main.join("report.json")).expect("it was just written");
        let saved: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!((&saved["benches"][0]["rows"][0][0], &saved["effort"]), (&json!("leash"), &json!("full")));
        assert_eq!(saved["benches"][1]["failed"], "no cgroup");
        fs::remove_dir_all(&dir).expect("the directory is ours");
    }
}
