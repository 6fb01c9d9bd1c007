//! The main loop of a connection: it begins, passes lines until an event ends it, and ends the upstream sessions it
//! holds.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinHandle;

use super::lease::{Claim, Lease};
use super::link::{Link, Mode, Parts};
use super::pipe::{HostDeaf, Input, Voice};
use super::reply::Trouble;
use super::watchtower::{Seen, Watchtower};
use super::{ConnectError, Connecting, Ended, Speaks};
use leash_model::clock;
use leash_model::clock::Moment;
use leash_model::receipt::Reason;
use leash_model::{id, limits};
use leash_tree::ledger::book::{Book, Entry, Membership};
use leash_tree::ledger::receipts;
use leash_tree::owner;
use leash_tree::places::Places;
use leash_tree::platform::linux;
use leash_tree::platform::proc::Proc;
use leash_tree::tree::supervisor;
use leash_tree::tree::supervisor::FirstLook;
use leash_upstream::client::Client;
use leash_upstream::delete;
use leash_upstream::delete::Deleted;
use leash_upstream::keeper;
use leash_upstream::keeper::terms::Terms;
use leash_upstream::notice::Notice;
use leash_upstream::sweep;
use leash_upstream::sweep::Known;

/// Runs a connection to its end. It blocks, and uses the process's signals, stdin and stdout.
pub fn connect(connecting: Connecting, first: FirstLook) -> Result<Ended, ConnectError> {
    let (parent, inherited) = first.into_parts();
    let signals = linux::listen(&supervisor::listened(inherited)).map_err(ConnectError::Signals)?;
    linux::survive_file_size_limit();
    let proc = Proc::own().ok();
    let watches = owner::find(&connecting.owners, parent, proc.as_ref(), inherited).map_err(ConnectError::Owner)?;
    // Not a `LocalSet`: its runtime sees it as one task, and waking a task inside it costs a system call.
    let options = LocalOptions::default();
    let runtime = Builder::new_current_thread().enable_all().build_local(options).map_err(ConnectError::Start)?;
    let over = runtime.block_on(async {
        let tower = |watches| Watchtower::build(watches, signals).map_err(ConnectError::Start);
        let driver = Driver::begin(connecting, watches, tower)?;
        Ok(driver.live().await)
    });
    // Another thread may still be resolving a name. leash does not wait for it.
    runtime.shutdown_background();
    over
}

/// The time limits after the host has closed stdin.
#[derive(Clone, Copy, Debug)]
struct Closing {
    since: Moment,
    /// The time at which the last line was sent.
    sent: Option<Moment>,
}

impl Closing {
    /// The moment at which the connection ends even if requests are unanswered. Unsent lines get a fixed time to be
    /// sent; after that, responses may come during the grace.
    fn deadline(self, grace: Duration) -> Moment {
        self.sent.map_or(self.since + limits::UNREAD, |sent| sent + grace)
    }
}

struct Driver {
    link: Rc<Link>,
    input: Input,
    /// All lines of the host were read.
    input_over: bool,
    tower: Watchtower,
    speaker: JoinHandle<Result<(), HostDeaf>>,
    /// leash's own response to the host while it waits for room in the queue.
    saying: Option<Pin<Box<dyn Future<Output = ()>>>>,
    grace: Duration,
    expires: Option<Moment>,
    closing: Option<Closing>,
    sweeper: Client,
    places: Places,
}

impl Driver {
    fn begin(
        connecting: Connecting,
        watches: Vec<owner::Watch>,
        tower: impl FnOnce(Vec<owner::Watch>) -> Result<Watchtower, ConnectError>,
    ) -> Result<Driver, ConnectError> {
        let Connecting { upstream, shown, speaks, revive, session, name, labels, grace, max_age, places, tell, .. } =
            connecting;
        let run = id::random();
        let terms = Terms {
            session: session.unwrap_or_else(|| run.clone()),
            run,
            name: name.unwrap_or_else(|| upstream.url.host().unwrap_or_default().to_owned()),
            labels,
            shown,
            started_ms: clock::unix_ms(),
        };
        let member = Membership {
            session: terms.session.clone(),
            name: terms.name.clone(),
            labels: terms.labels.clone(),
            owners: watches.iter().map(|watch| watch.owner.clone()).collect(),
        };
        let book = Book::of_connection(&places, &terms.run, member).map_err(ConnectError::Ledger)?;
        let copy = |watch: &owner::Watch| {
            rustix::io::fcntl_dupfd_cloexec(watch, 3).map(|copy| (watch.owner.clone(), copy)).map_err(io::Error::from)
        };
        let owners =
            keeper::watched(&watches).map(copy).collect::<io::Result<Vec<_>>>().map_err(ConnectError::Start)?;
        let tower = tower(watches)?;
        let input = Input::open().map_err(ConnectError::Start)?;
        let (voice, speaker) = Voice::open().map_err(ConnectError::Start)?;
        let mode = match speaks {
            Speaks::Auto => Mode::Unknown,
            Speaks::Streamable => Mode::Streamable,
            Speaks::Sse => Mode::Old(None),
        };
        let lease = Lease::new(terms, places.clone(), book, owners);
        let link = Link::new(Parts { upstream, mode, revives: revive, voice, lease, tell });
        Ok(Driver {
            link,
            input,
            input_over: false,
            tower,
            speaker: tokio::task::spawn_local(speaker.run()),
            saying: None,
            grace,
            expires: max_age.map(|age| Moment::now() + age),
            closing: None,
            sweeper: Client::new(),
            places,
        })
    }

    async fn live(mut self) -> Ended {
        self.link.tasks.spawn_local(sweep(Rc::clone(&self.link), self.sweeper.clone(), self.places.clone()));
        let reason = loop {
            if let Some(reason) = self.step().await {
                break reason;
            }
        };
        self.end(reason).await
    }

    /// Sends the lines that may be sent, waits for one event, and handles it. Returns the reason if the connection is
    /// over.
    async fn step(&mut self) -> Option<Reason> {
        self.link.send_waiting();
        if self.link.over.get() {
            return Some(Reason::UpstreamForgot);
        }
        if self.input_over && self.saying.is_none() {
            let sent = self.link.state.borrow().outbox.is_sent();
            let closing = self.closing.get_or_insert_with(|| Closing { since: Moment::now(), sent: None });
            if sent && closing.sent.is_none() {
                closing.sent = Some(Moment::now());
            }
            if !self.link.is_busy() {
                return Some(Reason::StdinClosed);
            }
        }
        let reads = !self.input_over && self.saying.is_none() && self.link.state.borrow().outbox.has_room();
        let deadline = self.deadline();
        tokio::select! {
            seen = self.tower.next() => self.saw(seen),
            () = self.link.wake.notified() => None,
            _ = &mut self.speaker => Some(Reason::ClientLeft),
            () = said(&mut self.saying) => None,
            line = self.input.next(), if reads => {
                match line {
                    Some(line) => {
                        let voice = self.link.voice.clone();
                        let answer = self.link.hear(line);
                        self.saying = answer.map(|answer| Box::pin(async move { drop(voice.say(answer).await) }) as Pin<Box<_>>);
                    }
                    None => self.input_over = true,
                }
                None
            }
            reason = expiry(deadline) => Some(reason),
        }
    }

    /// The next deadline of the connection, and its reason.
    fn deadline(&self) -> Option<(Moment, Reason)> {
        let closing = self.closing.map(|closing| (closing.deadline(self.grace), Reason::StdinClosed));
        let expires = self.expires.map(|expires| (expires, Reason::MaxAge));
        closing.into_iter().chain(expires).min_by_key(|(moment, _)| *moment)
    }

    fn saw(&mut self, seen: Seen) -> Option<Reason> {
        match seen {
            Seen::Lost(reason) => Some(reason),
            Seen::Signal(signal) => Some(Reason::Signal { signal }),
            Seen::Requested => Some(Reason::Requested),
            Seen::InputOver => {
                self.closing.get_or_insert(Closing { since: Moment::now(), sent: None });
                None
            }
            Seen::Child => {
                let looked = self.link.lease.borrow_mut().look_after_keeper();
                if let Err(error) = looked {
                    self.link.tell(Notice::Warning(format!("cannot start another keeper: {error}")));
                }
                None
            }
        }
    }

    /// Ends the upstream sessions. After a signal meanwhile, the keeper does the rest.
    async fn end(mut self, reason: Reason) -> Ended {
        let began = Moment::now();
        let link = Rc::clone(&self.link);
        let (session, server) = link.lease.borrow().names();
        link.tell(Notice::Ending { session, server, why: reason.clone() });
        link.lease.borrow().ending();
        if reason == Reason::UpstreamForgot {
            // The host is still there and waits for responses to requests that were not sent.
            for ask in link.state.borrow_mut().outbox.clear().iter().flat_map(|parcel| &parcel.asks) {
                let (voice, line) = (link.voice.clone(), Trouble::Lost.answer(ask));
                link.tasks.spawn_local(async move { drop(voice.say(line).await) });
            }
        }
        // From here on, leash sends only DELETE upstream and reads no responses: for the host, the connection is over.
        link.stop.cancel();
        self.sweeper.hurry.by(began);
        link.tasks.close();
        let letting_go = async {
            let claim = link.lease.borrow().claim().cloned();
            let deleted = match &claim {
                Some(Claim::Session(ticket)) => Some(delete::delete(&link.client, ticket).await),
                Some(Claim::Stream(_)) => Some(Deleted::closed()),
                None => None,
            };
            // The tasks also end the sessions that were replaced.
            link.tasks.wait().await;
            deleted
        };
        let flushed = link.voice.flush(limits::FLUSH);
        // Signals often come in pairs: a closing terminal hangs up, a host sends SIGINT and then SIGTERM. The second
        // signal must not cut off a DELETE that has just begun, so the DELETE always gets this time.
        let least = began + limits::KEEPER_ANSWER;
        let hurried = async {
            loop {
                if let Seen::Signal(_) | Seen::Requested = self.tower.next().await {
                    link.client.hurry.by(least.max(Moment::now()));
                    link.last_call.cancel();
                }
            }
        };
        // The host may have left during its handshake. The session that the upstream is opening must be ended, too.
        let last_call = async {
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::DELETE_TRY).await;
            link.last_call.cancel();
            std::future::pending::<()>().await;
        };
        let deleted = tokio::select! {
            (deleted, ()) = async { tokio::join!(letting_go, flushed) } => deleted,
            () = hurried => None,
            () = last_call => None,
        };
        self.finish(reason, deleted, Moment::now() - began)
    }

    fn finish(&self, reason: Reason, deleted: Option<Deleted>, took: Duration) -> Ended {
        let link = &self.link;
        let mut lease = link.lease.borrow_mut();
        if deleted.as_ref().is_some_and(|deleted| deleted.cut_short) {
            // The keeper was not told of an end, so it takes over when this process exits.
            link.tell(Notice::Warning("the keeper will end the upstream session".to_owned()));
            return Ended { reason, receipt: None };
        }
        // If the upstream was never reached, there is nothing to record.
        let receipt = link.reached.get().then(|| lease.receipt(reason.clone(), took, deleted.as_ref()));
        if let Some(receipt) = &receipt {
            let path = &self.places.receipts;
            if let Err(error) = receipts::append_once(path, receipt) {
                link.tell(Notice::Warning(format!("cannot write {}: {error}", path.display())));
                if receipts::is_shortage(&error) {
                    // The keeper was not told of an end, so it takes over when this process exits. Without a keeper,
                    // the next start does.
                    return Ended { reason, receipt: Some(receipt.clone()) };
                }
            }
        }
        link.check_written(lease.close());
        if let Some(receipt) = &receipt {
            link.tell(Notice::Ended(Box::new(receipt.clone())));
        }
        Ended { reason, receipt }
    }
}

/// Waits until leash's own response is queued. Never returns if there is none.
async fn said(saying: &mut Option<Pin<Box<dyn Future<Output = ()>>>>) {
    match saying {
        Some(line) => {
            line.await;
            *saying = None;
        }
        None => std::future::pending().await,
    }
}

async fn expiry(deadline: Option<(Moment, Reason)>) -> Reason {
    match deadline {
        Some((moment, reason)) => {
            tokio::time::sleep_until(tokio::time::Instant::now() + moment.since(Moment::now())).await;
            reason
        }
        None => std::future::pending().await,
    }
}

/// Ends the sessions that dead connections and gateways have left open, in a task of its own.
async fn sweep(link: Rc<Link>, sweeper: Client, places: Places) {
    let known = |entry: &Entry| {
        (delete::shown(&link.upstream.url) == entry.url)
            .then(|| Known { url: link.upstream.url.clone(), headers: link.base_headers() })
    };
    sweep::books(&sweeper, &places, &known, &|notice| link.tell(notice)).await;
}
