//! Tests a host: leash acts as its servers, ends the host in every way, and reports the processes that are left.

pub mod journal;
mod judge;
pub mod stand_in;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use self::journal::{Journal, JournalEntry, Part};
use self::judge::{ENDINGS, Ending, HostRun};
use self::stand_in::HttpStandIn;
use super::stdio::shown;
use super::subject::{Start, Subject};
use super::{CheckError, Report, StopSignals};
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
    pub aloud: bool,
    /// True if warnings are findings.
    pub strict: bool,
}

/// The plan for one run of a host.
struct HostPlan {
    ending: Ending,
    number: usize,
    /// True if the host is known to exit by itself soon.
    brief: bool,
}

/// The parameters of a host in one run.
struct Offer<'a> {
    check: &'a HostCheck,
    journal: &'a Journal,
    config: PathBuf,
    url: String,
}

impl HostCheck {
    /// Runs the test. `progress` receives the description of each step.
    pub fn run(
        &self,
        places: &Places,
        stop: &StopSignals,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Report, CheckError> {
        let mut lives: Vec<HostRun> = Vec::new();
        for (number, ending) in ENDINGS.into_iter().enumerate() {
            progress(&format!("ends the host by {}", ending.describe()));
            let plan = HostPlan { ending, number, brief: lives.first().is_some_and(|first| !first.stayed) };
            lives.push(self.live((places, stop), &plan)?);
            if journal::connected(&lives[0].journal).is_empty() {
                break;
            }
        }
        Ok(Report::new("host", shown(&self.command), judge::rows(&lives), self.strict))
    }

    fn live(&self, (places, stop): (&Places, &StopSignals), plan: &HostPlan) -> Result<HostRun, CheckError> {
        let began = Moment::now();
        let ending = plan.ending;
        let journal = Journal::at(self.dir.join(format!("journal-{}.jsonl", plan.number)));
        let http = HttpStandIn::start(journal.clone())?;
        let offer = Offer { check: self, journal: &journal, config: self.dir.join("mcp.json"), url: http.url() };
        fs::write(&offer.config, offer.config_text())?;
        let patience = self.grace * HOST_GRACES;
        let (command, env) = (offer.command(ending), offer.env());
        let mut subject = Subject::start(&Start {
            command: &command,
            env: &env,
            places,
            patience: self.ready + patience + self.grace,
            aloud: self.aloud,
            terminal: ending == Ending::Terminal,
            stop,
        })?;
        self.wait_connected(&mut subject, (&journal, stop), plan.brief);
        let (stayed, before) = (subject.lives(), journal.read().len());
        let asked = Moment::now();
        match ending {
            Ending::Exit => subject.close_stdin(),
            Ending::Signal(signal) => subject.signal(signal),
            Ending::Kill => subject.signal(Signal::KILL),
            Ending::Terminal => subject.hang_up(),
        }
        let gone = subject.wait_leader(asked + patience);
        let left_after = gone.then(|| Moment::now().since(asked));
        // The servers must see the closed pipes of a host that has exited, so this process must not hold them.
        subject.let_go();
        let left = if gone { subject.wait_gone(Moment::now() + self.grace) } else { Vec::new() };
        let (journal, last_words) = (journal.read(), subject.last_words());
        // The test is over; the result of this end is not needed.
        let _ = subject.end();
        stop.check()?;
        Ok(HostRun {
            ending,
            journal,
            before,
            stayed,
            left_after,
            patience,
            left,
            last_words,
            took: Moment::now().since(began),
        })
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
            let all = Part::SERVERS.iter().all(|part| connected.contains(part));
            let quiet = if all { REST } else { QUIET };
            if !connected.is_empty() && (brief || Moment::now().since(changed) >= quiet) {
                return;
            }
            subject.pause(deadline);
        }
    }
}

impl Offer<'_> {
    /// The command line of a stdio server.
    fn stdio(&self, part: Part) -> [OsString; 6] {
        let words = ["check", "--part", part.word(), "--journal"].map(OsString::from);
        let [check, option, part, journal] = words;
        [self.check.program.clone().into(), check, option, part, journal, self.journal.path().into()]
    }

    /// The host's command line with its placeholders replaced; behind the usher if it needs a terminal.
    fn command(&self, ending: Ending) -> Vec<OsString> {
        let mut command = Vec::new();
        if ending == Ending::Terminal {
            command.extend(self.stdio(Part::Usher));
            command.push("--".into());
        }
        for word in &self.check.command {
            match word.to_str() {
                Some("{stdio}") => command.extend(self.stdio(Part::Polite)),
                Some("{deaf}") => command.extend(self.stdio(Part::Deaf)),
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
        let stdio = |part: Part| {
            let [command, args @ ..] = self.stdio(part);
            let args: Vec<String> = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            json!({ "type": "stdio", "command": command.to_string_lossy(), "args": args })
        };
        let servers = json!({
            "leash-check-polite": stdio(Part::Polite),
            "leash-check-deaf": stdio(Part::Deaf),
            "leash-check-http": { "type": "http", "url": self.url },
        });
        format!("{:#}\n", json!({ "mcpServers": servers }))
    }
}

fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
