//! The main loop of a connection: it begins, passes lines until an event ends it, and ends the upstream sessions it
//! holds.

use std::{io, os::fd::OwnedFd, pin::Pin, rc::Rc, time::Duration};

use tokio::task::JoinHandle;

use crate::connection::{Connection, ConnectionParts};
use crate::machine::{Event, State, UpstreamTransport};
use crate::notices::Notices;
use crate::pipe::{HostInput, HostQueue, StdoutClosed};
use crate::process_events::{ProcessEvent, ProcessEvents};
use crate::response::RequestFailure;
use crate::upstream_sessions::UpstreamSessions;
use crate::{ConnectError, ConnectSettings, ConnectionEnd, TransportChoice, revive, send};
use leash_model::clock::{self, Moment};
use leash_model::owner::{Owner, OwnerWish};
use leash_model::{id, limits, receipt::Reason};
use leash_protocol::frame::Line;
use leash_tree::ledger::book::{Book, Entry, Membership};
use leash_tree::tree::first_look::{FirstLook, listened};
use leash_tree::{owner, places::Places, platform::linux, platform::proc::Proc};
use leash_upstream::client::UpstreamClient;
use leash_upstream::keeper::connection_facts::ConnectionFacts;
use leash_upstream::notice::Notice;
use leash_upstream::runtime::runtime;
use leash_upstream::sweep::{self, ServerAccess};
use leash_upstream::{delete, keeper};

/// Runs a connection to its end. It blocks, and uses the process's signals, stdin and stdout.
pub fn connect(settings: ConnectSettings, first: FirstLook) -> Result<ConnectionEnd, ConnectError> {
    let (watches, signals) = watch_owners(&settings.owners, first)?;
    block_on(async {
        let events = |watches| ProcessEvents::watch(watches, signals).map_err(ConnectError::Start);
        let driver = Driver::begin(settings, watches, events)?;
        Ok(driver.run_to_end().await)
    })
}

/// Finds the owners of this process, and listens to its signals.
pub(crate) fn watch_owners(
    owners: &[OwnerWish],
    first: FirstLook,
) -> Result<(Vec<owner::OwnerWatch>, OwnedFd), ConnectError> {
    let (parent, inherited) = first.into_parts();
    let signals = linux::listen(&listened(inherited)).map_err(ConnectError::Signals)?;
    linux::survive_file_size_limit();
    let proc = Proc::own().ok();
    let watches =
        owner::find(owners, parent, rustix::stdio::stdin(), proc.as_ref(), inherited).map_err(ConnectError::Owner)?;
    Ok((watches, signals))
}

/// Blocks until the work of this process is done.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, ConnectError>>) -> Result<T, ConnectError> {
    let runtime = runtime().map_err(ConnectError::Start)?;
    let over = runtime.block_on(work);
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
    connection: Rc<Connection>,
    input: HostInput,
    /// All lines of the host were read.
    input_over: bool,
    events: ProcessEvents,
    writer: JoinHandle<Result<(), StdoutClosed>>,
    /// leash's own response to the host while it waits for room in the queue.
    own_response: Option<Pin<Box<dyn Future<Output = ()>>>>,
    grace: Duration,
    expires: Option<Moment>,
    closing: Option<Closing>,
    sweeper: UpstreamClient,
    places: Places,
}

impl Driver {
    fn begin(
        settings: ConnectSettings,
        watches: Vec<owner::OwnerWatch>,
        events: impl FnOnce(Vec<owner::OwnerWatch>) -> Result<ProcessEvents, ConnectError>,
    ) -> Result<Driver, ConnectError> {
        let ConnectSettings {
            upstream,
            shown,
            transport,
            revive,
            session,
            name,
            labels,
            grace,
            max_age,
            places,
            tell,
            ..
        } = settings;
        let run = id::random();
        let facts = ConnectionFacts {
            session: session.unwrap_or_else(|| run.clone()),
            run,
            name: name.unwrap_or_else(|| upstream.url.host().unwrap_or_default().to_owned()),
            labels,
            shown,
            started_ms: clock::unix_ms(),
        };
        let address = facts.shown.clone().unwrap_or_else(|| delete::shown(&upstream.url));
        let member = Membership {
            session: facts.session.clone(),
            name: facts.name.clone(),
            labels: facts.labels.clone(),
            owners: watches.iter().map(|watch| watch.owner.clone()).collect(),
        };
        let book = Book::of_connection(&places, &facts.run, member).map_err(ConnectError::Ledger)?;
        let owners = keeper::watched(&watches).map(copy).collect::<io::Result<_>>().map_err(ConnectError::Start)?;
        let events = events(watches)?;
        let input = HostInput::open().map_err(ConnectError::Start)?;
        let (host, writer) = HostQueue::open().map_err(ConnectError::Start)?;
        let transport = match transport {
            TransportChoice::Auto => UpstreamTransport::Unknown,
            TransportChoice::Streamable => UpstreamTransport::Streamable(upstream.url.clone()),
            TransportChoice::HttpSse => UpstreamTransport::HttpSse(None),
        };
        let sessions = UpstreamSessions::new(facts, places.clone(), book, owners);
        let notices = Notices::new(tell);
        let parts = ConnectionParts { upstream, shown: address, transport, revives: revive, host, sessions, notices };
        let connection = Connection::new(parts);
        Ok(Driver {
            connection,
            input,
            input_over: false,
            events,
            writer: tokio::task::spawn_local(writer.run()),
            own_response: None,
            grace,
            expires: max_age.map(|age| Moment::on_runtime() + age),
            closing: None,
            sweeper: UpstreamClient::new(),
            places,
        })
    }

    async fn run_to_end(mut self) -> ConnectionEnd {
        self.connection.tasks.spawn_local(sweep(
            Rc::clone(&self.connection),
            self.sweeper.clone(),
            self.places.clone(),
        ));
        let reason = loop {
            if let Some(reason) = self.step().await {
                break reason;
            }
        };
        self.end(reason).await
    }

    /// Starts the tasks that are due, waits for one event, and handles it. Returns the reason if the connection is
    /// over.
    async fn step(&mut self) -> Option<Reason> {
        self.start_tasks();
        if let Some(reason) = self.connection.life().end_reason() {
            return Some(reason.clone());
        }
        if self.input_over && self.own_response.is_none() {
            let sent = self.connection.traffic.borrow().outbox.is_sent();
            let closing = self.closing.get_or_insert_with(|| Closing { since: Moment::on_runtime(), sent: None });
            if sent && closing.sent.is_none() {
                closing.sent = Some(Moment::on_runtime());
            }
            if !self.connection.is_busy() {
                return Some(Reason::StdinClosed);
            }
        }
        let reads =
            !self.input_over && self.own_response.is_none() && self.connection.traffic.borrow().outbox.has_room();
        let deadline = self.deadline();
        tokio::select! {
            event = self.events.next() => self.handle(event),
            () = self.connection.wake.notified() => None,
            _ = &mut self.writer => Some(Reason::ClientLeft),
            () = queued(&mut self.own_response) => None,
            line = self.input.next(), if reads => {
                match line {
                    Some(line) => self.queue_line(line),
                    None => self.input_over = true,
                }
                None
            }
            reason = expiry(deadline) => Some(reason),
        }
    }

    fn queue_line(&mut self, line: Line) {
        let Some(response) = self.connection.queue_line(line) else { return };
        let host = self.connection.host.clone();
        self.own_response = Some(Box::pin(async move { drop(host.send(response).await) }));
    }

    /// Sends the messages that may be sent, and opens a lost session again.
    fn start_tasks(&self) {
        let connection = &self.connection;
        if connection.revival_due.take() {
            connection.spawn(revive::revive(Rc::clone(connection)));
        }
        while let Some(exchange) = connection.next_exchange() {
            connection.spawn(send::send(Rc::clone(connection), exchange));
        }
    }

    /// The next deadline of the connection, and its reason.
    fn deadline(&self) -> Option<(Moment, Reason)> {
        let closing = self.closing.map(|closing| (closing.deadline(self.grace), Reason::StdinClosed));
        let expires = self.expires.map(|expires| (expires, Reason::MaxAge));
        closing.into_iter().chain(expires).min_by_key(|(moment, _)| *moment)
    }

    fn handle(&mut self, event: ProcessEvent) -> Option<Reason> {
        match event {
            ProcessEvent::OwnerGone(reason) => Some(reason),
            ProcessEvent::Signal(signal) => Some(Reason::Signal { signal }),
            ProcessEvent::EndRequested => Some(Reason::LEASH_END),
            ProcessEvent::StdinClosed => {
                self.closing.get_or_insert(Closing { since: Moment::on_runtime(), sent: None });
                None
            }
            ProcessEvent::ChildExited => {
                let restarted = self.connection.sessions.borrow_mut().restart_keeper();
                if let Err(error) = restarted {
                    self.connection.notices.warn(format!("cannot start another keeper: {error}"));
                }
                None
            }
        }
    }

    /// Ends the upstream sessions. After a signal meanwhile, the keeper does the rest.
    async fn end(mut self, reason: Reason) -> ConnectionEnd {
        let began = Moment::on_runtime();
        let connection = Rc::clone(&self.connection);
        connection.apply(Event::End(reason.clone()));
        // The end may have begun before, for another reason.
        let reason = connection.life().end_reason().cloned().unwrap_or(reason);
        if reason == Reason::UpstreamForgot {
            self.answer_unsent();
        }
        // From here on, leash sends only DELETE upstream and reads no responses: for the host, the connection is over.
        connection.stop.cancel();
        self.sweeper.deadline.set(began);
        connection.tasks.close();
        // The tasks end the sessions, also those that were replaced.
        let ended = async { tokio::join!(connection.tasks.wait(), connection.host.flush(limits::FLUSH)) };
        // Signals often come in pairs: a closing terminal hangs up, a host sends SIGINT and then SIGTERM. The second
        // signal must not cut off a DELETE that has just begun, so the DELETE always gets this time.
        let least = began + limits::KEEPER_ANSWER;
        let hurried = async {
            loop {
                if let ProcessEvent::Signal(_) | ProcessEvent::EndRequested = self.events.next().await {
                    connection.delete_client.deadline.set(least.max(Moment::on_runtime()));
                    connection.stop_initialize.cancel();
                }
            }
        };
        // The host may have left during its handshake. The session that the upstream is opening must be ended, too.
        let stop_initialize = async {
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::DELETE_TRY).await;
            connection.stop_initialize.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = ended => {}
            () = hurried => {}
            () = stop_initialize => {}
        }
        connection.apply(Event::Drained);
        self.finish(reason, Moment::on_runtime() - began)
    }

    /// Answers the requests that were not sent: the host is still there and waits for responses.
    fn answer_unsent(&self) {
        let connection = &self.connection;
        let unsent = connection.traffic.borrow_mut().outbox.clear();
        for request in unsent.iter().flat_map(|message| &message.requests) {
            let (host, line) = (connection.host.clone(), RequestFailure::SessionLost.answer(request));
            connection.tasks.spawn_local(async move { drop(host.send(line).await) });
        }
    }

    fn finish(&self, reason: Reason, took: Duration) -> ConnectionEnd {
        let (notices, mut sessions) = (&self.connection.notices, self.connection.sessions.borrow_mut());
        if let State::LeftToKeeper(_) = self.connection.life().state() {
            notices.check_written(sessions.leave_to_keeper());
            notices.warn("the keeper will end the upstream session");
            return ConnectionEnd { reason, receipt: None };
        }
        // If the upstream was never reached, there is nothing to record.
        let receipt = self.connection.reached.get().then(|| sessions.receipt(reason.clone(), took));
        if !sessions.finish(receipt.as_ref(), notices) {
            return ConnectionEnd { reason, receipt };
        }
        if let Some(receipt) = &receipt {
            notices.tell(Notice::Ended(Box::new(receipt.clone())));
        }
        ConnectionEnd { reason, receipt }
    }
}

/// Copies an owner's descriptor for the keeper.
pub(crate) fn copy(watch: &owner::OwnerWatch) -> io::Result<(Owner, OwnedFd)> {
    Ok((watch.owner.clone(), rustix::io::fcntl_dupfd_cloexec(watch, 3)?))
}

/// Waits until leash's own response is queued. Never returns if there is none.
async fn queued(response: &mut Option<Pin<Box<dyn Future<Output = ()>>>>) {
    match response {
        Some(line) => {
            line.await;
            *response = None;
        }
        None => std::future::pending().await,
    }
}

async fn expiry(deadline: Option<(Moment, Reason)>) -> Reason {
    match deadline {
        Some((moment, reason)) => {
            tokio::time::sleep_until(tokio::time::Instant::now() + moment.since(Moment::on_runtime())).await;
            reason
        }
        None => std::future::pending().await,
    }
}

/// Ends the sessions that dead connections and gateways have left open, in a task of its own.
async fn sweep(connection: Rc<Connection>, sweeper: UpstreamClient, places: Places) {
    let known = |entry: &Entry| {
        (delete::shown(&connection.upstream.url) == entry.url)
            .then(|| ServerAccess { url: connection.upstream.url.clone(), headers: connection.base_headers() })
    };
    sweep::books(&sweeper, &places, &known, &|notice| connection.notices.tell(notice)).await;
}
