//! One line of the host on its way upstream, and everything that comes back for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Method, Response};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::super::notice::Notice;
use super::backoff::BackOff;
use super::feed::{self, Fed, Feed, Place};
use super::link::{Complaint, Link, Mode};
use super::listen::Next;
use super::parcel::{Ask, Parcel, What};
use super::reply::{Refusal, Reply, Trouble, one_line};
use super::wire::{Answer, Outgoing};
use super::{listen, old, open};
use crate::limits;
use crate::protocol::envelope::{IdKey, Message};
use crate::protocol::era::Era;

/// A line that was sent.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) era: Era,
    parcel: Parcel,
    /// The session it was sent in.
    generation: u64,
    /// What is not answered.
    open: RefCell<Vec<Ask>>,
    /// It takes up room among those in flight.
    counted: Cell<bool>,
    /// leash's own: the host is told nothing of it.
    silent: bool,
    /// The host took it back, by a notification that went upstream: no answer is expected.
    taken_back: CancellationToken,
    /// It is no longer of interest: drop it.
    cancel: CancellationToken,
    /// Everything is answered, or taken back.
    settled: CancellationToken,
}

impl Exchange {
    /// A line of the host.
    pub(super) fn begin(parcel: Parcel, generation: u64) -> Rc<Exchange> {
        Rc::new(Exchange::new(parcel, generation, false))
    }

    /// Something that leash sends by itself.
    pub(super) fn silent(parcel: Parcel, generation: u64) -> Rc<Exchange> {
        Rc::new(Exchange::new(parcel, generation, true))
    }

    fn new(parcel: Parcel, generation: u64, silent: bool) -> Exchange {
        let settled = CancellationToken::new();
        if parcel.asks.is_empty() {
            settled.cancel();
        }
        Exchange {
            number: parcel.number,
            what: parcel.what.clone(),
            era: parcel.era,
            open: RefCell::new(parcel.asks.clone()),
            parcel,
            generation,
            counted: Cell::new(!silent),
            silent,
            taken_back: CancellationToken::new(),
            cancel: CancellationToken::new(),
            settled,
        }
    }

    pub(super) fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    pub(super) fn line(&self) -> &Bytes {
        &self.parcel.line
    }

    /// Whether the host is told nothing of it.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether it asks this, and was not answered.
    pub(super) fn awaits(&self, key: &IdKey) -> bool {
        self.open.borrow().iter().any(|ask| ask.key == *key)
    }

    /// This was answered.
    pub(super) fn answered(&self, key: &IdKey) -> Option<Ask> {
        let mut open = self.open.borrow_mut();
        let place = open.iter().position(|ask| ask.key == *key)?;
        let ask = open.remove(place);
        if open.is_empty() {
            self.settled.cancel();
        }
        Some(ask)
    }

    /// Whether nothing is left to be answered.
    pub(super) fn is_answered(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// The host wants no answer any more; the upstream will see that its connection is closed.
    pub(super) fn cancel(&self) {
        self.open.borrow_mut().clear();
        self.cancel.cancel();
    }

    /// The host wants no answer any more, and the upstream is told by the notification that follows.
    pub(super) fn cancelled_by_host(&self) {
        if self.open.borrow().len() == 1 && self.what != What::Initialize {
            self.taken_back.cancel();
        }
    }

    /// Waits until nothing is expected any more of what the host took back. Some servers answer all the same, at once.
    async fn given_up(&self) {
        self.taken_back.cancelled().await;
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::AFTER_ANSWER).await;
    }

    /// Whether it was still counted until now.
    pub(super) fn leave(&self) -> bool {
        self.counted.replace(false)
    }

    /// It was accepted, and if it asks for nothing, the next line may go.
    pub(super) fn accepted(&self, link: &Link) {
        if self.what == What::Initialized && !self.silent {
            link.state.borrow_mut().initialized = Some(self.parcel.line.clone());
        }
        if self.parcel.asks.is_empty() {
            link.through(self);
        }
    }

    /// Waits until everything is answered, or taken back.
    pub(super) async fn settled(&self) {
        self.settled.cancelled().await;
    }
}

/// How an exchange ended.
pub(super) enum End {
    /// All is well, or nobody waits any more.
    Settled,
    /// What is unanswered never will be.
    Failed(Trouble),
    /// The session was lost before it was dealt with.
    Lost(Trouble),
}

/// Sends a line and passes on what comes back, to its end.
pub(super) async fn run(link: Rc<Link>, exchange: Rc<Exchange>) {
    let end = tokio::select! {
        biased;
        () = exchange.cancel.cancelled() => End::Settled,
        () = exchange.given_up() => End::Settled,
        end = carry(&link, &exchange) => end,
    };
    match end {
        End::Settled => {}
        End::Failed(trouble) => fail(&link, &exchange, &trouble).await,
        End::Lost(trouble) => lose(&link, &exchange, trouble).await,
    }
    link.forget(&exchange);
}

/// Answers what is unanswered.
pub(super) async fn fail(link: &Rc<Link>, exchange: &Exchange, trouble: &Trouble) {
    let open = exchange.open.take();
    if exchange.taken_back.is_cancelled() || exchange.silent {
        return;
    }
    if open.is_empty() {
        let complaint = if let Trouble::Refused(_) = trouble { Complaint::Refused } else { Complaint::Unreachable };
        return link.complain(complaint, || format!("a notification did not get through: {trouble}"));
    }
    for ask in &open {
        // The host may be gone; the driver notices.
        let _ = link.voice.say(trouble.answer(ask)).await;
    }
}

/// The upstream does not know the session any more: what was sent goes again in a new one, once.
async fn lose(link: &Rc<Link>, exchange: &Rc<Exchange>, trouble: Trouble) {
    let outdated = link.state.borrow().generation != exchange.generation;
    let again = link.revives && !exchange.parcel.repeated && !exchange.taken_back.is_cancelled();
    if again {
        link.done(exchange);
        link.state.borrow_mut().outbox.give_back(exchange.parcel.clone());
    } else {
        fail(link, exchange, if link.revives { &trouble } else { &Trouble::Lost }).await;
    }
    if !outdated {
        open::lost(link, trouble);
    }
    link.wake.notify_one();
}

async fn carry(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    if exchange.what == What::Initialize {
        return match tokio::time::timeout(limits::INIT_TIMEOUT, open::initialize(link, exchange)).await {
            Ok(end) => end,
            Err(_) => End::Failed(Trouble::Late),
        };
    }
    let mode = link.state.borrow().mode.clone();
    let sent = match mode {
        Mode::Unknown | Mode::Streamable => post(link, exchange).await,
        Mode::Old(_) => return old::carry(link, exchange).await,
    };
    let answer = match sent {
        Ok(answer) => answer,
        Err(end) => return end,
    };
    if exchange.what == What::Initialized && !exchange.silent {
        listen::begin(link);
    }
    receive(link, exchange, answer.response).await
}

/// Sends something that asks for nothing, by whichever transport.
pub(super) async fn accept(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    carry(link, exchange).await
}

/// POSTs a line; the next one may go as soon as this one is on its way, or accepted.
async fn post(link: &Rc<Link>, exchange: &Rc<Exchange>) -> Result<Answer, End> {
    let headers = link.post_headers(&exchange.what, exchange.era, &exchange.parcel.line);
    let url = link.state.borrow().endpoint.clone();
    let answer = deliver(
        link,
        exchange,
        Outgoing { method: Method::POST, url, headers, body: exchange.parcel.line.clone(), handed: None },
    );
    let answer = answer.await.map_err(End::Failed)?;
    link.works();
    let (status, head) = (answer.response.status(), answer.response.headers());
    if Reply::of(status, head) != Reply::Refused {
        link.state.borrow_mut().mode = Mode::Streamable;
        return Ok(answer);
    }
    let refusal = refused(answer.response).await;
    let in_session =
        exchange.era == Era::Legacy && link.state.borrow().session.as_ref().is_some_and(|session| session.id.is_some());
    let trouble = Trouble::Refused(refusal.clone());
    Err(if in_session && refusal.forgets_session() { End::Lost(trouble) } else { End::Failed(trouble) })
}

/// Sends a request of an exchange and opens the way for the next line: behind a request when its body was handed over, behind
/// anything else when the answer came, or took too long.
pub(super) async fn deliver(link: &Rc<Link>, exchange: &Exchange, mut outgoing: Outgoing) -> Result<Answer, Trouble> {
    let (handing, handed) = oneshot::channel();
    outgoing.handed = Some(handing);
    let answer = link.wire.send(outgoing);
    tokio::pin!(answer);
    let first = async {
        match exchange.what {
            // Nothing overtakes the beginning of a session.
            What::Initialize => std::future::pending().await,
            // An error says that it never will be handed over.
            What::Request | What::Listen => drop(handed.await),
            _ => drop(tokio::time::timeout(limits::ACCEPT, std::future::pending::<()>()).await),
        }
    };
    tokio::select! {
        biased;
        answer = &mut answer => return answer.map_err(Trouble::Wire),
        () = first => link.through(exchange),
    }
    answer.await.map_err(Trouble::Wire)
}

/// The body of an answer that is no success, as far as it can be read.
pub(super) async fn refused(response: Response<Incoming>) -> Refusal {
    let status = response.status();
    let body = Limited::new(response.into_body(), limits::REFUSAL).collect();
    let body = tokio::time::timeout(limits::ACCEPT, body).await;
    Refusal { status, body: body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default() }
}

/// Passes on what comes back for a line that was accepted.
pub(super) async fn receive(link: &Rc<Link>, exchange: &Rc<Exchange>, response: Response<Incoming>) -> End {
    exchange.accepted(link);
    if Reply::of(response.status(), response.headers()) == Reply::Stream {
        return follow(link, exchange, Feed::new(response.into_body())).await;
    }
    let Ok(body) = Limited::new(response.into_body(), limits::LINE).collect().await else {
        return End::Failed(Trouble::Cut);
    };
    let body: Bytes = body.to_bytes();
    if body.trim_ascii().is_empty() {
        return unanswered(link, exchange).await;
    }
    match pass(link, Some(exchange), &body).await {
        true if exchange.is_answered() => End::Settled,
        true => End::Failed(Trouble::Nothing),
        // Some servers answer a notification with a word; that is no message, and nobody needs it.
        false if exchange.parcel.asks.is_empty() => End::Settled,
        false => End::Failed(Trouble::Garbage),
    }
}

/// A request was accepted without an answer: it can still come on a stream that is open.
async fn unanswered(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    if exchange.is_answered() {
        return End::Settled;
    }
    loop {
        let deaf = link.deaf.notified();
        if link.state.borrow().listeners == 0 || exchange.what == What::Initialize {
            return End::Failed(Trouble::Nothing);
        }
        tokio::select! {
            biased;
            () = exchange.settled() => return End::Settled,
            () = deaf => {}
        }
    }
}

/// Passes on a stream until everything is answered; takes it up again where it breaks, if it can be.
async fn follow(link: &Rc<Link>, exchange: &Rc<Exchange>, feed: Feed) -> End {
    let mut place = Place::default();
    let mut back_off = BackOff::default();
    drain(link, exchange, feed, &mut place).await;
    loop {
        if exchange.is_answered() || exchange.taken_back.is_cancelled() {
            return End::Settled;
        }
        // Modern streams can't be taken up, and others only where the server has numbered their events.
        if exchange.era == Era::Modern || place.last_id.is_none() || exchange.what == What::Initialize {
            return End::Failed(Trouble::Cut);
        }
        if let Some(retry) = place.retry {
            back_off.asked(retry);
        }
        let pause = tokio::time::sleep_until(tokio::time::Instant::now() + back_off.next());
        tokio::select! {
            () = exchange.settled.cancelled() => return End::Settled,
            () = pause => {}
        }
        match listen::get(link, place.last_id.as_deref()).await {
            Ok(feed) => {
                let before = place.last_id.clone();
                drain(link, exchange, feed, &mut place).await;
                if place.last_id != before {
                    back_off.worked();
                }
            }
            Err(listen::Closed::Unreachable) => {}
            Err(listen::Closed::Refused(refusal)) => match listen::next(link, &refusal) {
                Next::Again => {}
                Next::Never => return End::Failed(Trouble::Cut),
                Next::Lost => {
                    open::lost(link, Trouble::Refused(refusal));
                    return End::Failed(Trouble::Cut);
                }
            },
        }
    }
}

/// Passes on a stream until it is over. After the last answer it is given a moment: what follows is rare, and a server that never
/// closes must not hold a connection for ever.
async fn drain(link: &Rc<Link>, exchange: &Rc<Exchange>, mut feed: Feed, place: &mut Place) {
    let enough = async {
        exchange.settled.cancelled().await;
        link.done(exchange);
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::AFTER_ANSWER).await;
    };
    tokio::pin!(enough);
    loop {
        let fed = tokio::select! {
            fed = feed.next() => fed,
            () = &mut enough => return,
        };
        match fed {
            Fed::Event(event) => {
                place.pass(&event);
                if let Some(message) = feed::message(&event) {
                    pass(link, Some(exchange), &message).await;
                }
            }
            Fed::TooLarge => {
                link.tell(Notice::Warning("upstream sent an event that is too large; it is left out".to_owned()))
            }
            Fed::Over => return,
        }
    }
}

/// Passes a message on to the host; false if it is none.
pub(super) async fn pass(link: &Rc<Link>, exchange: Option<&Rc<Exchange>>, bytes: &[u8]) -> bool {
    let Ok(message) = Message::read(bytes) else {
        link.complain(Complaint::Garbage, || "upstream sends something that is not MCP; it is left out".to_owned());
        return false;
    };
    // What opens a session is known before the host is told.
    let silent = link.foresee(exchange, &message);
    if !silent {
        // Said first: what the host has not been told is not answered. It may be gone; the driver notices.
        let _ = link.voice.say(one_line(bytes)).await;
    }
    link.settle(exchange, &message);
    true
}
