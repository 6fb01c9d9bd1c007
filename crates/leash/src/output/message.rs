//! Texts about ends and failures that several commands share.

use leash_model::containment::Containment;
use leash_model::event::{Event, Rung};
use leash_model::receipt::{DeleteHow, EndedBy, Fate, Holding, How, Reason, Receipt, TreeEnd, UpstreamEnd};

use super::ids::short;
use super::palette;
use super::printer::{Printer, bytes, span};
use super::text::Text;

/// Prints an event, as `-v` shows it. Warnings are always printed.
pub(crate) fn tell(printer: Printer, event: &Event) {
    match event {
        Event::Swept(receipt) => printer.progress("Swept", receipt_line(receipt)),
        Event::Started { name, leader, containment, refused } => {
            let pid = leader.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            printer.progress("Started", format!("{name}{pid} in containment {containment}"));
            for refusal in refused {
                printer.progress("", format!("not {}: {}", refusal.containment, refusal.why));
            }
        }
        Event::Ending { why, rung, members } => {
            let step = match rung {
                Rung::Eof => "waiting for the server to exit (a signal ends the wait)",
                Rung::Term => "SIGTERM sent (another signal kills)",
                Rung::Kill => "killing",
            };
            printer.progress("Ending", format!("{}: {}, {step}", why.describe(), processes(*members)));
        }
        Event::Warning(text) => printer.warning(text),
    }
}

/// The combined result of some receipts.
pub(crate) fn fate<'r>(mut receipts: impl Iterator<Item = &'r Receipt> + Clone) -> &'static str {
    if receipts.clone().all(Receipt::all_gone) {
        "all gone"
    } else if receipts.all(Receipt::nothing_left) {
        "leash finds no process of it any more"
    } else {
        "NOT all gone"
    }
}

/// The result of one holding, in one word.
pub(crate) fn fate_word(fate: &Fate) -> &'static str {
    match fate {
        Fate::Gone => "gone",
        Fate::Ended => "ended",
        Fate::Left => "LEFT",
    }
}

/// A server of a gateway and its URL, as `leash serve` and `leash status` list it.
pub(crate) fn server_url(server: &str, url: &str) -> String {
    format!("  {server}: {url}")
}

/// The number of processes, with the word.
pub(crate) fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

/// One line about an end.
pub(crate) fn receipt_line(receipt: &Receipt) -> Text {
    let fate = painted_fate(std::iter::once(receipt));
    let by = match receipt.ended_by {
        EndedBy::Keeper => "its keeper",
        EndedBy::Supervisor => "leash",
        EndedBy::Sweep => "a later start",
        EndedBy::Gateway => "the gateway",
        EndedBy::Reap => "leash reap",
    };
    if let Reason::StartFailed { why: Some(why) } = &receipt.reason {
        return Text::new(format_args!(
            "{} [{}]: did not start: {}",
            receipt.name,
            short(&receipt.session),
            why.line()
        ));
    }
    let mut held: Vec<String> = receipt.trees().map(|tree| tree_line(tree, receipt.took_ms)).collect();
    held.extend(receipt.upstreams().map(|upstream| upstream_line(upstream, receipt.took_ms)));
    let containment = match receipt.ended_by {
        EndedBy::Reap => "no containment",
        _ => receipt.containment.map_or("containment unknown", Containment::name),
    };
    let means = match receipt.trees().next() {
        Some(_) => format!("{containment}, by {by}"),
        None => format!("by {by}"),
    };
    let (name, session, why) = (&receipt.name, short(&receipt.session), receipt.why());
    Text::new(format_args!("{name} [{session}]: {why}; {}; ", held.join("; ")))
        .and(fate)
        .and(format_args!(" ({means})"))
}

fn painted_fate<'r>(receipts: impl Iterator<Item = &'r Receipt> + Clone) -> Text {
    let fate = fate(receipts);
    Text::painted(palette::of_word(fate), fate)
}

/// The end of a session as one line, with one more line for each holding if there are several; leftovers follow below.
pub(crate) fn session_lines(whole: &Receipt, members: &[Receipt]) -> Text {
    let mut lines = Text::default();
    if members.len() == 1 && whole.holdings.len() <= 1 {
        lines.line(receipt_line(whole));
        left_lines(whole).iter().for_each(|line| lines.line(format_args!("  {line}")));
        return lines;
    }
    let (why, held) = (whole.why(), held(whole.holdings.iter()));
    let head = Text::new(format_args!("{}: {why}; {held}; ", short(&whole.session)));
    lines.line(head.and(painted_fate(std::iter::once(whole))).and(format_args!(" in {}", span(whole.took_ms))));
    // A holding that two receipts contain is printed once.
    let mut told: Vec<&Holding> = Vec::new();
    for member in members {
        for holding in member.holdings.iter().filter(|holding| whole.holdings.contains(holding)) {
            if matches!(holding, Holding::Tree(_)) && told.contains(&holding) {
                continue;
            }
            told.push(holding);
            let became = match holding {
                Holding::Tree(tree) => tree_line(tree, member.took_ms),
                Holding::Upstream(upstream) => upstream_line(upstream, member.took_ms),
            };
            let fate = fate_word(holding.fate());
            let line = Text::new(format_args!("  {}: {became}; ", member.name));
            lines.line(line.and(Text::painted(palette::of_word(fate), fate)));
        }
        left_lines(member).iter().for_each(|line| lines.line(format_args!("    {line}")));
    }
    lines
}

/// A summary of several holdings.
pub(crate) fn held<'h>(holdings: impl Iterator<Item = &'h Holding>) -> String {
    let (mut trees, mut upstreams) = (Vec::new(), 0);
    for holding in holdings {
        match holding {
            Holding::Tree(tree) => trees.push(tree),
            Holding::Upstream(_) => upstreams += 1,
        }
    }
    let mut held: Vec<String> = Vec::new();
    if !trees.is_empty() {
        let members = trees.iter().map(|tree| tree.members).sum();
        let memory = trees.iter().map(|tree| tree.memory_bytes).sum();
        held.push(format!("{}, {}, {} freed", counted(trees.len(), "server"), processes(members), bytes(memory)));
    }
    if upstreams > 0 {
        held.push(counted(upstreams, "upstream session"));
    }
    if held.is_empty() { "nothing was held".to_owned() } else { held.join("; ") }
}

/// A number of things, in the plural with an `s`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn tree_line(tree: &TreeEnd, took_ms: u64) -> String {
    let how = match tree.how {
        How::Exited => "exited by itself",
        How::Eof => "exited after end of input",
        How::Term => "exited after SIGTERM",
        How::Kill => "killed",
    };
    format!("{}, {how} in {}, {} freed", processes(tree.members), span(took_ms), bytes(tree.memory_bytes))
}

fn upstream_line(upstream: &UpstreamEnd, took_ms: u64) -> String {
    // A session that is bound to its connection has no id.
    let id = if upstream.id.is_empty() { String::new() } else { format!(" {}", upstream.id) };
    format!("upstream session{id} at {}, {} in {}", upstream.url, delete_how(upstream.how), span(took_ms))
}

/// The result of an upstream session, in a word or two.
pub(crate) fn delete_how(how: DeleteHow) -> &'static str {
    match how {
        DeleteHow::Deleted => "deleted",
        DeleteHow::Forgotten => "already forgotten",
        DeleteHow::Closed => "closed",
        DeleteHow::Unsupported => "not deletable",
        DeleteHow::Denied => "denied",
        DeleteHow::Unreachable => "unreachable",
    }
}

/// The processes and sessions that are left after an end, one line each.
pub(crate) fn left_lines(receipt: &Receipt) -> Vec<String> {
    let line = |kind: &str, pid: i32, name: &str, why: &str| {
        if pid > 0 { format!("{kind}: {name} (pid {pid}): {why}") } else { format!("{kind}: {why}") }
    };
    let mut lines = Vec::new();
    for tree in receipt.trees() {
        if tree.fate == Fate::Left && tree.left.is_empty() {
            lines.push("left: a process that could not be named".to_owned());
        }
        lines.extend(tree.left.iter().map(|left| line("left", left.pid, &left.name, &left.why)));
        lines.extend(tree.spared.iter().map(|spared| line("spared", spared.pid, &spared.name, &spared.why)));
    }
    for upstream in receipt.upstreams().filter(|upstream| upstream.fate == Fate::Left) {
        let why = upstream.why.as_deref().unwrap_or("no reason was recorded");
        lines.push(format!("left: session {} at {}: {why}", upstream.id, upstream.url));
    }
    lines
}
