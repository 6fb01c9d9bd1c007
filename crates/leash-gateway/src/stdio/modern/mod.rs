//! The modern era: no sessions, every request is independent. One tree per server and principal, ended when idle.
//!
//! leash asks a server once whether it is of this era, before the first client request reaches it. A server of the
//! legacy era gets no modern requests: leash answers its clients so that they fall back to `initialize`.

mod exchange;
mod machine;
mod probe;
mod tree;

use std::cell::{Cell, RefCell};
use std::{collections::HashMap, rc::Rc};

use bytes::Bytes;
use hyper::StatusCode;
use tokio::sync::Notify;

use super::{events::Events, input::InputClosed};
use crate::respond::{self, Answer};
use crate::{call::Call, connection::Principal, state::gateway::Gateway, state::server::Server, stdio::shared_trees};
use exchange::ModernAnswer;
pub(super) use exchange::status;
use leash_model::{receipt::Reason, start_failure::StartFailure};
use leash_protocol::envelope::{Envelope, EnvelopeKind, Message};
use leash_protocol::headers;
use machine::KnownEra;
pub(super) use tree::ModernTree;

/// The number of just ended trees after which a request fails. Finding a second one takes an idle time of milliseconds.
const TRIES: u32 = 3;

/// The trees of requests that have no session.
#[derive(Default)]
pub(crate) struct ModernTrees {
    trees: RefCell<HashMap<Principal, PrincipalTree>>,
    era: Cell<KnownEra>,
    /// Notified when a tree was started, or could not be.
    changed: Notify,
}

/// A principal's tree.
enum PrincipalTree {
    /// It is being started, or leash is asking it for its era.
    Starting(Option<Rc<ModernTree>>),
    Running(Rc<ModernTree>),
}

impl ModernTrees {
    /// Begins the end of all trees; returns their number.
    pub(crate) fn end_all(&self, reason: &Reason) -> usize {
        let trees: Vec<_> = self.trees.borrow().values().filter_map(PrincipalTree::tree).collect();
        trees.iter().for_each(|tree| tree.end(reason));
        trees.len()
    }

    /// Requests that were not answered yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.running().iter().map(|tree| tree.in_flight()).sum()
    }

    /// Cancels all requests in flight; returns their number.
    pub(crate) fn abort(&self) -> usize {
        self.running().iter().map(|tree| tree.abort()).sum()
    }

    /// The trees that clients use; without those that leash is asking for their era.
    pub(super) fn running(&self) -> Vec<Rc<ModernTree>> {
        self.trees.borrow().values().filter_map(PrincipalTree::running).collect()
    }

    /// Removes a tree that ends; the principal's next request starts another one.
    fn forget(&self, principal: Principal, tree: &ModernTree) {
        let mut trees = self.trees.borrow_mut();
        if trees.get(&principal).and_then(PrincipalTree::tree).is_some_and(|known| std::ptr::eq(&*known, tree)) {
            trees.remove(&principal);
        }
    }
}

impl PrincipalTree {
    fn tree(&self) -> Option<Rc<ModernTree>> {
        match self {
            PrincipalTree::Starting(tree) => tree.clone(),
            PrincipalTree::Running(tree) => Some(Rc::clone(tree)),
        }
    }

    fn running(&self) -> Option<Rc<ModernTree>> {
        match self {
            PrincipalTree::Starting(_) => None,
            PrincipalTree::Running(tree) => Some(Rc::clone(tree)),
        }
    }
}

/// Answers a POST of the modern era.
pub(super) async fn answer(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    call: &Call,
    message: &Message<'_>,
) -> Result<Answer, Answer> {
    let Message::One(envelope) = message else { return Err(respond::invalid_request(None, "a batch")) };
    match envelope.kind {
        EnvelopeKind::Request => request(gateway, server, call, envelope).await,
        // The client gets 202 whether the server gets the notification or not.
        EnvelopeKind::Notification => {
            let tree = shared_trees(server).modern.trees.borrow().get(&call.principal).and_then(PrincipalTree::running);
            if let Some(tree) = tree {
                tree.cancelled(&call.body, envelope);
            }
            Ok(respond::empty(StatusCode::ACCEPTED))
        }
        EnvelopeKind::Response => Err(respond::invalid_request(None, "a response, but the server sent no request")),
    }
}

async fn request(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    call: &Call,
    envelope: &Envelope<'_>,
) -> Result<Answer, Answer> {
    check(call, envelope)?;
    let mut tries = TRIES;
    let exchange = loop {
        tries -= 1;
        let tree = match find(gateway, server, call, envelope).await {
            Ok(AnswerSource::Tree(tree)) => tree,
            Ok(AnswerSource::Answer(answer)) => return Ok(respond::json(status(&answer), answer)),
            Err(failure) => return Err(failure.answer(envelope)),
        };
        tree.check(&call.headers, envelope).map_err(|why| respond::header_mismatch(envelope.id, &why))?;
        match tree.ask(&call.body, envelope).await {
            Ok(exchange) => break exchange,
            // The idle timeout ended the tree just when the request came. Nothing was sent, so the next turn starts
            // another tree.
            Err(InputClosed) if tree.was_ended() && tries > 0 => {}
            Err(InputClosed) => {
                let error = tree.exit_error().await;
                return Err(respond::exited(envelope.id, &error.message, error.data));
            }
        }
    };
    Ok(match exchange.first().await {
        ModernAnswer::Whole(status, body) => respond::json(status, exchange.whole(body)),
        _ => Events::answer(exchange, None),
    })
}

/// Checks the rules for every request, in the order in which the SDKs check them.
fn check(call: &Call, envelope: &Envelope<'_>) -> Result<(), Answer> {
    let meta = envelope.meta();
    if !meta.claims_modern || !meta.client_capabilities {
        return Err(respond::malformed_meta(envelope.id));
    }
    headers::check_modern(&call.headers, envelope).map_err(|why| respond::header_mismatch(envelope.id, &why))?;
    if meta.protocol_version.is_none() {
        return Err(respond::malformed_meta(envelope.id));
    }
    Ok(())
}

/// The source of the answer to a request.
enum AnswerSource {
    Tree(Rc<ModernTree>),
    /// The answer of the server to the same question, which leash asked to find out its era.
    Answer(Bytes),
}

/// The reason that no tree serves a request.
enum NoTree {
    LegacyOnly,
    Start(StartFailure),
    Refused(Answer),
}

impl NoTree {
    fn answer(self, envelope: &Envelope<'_>) -> Answer {
        match self {
            NoTree::LegacyOnly => respond::not_initialized(envelope.id),
            NoTree::Start(failure) => respond::start_failed(envelope.id, &failure),
            NoTree::Refused(answer) => answer,
        }
    }
}

/// Returns the principal's tree, started and known to be modern.
async fn find(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    call: &Call,
    envelope: &Envelope<'_>,
) -> Result<AnswerSource, NoTree> {
    let modern = &shared_trees(server).modern;
    loop {
        let changed = modern.changed.notified();
        if modern.era.get() == KnownEra::LegacyOnly {
            return Err(NoTree::LegacyOnly);
        }
        match modern.trees.borrow().get(&call.principal) {
            Some(PrincipalTree::Running(tree)) => return Ok(AnswerSource::Tree(Rc::clone(tree))),
            Some(PrincipalTree::Starting(_)) => {}
            None => break,
        }
        changed.await;
    }
    let slot = gateway.admit(server, call.client).map_err(NoTree::Refused)?;
    modern.trees.borrow_mut().insert(call.principal, PrincipalTree::Starting(None));
    let probed = probe::start(gateway, server, (call, slot), envelope).await?;
    // If leash asked the server what this client asks, the answer is there already.
    match probed.answer.and_then(|answer| probe::answer_to(envelope, &answer)) {
        Some(answer) => Ok(AnswerSource::Answer(answer)),
        None => Ok(AnswerSource::Tree(probed.tree)),
    }
}
