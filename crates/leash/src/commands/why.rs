//! `leash why`.

use leash_model::alive::{AliveSession, MemberKind, SessionMember};
use leash_model::duration;
use leash_model::owner::Owner;
use leash_orphans::facts::{DescriptorKind, OtherEnd};
use leash_orphans::knowledge::LeashedRun;
use leash_orphans::scan::resources::{self, TreeResources};
use leash_orphans::{Channel, Facts, Finding, JudgePolicy, Process};
use leash_tree::session::Target;
use schemars::JsonSchema;
use serde::Serialize;

use super::choose::{self, Word};
use super::survey::Survey;
use crate::args::{Why, WhyTarget};
use crate::exit_code;
use crate::output::printer::{Printer, bytes, span};
use crate::output::text::{Text, add};
use crate::output::{evidence, palette};

pub(crate) fn why(args: &Why) -> u8 {
    explain(args, Printer::new(false)).unwrap_or_else(|code| code)
}

/// The error is an exit code; its message was printed.
fn explain(args: &Why, printer: Printer) -> Result<u8, u8> {
    let refuse = |text: String| {
        printer.error_text(text, Some("`leash ps` lists the servers"));
        exit_code::NOT_ALL
    };
    let mut survey = Survey::open(printer, &args.projects)?;
    let wanted = match &args.target {
        WhyTarget::Process(pid) => vec![*pid],
        WhyTarget::Word(word) => match processes_of(word, survey.trees().collect()) {
            Ok(processes) => processes,
            Err(problem) => vec![server_of(word, &mut survey).unwrap_or(Err(problem)).map_err(refuse)?],
        },
    };
    let (facts, findings) = survey.look_at(&JudgePolicy::default(), &wanted);
    let Some(process) = wanted.iter().find_map(|pid| facts.process(*pid)) else {
        return Err(refuse(match &args.target {
            WhyTarget::Process(pid) => format!("there is no process {pid}"),
            WhyTarget::Word(word) => format!("no process of `{word}` is alive"),
        }));
    };
    let about = WhySubject::find(&survey, process, &findings);
    if args.json {
        let WhySubject { finding, resources, .. } = &about;
        printer.json(WhyAnswer { pid: process.id.pid, finding: *finding, belongings: resources });
        return Ok(exit_code::OK);
    }
    printer.data(&about.text(&survey, &facts));
    Ok(exit_code::OK)
}

/// The answer about one process as text; `None` if there is no such process.
pub(super) fn about_process(survey: &mut Survey, pid: i32) -> Option<Text> {
    let (facts, findings) = survey.look_at(&JudgePolicy::default(), &[pid]);
    let process = facts.process(pid)?;
    Some(WhySubject::find(survey, process, &findings).text(survey, &facts))
}

/// A process, and the server that it belongs to.
struct WhySubject<'a> {
    process: &'a Process,
    finding: Option<&'a Finding>,
    resources: TreeResources,
}

impl<'a> WhySubject<'a> {
    fn find(survey: &Survey, process: &'a Process, findings: &'a [Finding]) -> WhySubject<'a> {
        let attended = survey.runs_of(&process.id);
        let is_about = |finding: &&Finding| {
            let has = |id| finding.tree.iter().any(|member| member.is(id));
            has(&process.id) || matches!(&attended[..], [run] if run.processes.iter().any(has))
        };
        let finding = findings.iter().find(is_about);
        let resources = resources::of(&survey.proc, finding.map_or(&[process.id], |finding| &finding.tree));
        WhySubject { process, finding, resources }
    }

    fn text(&self, survey: &Survey, facts: &Facts) -> Text {
        let WhySubject { process, finding, resources } = self;
        let attended = survey.runs_of(&process.id);
        let mut text = match finding {
            Some(finding) => about_finding(finding, process, survey.run(finding)),
            None if !attended.is_empty() => about_leash(process, &attended),
            None => about_other(process, facts),
        };
        let (memory, swap) = (bytes(resources.memory), bytes(resources.swap));
        add(&mut text, format_args!("It uses {memory} of memory and {swap} of swap."));
        for port in &resources.ports {
            add(&mut text, format_args!("It listens on port {port}."));
        }
        for lock in &resources.locks {
            add(&mut text, format_args!("It keeps {lock} locked."));
        }
        text
    }
}

/// What `leash why --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct WhyAnswer<'a> {
    /// The process that was asked about.
    pid: i32,
    /// The server that it belongs to; null if it belongs to none that leash knows.
    finding: Option<&'a Finding>,
    /// The resources of the server, or of the process.
    belongings: &'a TreeResources,
}

/// The processes of the run that a word names, the server first. The error describes the problem with the word.
fn processes_of(word: &str, trees: Vec<SessionMember>) -> Result<Vec<i32>, String> {
    let alive = AliveSession::join(trees, Vec::new());
    let target = choose::by_word(&alive, &Word { text: word.to_owned(), may_begin: true })?;
    let is_its = |member: &&SessionMember| match &target {
        Target::Session(id) => member.session == *id,
        Target::Run(id) => member.run == *id,
    };
    let members: Vec<&SessionMember> = alive.iter().flat_map(|session| &session.members).filter(is_its).collect();
    let [SessionMember { kind: MemberKind::Tree { record, .. }, .. }] = &members[..] else {
        let runs: Vec<String> = members.iter().map(|member| format!("{} ({})", member.run, member.name)).collect();
        return Err(format!("`{word}` has {} servers, name one of them: {}", runs.len(), runs.join(", ")));
    };
    Ok(record.leader.iter().chain(&record.members).map(|process| process.pid).collect())
}

/// The first process of the server of this name; `None` if no server has it. The error says that several have it.
fn server_of(name: &str, survey: &mut Survey) -> Option<Result<i32, String>> {
    let findings = survey.look(&JudgePolicy::default());
    let named: Vec<i32> =
        findings.iter().filter(|one| one.server.as_deref() == Some(name)).map(|one| one.root.pid).collect();
    match &named[..] {
        [] => None,
        [pid] => Some(Ok(*pid)),
        _ => {
            let pids: Vec<String> = named.iter().map(i32::to_string).collect();
            Some(Err(format!(
                "`{name}` is the name of {} servers, name the PID of one: {}",
                pids.len(),
                pids.join(", ")
            )))
        }
    }
}

fn about_finding(finding: &Finding, process: &Process, run: Option<&LeashedRun>) -> Text {
    let (age, verdict) = (span(duration::as_ms(finding.age)), finding.verdict.word());
    let mut text = Text::default();
    let subject = Text::new(format_args!("{}: ", evidence::subject(finding)));
    text.line(subject.and(Text::painted(palette::of_word(verdict), verdict)).and(format_args!(", {age} old")));
    let (pid, name) = (process.id.pid, process.short_command());
    if !finding.tree.iter().any(|member| member.is(&process.id)) {
        add(&mut text, format_args!("Process {pid} ({name}) is leash, which looks after it."));
    } else if pid != finding.root.pid {
        add(&mut text, format_args!("Process {pid} ({name}) belongs to it."));
    }
    add(&mut text, format_args!("leash knows it because {}.", evidence::sentence(&finding.identified_by)));
    for fact in &finding.evidence {
        add(&mut text, format_args!("- {}", evidence::sentence(fact)));
    }
    if let Some(run) = run.filter(|run| !run.owners.is_empty()) {
        let owners: Vec<String> = run.owners.iter().map(owner_words).collect();
        add(&mut text, format_args!("- it lives for {}", owners.join(", ")));
    }
    if let Some(stop) = run.and_then(|run| run.idle_stop) {
        add(&mut text, format_args!("- it may be ended when {}", stop.describe()));
    }
    add(&mut text, format_args!("What ends it: {}.", evidence::remedy(finding)));
    text
}

fn owner_words(owner: &Owner) -> String {
    match owner {
        Owner::Process { pid, name, .. } => format!("{name} (pid {pid})"),
        Owner::Stdin => "the other end of its stdin".to_owned(),
        Owner::Terminal => "its terminal".to_owned(),
        Owner::Handle => "the program that started it".to_owned(),
    }
}

/// A process of leash that looks after several servers, or whose server has exited.
fn about_leash(process: &Process, runs: &[&LeashedRun]) -> Text {
    let mut text = Text::default();
    let name = process.short_command();
    add(&mut text, format_args!("{name} (pid {}): leash, which looks after these servers", process.id.pid));
    for run in runs {
        let pid = run.processes.first().map(|server| format!(" (pid {})", server.pid)).unwrap_or_default();
        add(&mut text, format_args!("- {}{pid} of session {}", run.name, run.session));
    }
    text
}

fn about_other(process: &Process, facts: &Facts) -> Text {
    let mut text = Text::default();
    let (name, pid) = (process.short_command(), process.id.pid);
    add(&mut text, format_args!("{name} (pid {pid}): not an MCP server, as far as leash knows"));
    for (name, channel) in [("stdin", &process.stdin), ("stdout", &process.stdout)] {
        add(&mut text, format_args!("- {name}: {}", channel_words(channel, facts)));
    }
    text.line("leash does not touch it.");
    text
}

fn channel_words(channel: &Channel, facts: &Facts) -> String {
    match (&channel.other_end, channel.kind) {
        (OtherEnd::Gone, _) => "the other end is closed".to_owned(),
        (OtherEnd::Held { by, .. }, _) => {
            let name = |pid: i32| facts.process(pid).map_or_else(|| "?".to_owned(), Process::short_command);
            let names: Vec<String> = by.iter().map(|id| format!("{} (pid {})", name(id.pid), id.pid)).collect();
            format!("the other end is held by {}", names.join(", "))
        }
        (OtherEnd::NotVisible(_), _) => "the holder of the other end can't be seen".to_owned(),
        (OtherEnd::None, DescriptorKind::Tty) => "a terminal".to_owned(),
        (OtherEnd::None, DescriptorKind::Null) => "the null device".to_owned(),
        (OtherEnd::None, DescriptorKind::Closed) => "closed".to_owned(),
        (OtherEnd::None, _) => "a file, or it may not be read".to_owned(),
    }
}
