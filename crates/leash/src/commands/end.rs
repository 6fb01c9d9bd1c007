//! `leash end`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use leash_model::alive::{AliveSession, MemberKind};
use leash_model::receipt::{EndedBy, Reason, Receipt};
use leash_tree::places::Places;
use leash_tree::platform::proc::Proc;
use leash_tree::session::{self, EndReport, Ending, Target, Unfinished, alive};
use schemars::JsonSchema;
use serde::Serialize;

use super::choose::{self, Word};
use super::control::Daemon;
use super::hook::{self, HookMeaning};
use super::{attach, ledger};
use crate::args::{End, SessionName, Unresolved};
use crate::output::ids::short;
use crate::output::message;
use crate::output::printer::Printer;
use crate::output::text::Text;
use crate::output::waiting::Waiting;
use crate::{exit_code, places};

const WHO_IS_THERE: &str = "`leash ps` lists the sessions that are alive, `leash history` those that ended";

pub(crate) fn end(args: &End) -> u8 {
    let printer = Printer::new(false);
    match try_end(args, printer) {
        Ok(code) | Err(code) => code,
    }
}

/// Like `end`; the error is an exit code too, and its message was printed.
fn try_end(args: &End, printer: Printer) -> Result<u8, u8> {
    let wish = wish(args, printer)?;
    let proc = Proc::own().map_err(|why| {
        let text = format!("cannot identify processes: {why}");
        printer.error_text(text, Some("run `leash end` where `leash run` runs"));
        exit_code::LEASH_FAILED
    })?;
    let places = places::places();
    ledger::look(printer)?;
    let (daemon, held) = Daemon::ask(attach::socket(args.control.as_deref()), printer);
    let unread = |error| ledger::unread(printer, &error);
    let members = alive::members(&places).map_err(unread)?;
    let alive = AliveSession::join(members, held);
    let choice = choose(&wish, &alive);
    for problem in &choice.problems {
        printer.error_text(problem, Some(WHO_IS_THERE));
    }
    let request = Request { places: &places, proc: &proc, daemon: &daemon, force: args.force };
    let waiting = (!choice.targets.is_empty()).then(|| wait(&choice.targets, &alive, args.force));
    let ended = request.end(&choice.targets, &choice.held).map_err(unread)?;
    drop(waiting);
    ended.warnings.iter().for_each(|warning| printer.warning(warning));
    let sessions = by_session(&choice.targets, &ended.receipts);
    if args.json {
        printer.json(EndAnswer::new(&sessions, &ended));
    } else {
        show(printer, &sessions, &ended);
        if choice.targets.is_empty() && choice.problems.is_empty() {
            printer.note(wish.nothing());
        }
    }
    let all_gone = ended.receipts.iter().all(Receipt::all_gone) && ended.unfinished.is_empty();
    let all_known = choice.problems.is_empty() && !daemon.is_silent;
    Ok(if all_gone && all_known { exit_code::OK } else { exit_code::NOT_ALL })
}

/// Ends a session or a run that is alive, and waits until it is gone: the lines about its end, and the receipts. The error
/// describes the problem.
pub(super) fn end_target(target: Target, socket: PathBuf) -> Result<(Text, Vec<Receipt>), String> {
    let proc = Proc::own().map_err(|why| format!("cannot identify processes: {why}"))?;
    let places = places::places();
    let (daemon, held, _) = Daemon::find(socket);
    let unread = |error| format!("cannot read the ledger: {error}");
    let alive = AliveSession::join(alive::members(&places).map_err(unread)?, held);
    let is_held =
        |session: &&AliveSession| matches!(&target, Target::Session(id) if session.id == *id && session.held.is_some());
    let held: Vec<&str> = alive.iter().filter(is_held).map(|session| &*session.id).collect();
    let request = Request { places: &places, proc: &proc, daemon: &daemon, force: false };
    let targets = [target.clone()];
    let ended = request.end(&targets, &held).map_err(unread)?;
    if let Some(one) = ended.unfinished.first() {
        return Err(format!("run {}: {}", short(&one.run), one.why));
    }
    let sessions = by_session(&targets, &ended.receipts).into_iter();
    let lines = sessions.filter_map(|ended| Some(message::session_lines(ended.whole.as_ref()?, &ended.members)));
    Ok((lines.collect(), ended.receipts))
}

/// Says what is awaited, and how long the ladder of the slowest tree takes at most.
fn wait(targets: &[Target], alive: &[AliveSession], force: bool) -> Waiting {
    let is_target = |session: &&AliveSession| targets.iter().any(|target| target.id() == session.id);
    let members = alive.iter().filter(is_target).flat_map(|session| &session.members);
    let grace = members.filter_map(|member| match &member.kind {
        MemberKind::Tree { record, .. } => Some(record.grace_ms),
        MemberKind::Connection { .. } | MemberKind::Upstream { .. } => None,
    });
    let most = grace.max().filter(|_| !force).map(|grace_ms| Duration::from_millis(2 * grace_ms));
    let what = match targets {
        [one] => format!("for session {} to end", short(one.id())),
        _ => format!("for {} to end", message::counted(targets.len(), "session")),
    };
    Waiting::begin(what, most)
}

/// The parameters of an end.
struct Request<'a> {
    places: &'a Places,
    proc: &'a Proc,
    daemon: &'a Daemon,
    force: bool,
}

impl Request<'_> {
    /// Ends the sessions that the daemon holds and those of the ledger at the same time, and then the members that are
    /// still there.
    fn end(&self, targets: &[Target], held: &[&str]) -> std::io::Result<EndReport> {
        if targets.is_empty() {
            return Ok(EndReport::default());
        }
        let mut ending =
            Ending::new(self.places, self.proc, targets.to_vec(), self.force, leash_upstream::sweep::at_once);
        let (told, first) = std::thread::scope(|scope| {
            let told = (!held.is_empty()).then(|| scope.spawn(|| self.daemon.end(held, self.force)));
            let first = ending.round(&|member| held.contains(&&*member.session) && self.daemon.holds(member));
            let not_told = |session: &&str| Unfinished::whole(session, "`leash serve` could not be reached");
            let lost = |_| (Vec::new(), held.iter().map(not_told).collect());
            (told.map(|thread| thread.join().unwrap_or_else(lost)).unwrap_or_default(), first)
        });
        first?;
        let mut ended = ending.rest()?;
        let (mut receipts, unfinished) = told;
        receipts.append(&mut ended.receipts);
        ended.receipts = receipts;
        ended.unfinished.extend(unfinished);
        Ok(ended)
    }
}

/// The sessions to end, as the command line and the environment name them.
enum Wish<'a> {
    Words(Vec<Word>),
    Labels(&'a [crate::args::Pair]),
    All,
    /// Exactly this session, if it exists.
    Hook(String),
    /// None, because the host continues for this reason.
    GoesOn(String),
}

impl Wish<'_> {
    /// The message when there was nothing to end.
    fn nothing(&self) -> String {
        match self {
            Wish::Words(_) => "nothing to end".to_owned(),
            Wish::Labels(_) => "nothing to end: no session that is alive has these labels".to_owned(),
            Wish::All => "nothing to end: no session is alive".to_owned(),
            Wish::Hook(session) => format!("nothing to end: no session {session} is alive"),
            Wish::GoesOn(reason) => format!("nothing was ended: after `{reason}` the host continues with its servers"),
        }
    }
}

fn wish(args: &End, printer: Printer) -> Result<Wish<'_>, u8> {
    if args.all {
        return Ok(Wish::All);
    }
    if !args.matching.is_empty() {
        return Ok(Wish::Labels(&args.matching));
    }
    if args.hook {
        return match hook::read_stdin() {
            Ok(HookMeaning::Over(session)) => Ok(Wish::Hook(session)),
            Ok(HookMeaning::GoesOn(reason)) => Ok(Wish::GoesOn(reason)),
            Err(text) => {
                printer.error_text(
                    text,
                    Some("hosts write it: {\"session_id\": \"...\"}; by hand, use leash end SESSION"),
                );
                Err(exit_code::USAGE)
            }
        };
    }
    let word = |name: &SessionName| Ok(Word { text: name.resolve()?, may_begin: !name.has_variables() });
    let words: Result<_, Unresolved> = args.sessions.iter().map(word).collect();
    words.map(Wish::Words).map_err(|unresolved| {
        printer.error_text(unresolved.text, Some(&unresolved.hint));
        exit_code::USAGE
    })
}

/// The sessions that a wish selects now.
#[derive(Default)]
struct Choice<'a> {
    targets: Vec<Target>,
    /// Those that the daemon holds.
    held: Vec<&'a str>,
    /// Words that match no session, or several.
    problems: Vec<String>,
}

fn choose<'a>(wish: &Wish<'_>, alive: &'a [AliveSession]) -> Choice<'a> {
    let mut choice = Choice::default();
    match wish {
        Wish::All => choice.targets = choose::all(alive, |_| true),
        Wish::Labels(labels) => choice.targets = choose::by_labels(alive, labels),
        Wish::Hook(id) => choice.targets = choose::all(alive, |session| session.id == *id),
        Wish::GoesOn(_) => {}
        Wish::Words(words) => {
            for word in words {
                match choose::by_word(alive, word) {
                    Ok(target) if choice.targets.contains(&target) => {}
                    Ok(target) => choice.targets.push(target),
                    Err(problem) => choice.problems.push(problem),
                }
            }
        }
    }
    let is_chosen = |session: &&AliveSession| choice.targets.contains(&Target::Session(session.id.clone()));
    let held = alive.iter().filter(|session| session.held.is_some()).filter(is_chosen);
    choice.held = held.map(|session| session.id.as_str()).collect();
    choice
}

/// An ended session and the receipts of its members.
struct SessionEnd {
    /// The receipt of the whole session; `None` if it held nothing.
    whole: Option<Receipt>,
    session: String,
    members: Vec<Receipt>,
}

/// The receipts by session, in the order in which the user named the sessions.
fn by_session(targets: &[Target], receipts: &[Receipt]) -> Vec<SessionEnd> {
    let mut sessions: Vec<SessionEnd> = Vec::new();
    let begin = |session: &str| SessionEnd { whole: None, session: session.to_owned(), members: Vec::new() };
    for target in targets {
        if let Target::Session(session) = target {
            sessions.push(begin(session));
        }
    }
    for receipt in receipts {
        // A gateway numbers what it held for a session.
        let of = |session: &str| {
            receipt.session == session
                || receipt.session.rsplit_once('.').is_some_and(|(beginning, _)| beginning == session)
        };
        let exact = sessions.iter().position(|known| known.session == receipt.session);
        let at = exact.or_else(|| sessions.iter().position(|known| of(&known.session)));
        let at = at.unwrap_or_else(|| {
            sessions.push(begin(&receipt.session));
            sessions.len() - 1
        });
        sessions[at].members.push(receipt.clone());
    }
    for ended in &mut sessions {
        ended.whole = session::together(&ended.session, &ended.members);
    }
    sessions
}

fn show(printer: Printer, sessions: &[SessionEnd], ended: &EndReport) {
    for SessionEnd { whole, session, members } in sessions {
        match whole {
            Some(whole) => printer.data(&message::session_lines(whole, members)),
            None if ended.unfinished.iter().any(|one| one.session == *session) => {}
            None => printer.say(format_args!("{}: ended; it held nothing", short(session))),
        }
    }
    for one in &ended.unfinished {
        printer.error_text(format!("run {} of session {}: {}", short(&one.run), short(&one.session), one.why), None);
    }
}

/// What `leash end --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct EndAnswer<'a> {
    /// The sessions that ended, in the order in which they were named.
    receipts: Vec<SessionReceipt<'a>>,
    /// The runs that leash could not end.
    unfinished: Vec<UnfinishedRun<'a>>,
}

/// The receipt of a whole session.
#[derive(Serialize, JsonSchema)]
struct SessionReceipt<'a> {
    #[serde(flatten)]
    whole: &'a Receipt,
    /// The receipts of its members, in brief.
    members: Vec<MemberReceipt<'a>>,
}

/// The receipt of a member, in brief.
#[derive(Serialize, JsonSchema)]
struct MemberReceipt<'a> {
    /// The id of the run.
    run: &'a str,
    /// The server's name.
    name: &'a str,
    /// Labels as given.
    labels: &'a BTreeMap<String, String>,
    /// The reason for the end.
    reason: &'a Reason,
    /// The process that ended it.
    ended_by: EndedBy,
    /// True if everything is proved to be gone.
    all_gone: bool,
    /// Milliseconds from the first sign of the end to the proof.
    took_ms: u64,
}

/// A run that leash could not end.
#[derive(Serialize, JsonSchema)]
struct UnfinishedRun<'a> {
    /// Its session.
    session: &'a str,
    /// Its id.
    run: &'a str,
    /// The reason.
    why: &'a str,
}

impl<'a> EndAnswer<'a> {
    fn new(sessions: &'a [SessionEnd], ended: &'a EndReport) -> EndAnswer<'a> {
        let receipt = |ended: &'a SessionEnd| {
            let members = ended.members.iter().map(MemberReceipt::new).collect();
            Some(SessionReceipt { whole: ended.whole.as_ref()?, members })
        };
        let unfinished = |one: &'a Unfinished| UnfinishedRun { session: &one.session, run: &one.run, why: &one.why };
        EndAnswer {
            receipts: sessions.iter().filter_map(receipt).collect(),
            unfinished: ended.unfinished.iter().map(unfinished).collect(),
        }
    }
}

impl<'a> MemberReceipt<'a> {
    fn new(receipt: &'a Receipt) -> MemberReceipt<'a> {
        MemberReceipt {
            run: &receipt.run,
            name: &receipt.name,
            labels: &receipt.labels,
            reason: &receipt.reason,
            ended_by: receipt.ended_by,
            all_gone: receipt.all_gone(),
            took_ms: receipt.took_ms,
        }
    }
}
