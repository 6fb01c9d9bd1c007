//! Tests a host: leash acts as its servers, ends the host in every way, and reports the processes that are left.

pub mod journal;
mod judge;
pub mod stand_in;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use self::journal::{Journal, JournalEntry, StandInRole};
use self::judge::{ENDINGS, HostEnding, HostRun};
use self::stand_in::HttpStandIn;
use super::subject::{Subject, SubjectStart};
use super::{CheckError, CheckReport, Progress, StopSignals, stdio::shown};
use leash_model::clock::Moment;
use leash_tree::places::Places;

/// A host that has connected to some of its servers and sends nothing for this long will not connect to the others.
const QUIET: Duration = Duration::from_secs(3);

/// A host that has connected to all of its servers and sends nothing for this long is idle.
const REST: Duration = Duration::from_millis(700);

/// A host may take this many times the grace of a server: it closes its servers one after the other, and waits for
/// each.
const HOST_GRACES: u32 = 5;

/// The host to test, and the limits.
#[derive(Clone, Debug)]
pub struct HostCheck {
    /// The host's command line, with placeholders.
    pub command: Vec<OsString>,
    /// The leash binary. It runs [`stand_in::serve_stdio`] when it is started as `PROGRAM check --part PART --journal
    /// FILE`.
    pub program: PathBuf,
    /// A directory for this check only.
    pub dir: PathBuf,
    /// The time for a server to exit; a host may take five times that.
    pub grace: Duration,
    /// The time for a host to connect.
    pub ready: Duration,
    /// True if the host's stderr is ours.
    pub shares_stderr: bool,
    /// True if warnings are findings.
    pub strict: bool,
}

/// The plan for one run of a host.
struct HostPlan {
    ending: HostEnding,
    number: usize,
    /// True if the host is known to exit by itself soon.
    brief: bool,
}

/// The parameters of a host in one run.
struct HostSetup<'a> {
    check: &'a HostCheck,
    journal: &'a Journal,
    config: PathBuf,
    url: String,
}

impl HostCheck {
    /// Runs the test. `progress` receives the description of each step.
    pub fn run(&self, places: &Places, stop: &StopSignals, progress: Progress<'_>) -> Result<CheckReport, CheckError> {
        let mut runs: Vec<HostRun> = Vec::new();
        for (number, ending) in ENDINGS.into_iter().enumerate() {
            progress(&format!("ends the host by {}", ending.describe()));
            let plan = HostPlan { ending, number, brief: runs.first().is_some_and(|first| !first.stayed) };
            runs.push(self.run_once((places, stop), &plan)?);
            if journal::connected(&runs[0].journal).is_empty() {
                break;
            }
        }
        Ok(CheckReport::new("host", shown(&self.command), judge::rows(&runs), self.strict))
    }

    fn run_once(&self, (places, stop): (&Places, &StopSignals), plan: &HostPlan) -> Result<HostRun, CheckError> {
        let began = Moment::now();
        let ending = plan.ending;
        let journal = Journal::at(self.dir.join(format!("journal-{}.jsonl", plan.number)));
        let http = HttpStandIn::start(journal.clone())?;
        let setup = HostSetup { check: self, journal: &journal, config: self.dir.join("mcp.json"), url: http.url() };
        fs::write(&setup.config, setup.config_text())?;
        let time_limit = self.grace * HOST_GRACES;
        let (command, env) = (setup.command(ending), setup.env());
        let mut subject = Subject::start(&SubjectStart {
            command: &command,
            env: &env,
            places,
            time_limit: self.ready + time_limit + self.grace,
            shares_stderr: self.shares_stderr,
            terminal: ending == HostEnding::Terminal,
            stop,
        })?;
        self.wait_connected(&mut subject, (&journal, stop), plan.brief);
        let (stayed, before) = (subject.lives(), journal.read().len());
        let asked = Moment::now();
        match ending {
            HostEnding::Exit => subject.close_stdin(),
            HostEnding::Signal(signal) => subject.signal(signal),
            HostEnding::Kill => subject.signal(Signal::KILL),
            HostEnding::Terminal => subject.hang_up(),
        }
        let gone = subject.wait_leader(asked + time_limit);
        let left_after = gone.then(|| Moment::now().since(asked));
        // The servers must see the closed pipes of a host that has exited, so this process must not hold them.
        subject.close_pipes();
        let left = if gone { subject.wait_gone(Moment::now() + self.grace) } else { Vec::new() };
        let (journal, stderr_tail) = (journal.read(), subject.stderr_tail());
        // The test is over; the result of this end is not needed.
        let _ = subject.end();
        stop.check()?;
        let took = Moment::now().since(began);
        Ok(HostRun { ending, journal, before, stayed, left_after, time_limit, left, stderr_tail, took })
    }

    /// Waits until the host has connected to all servers, or to some and will not connect to the rest. A host that is
    /// known to exit by itself must be caught while it works.
    fn wait_connected(&self, subject: &mut Subject<'_>, (journal, stop): (&Journal, &StopSignals), brief: bool) {
        let deadline = Moment::now() + self.ready;
        let (mut seen, mut changed) = (0, Moment::now());
        while subject.lives() && Moment::now() < deadline && stop.asked().is_none() {
            let entries: Vec<JournalEntry> = journal.read();
            let connected = journal::connected(&entries);
            if entries.len() != seen {
                (seen, changed) = (entries.len(), Moment::now());
            }
            let all = StandInRole::SERVERS.iter().all(|part| connected.contains(part));
            let quiet = if all { REST } else { QUIET };
            if !connected.is_empty() && (brief || Moment::now().since(changed) >= quiet) {
                return;
            }
            subject.pause(deadline);
        }
    }
}

impl HostSetup<'_> {
    /// The command line of a stdio server.
    fn stdio(&self, part: StandInRole) -> [OsString; 6] {
        let words = ["check", "--part", part.word(), "--journal"].map(OsString::from);
        let [check, option, part, journal] = words;
        [self.check.program.clone().into(), check, option, part, journal, self.journal.path().into()]
    }

    /// The host's command line with its placeholders replaced; behind the stand-in that gives it a terminal, if it
    /// needs one.
    fn command(&self, ending: HostEnding) -> Vec<OsString> {
        let mut command = Vec::new();
        if ending == HostEnding::Terminal {
            command.extend(self.stdio(StandInRole::TerminalStarter));
            command.push("--".into());
        }
        for word in &self.check.command {
            match word.to_str() {
                Some("{stdio}") => command.extend(self.stdio(StandInRole::Polite)),
                Some("{deaf}") => command.extend(self.stdio(StandInRole::Deaf)),
                Some(text) => command.push(self.fill(text)),
                None => command.push(word.clone()),
            }
        }
        command
    }

    fn fill(&self, text: &str) -> OsString {
        text.replace("{config}", &lossy(&self.config)).replace("{url}", &self.url).into()
    }

    fn env(&self) -> Vec<(OsString, Option<OsString>)> {
        let set = |key: &str, value: &OsStr| (key.into(), Some(value.to_owned()));
        vec![set("LEASH_CHECK_CONFIG", self.config.as_os_str()), set("LEASH_CHECK_URL", OsStr::new(&self.url))]
    }

    /// A configuration in the format that most hosts read.
    fn config_text(&self) -> String {
        let stdio = |part: StandInRole| {
            let [command, args @ ..] = self.stdio(part);
            let args: Vec<String> = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            json!({ "type": "stdio", "command": command.to_string_lossy(), "args": args })
        };
        let servers = json!({
            "leash-check-polite": stdio(StandInRole::Polite),
            "leash-check-deaf": stdio(StandInRole::Deaf),
            "leash-check-http": { "type": "http", "url": self.url },
        });
        format!("{:#}\n", json!({ "mcpServers": servers }))
    }
}

fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
