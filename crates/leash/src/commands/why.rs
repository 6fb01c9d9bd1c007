//! `leash why`.

use leash_model::duration;
use leash_orphans::facts::{DescriptorKind, OtherEnd};
use leash_orphans::scan::resources::{self, TreeResources};
use leash_orphans::{Channel, Facts, Finding, JudgePolicy, Process};
use schemars::JsonSchema;
use serde::Serialize;

use super::survey::Survey;
use crate::args::Why;
use crate::exit_code;
use crate::output::escape::add;
use crate::output::evidence;
use crate::output::printer::{Printer, bytes, span};

pub(crate) fn why(args: &Why) -> u8 {
    let printer = Printer::new(false);
    let mut survey = match Survey::open(printer, &args.projects) {
        Ok(survey) => survey,
        Err(code) => return code,
    };
    let (facts, findings) = survey.look_at(&JudgePolicy::default(), &[args.pid]);
    let Some(process) = facts.process(args.pid) else {
        printer.error_text(format!("there is no process {}", args.pid), Some("`leash ps` lists the servers"));
        return exit_code::NOT_ALL;
    };
    let finding = findings.iter().find(|finding| finding.tree.iter().any(|id| id.is(&process.id)));
    let resources = resources::of(&survey.proc, finding.map_or(&[process.id], |finding| &finding.tree));
    if args.json {
        printer.json(WhyAnswer { pid: args.pid, finding, belongings: &resources });
        return exit_code::OK;
    }
    let mut text = match finding {
        Some(finding) => about_finding(finding, process),
        None => about_other(process, &facts),
    };
    add(
        &mut text,
        format_args!("It uses {} of memory and {} of swap.", bytes(resources.memory), bytes(resources.swap)),
    );
    for port in &resources.ports {
        add(&mut text, format_args!("It listens on port {port}."));
    }
    for lock in &resources.locks {
        add(&mut text, format_args!("It keeps {lock} locked."));
    }
    printer.data(text);
    exit_code::OK
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

fn about_finding(finding: &Finding, process: &Process) -> String {
    let age = span(duration::as_ms(finding.age));
    let mut text = String::new();
    add(&mut text, format_args!("{}: {}, {age} old", evidence::subject(finding), finding.verdict.word()));
    if process.id.pid != finding.root.pid {
        add(&mut text, format_args!("Process {} ({}) belongs to it.", process.id.pid, process.comm));
    }
    add(&mut text, format_args!("It is taken for that because {}.", evidence::sentence(&finding.identified_by)));
    for fact in &finding.evidence {
        add(&mut text, format_args!("- {}", evidence::sentence(fact)));
    }
    add(&mut text, format_args!("What ends it: {}.", evidence::remedy(finding)));
    text
}

fn about_other(process: &Process, facts: &Facts) -> String {
    let mut text = String::new();
    let (name, pid) = (&process.comm, process.id.pid);
    add(&mut text, format_args!("{name} (pid {pid}): not an MCP server, as far as leash knows"));
    for (name, channel) in [("stdin", &process.stdin), ("stdout", &process.stdout)] {
        add(&mut text, format_args!("- {name}: {}", channel_words(channel, facts)));
    }
    text.push_str("leash does not touch it.\n");
    text
}

fn channel_words(channel: &Channel, facts: &Facts) -> String {
    match (&channel.other_end, channel.kind) {
        (OtherEnd::Gone, _) => "the other end is closed".to_owned(),
        (OtherEnd::Held { by, .. }, _) => {
            let name = |pid: i32| facts.process(pid).map_or("?", |process| process.comm.as_str());
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
