//! Starts a modern tree, and asks the server for its era.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{sync::oneshot, time::timeout};

use super::machine::{EraAnswer, KnownEra};
use super::{NoTree, PrincipalTree, exchange, tree::ModernTree};
use crate::state::gateway::{Gateway, SessionSlot};
use crate::{call::Call, connection::Principal, state::server::Server, stdio::shared_trees};
use leash_model::{receipt::Reason, start_failure::StartFailure};
use leash_protocol::envelope::{Envelope, Message, Splice};
use leash_upstream::origin::Origin;

const DISCOVER: &str = "server/discover";

/// The prefix of the protocol's own keys in `_meta`. Other keys, such as a progress token, are about the client's own
/// request.
const RESERVED: &str = "io.modelcontextprotocol/";

/// A running tree, and the answer to the question if leash asked it.
pub(super) struct Probed {
    pub(super) tree: Rc<ModernTree>,
    pub(super) answer: Option<Bytes>,
}

/// Starts a principal's tree, whose place is taken already. The start continues if the client disconnects meanwhile,
/// since other clients may wait for the tree.
pub(super) async fn start(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    (call, slot): (&Call, SessionSlot),
    envelope: &Envelope<'_>,
) -> Result<Probed, NoTree> {
    let (done, started) = oneshot::channel();
    let (question, principal, origin) = (question(envelope), call.principal, call.client.origin);
    let (keeper_link, server) = (Rc::clone(gateway), Rc::clone(server));
    gateway.tasks.spawn_local(async move {
        let probed = begin(&keeper_link, &server, (principal, origin, slot), &question).await;
        let mut trees = shared_trees(&server).modern.trees.borrow_mut();
        match &probed {
            Ok(probed) if probed.tree.usable() => {
                drop(trees.insert(principal, PrincipalTree::Running(Rc::clone(&probed.tree))))
            }
            // Only while the place is still that of this start: if the tree ended, another one may have the place.
            _ if matches!(trees.get(&principal), Some(PrincipalTree::Starting(None))) => drop(trees.remove(&principal)),
            _ => {}
        }
        drop(trees);
        shared_trees(&server).modern.changed.notify_waiters();
        let _ = done.send(probed);
    });
    started.await.unwrap_or(Err(NoTree::Start(StartFailure::Ended)))
}

async fn begin(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    (principal, origin, slot): (Principal, Origin, SessionSlot),
    question: &[u8],
) -> Result<Probed, NoTree> {
    let tree = ModernTree::start(gateway, server, (principal, origin)).await.map_err(NoTree::Start)?;
    let living = Rc::clone(&tree);
    gateway.tasks.spawn_local(async move {
        living.live().await;
        drop(slot);
    });
    shared_trees(server).modern.trees.borrow_mut().insert(principal, PrincipalTree::Starting(Some(Rc::clone(&tree))));
    if gateway.draining.get() || server.stop.is_given() {
        tree.end(&Reason::Shutdown);
        return Err(NoTree::Start(StartFailure::Ended));
    }
    let era = &shared_trees(server).modern.era;
    if era.get() == KnownEra::Modern {
        return Ok(Probed { tree, answer: None });
    }
    let wait = server.settings().policy.init_timeout;
    let answer = timeout(wait, ask(&tree, question)).await.ok().flatten();
    let meaning = match &answer {
        Some(answer) if exchange::is_modern(answer) => EraAnswer::Modern,
        Some(_) => EraAnswer::Legacy,
        None => EraAnswer::None,
    };
    if meaning == EraAnswer::Modern {
        era.set(KnownEra::Modern);
        return Ok(Probed { tree, answer });
    }
    // If leash itself ended the tree, the missing answer says nothing about the server. Another principal's tree may
    // have found the era meanwhile.
    let is_telling = !tree.was_ended() && !era.get().is_certain();
    tree.end(&Reason::NotInitialized);
    if !is_telling {
        return Err(NoTree::Start(StartFailure::Ended));
    }
    era.set(era.get().after(meaning));
    Err(NoTree::LegacyOnly)
}

async fn ask(tree: &Rc<ModernTree>, question: &[u8]) -> Option<Bytes> {
    let Ok(Message::One(envelope)) = Message::read(question) else { return None };
    tree.ask(question, &envelope).await.ok()?.answer().await
}

/// `server/discover` as this client would ask it.
fn question(envelope: &Envelope<'_>) -> Vec<u8> {
    let fields = |object: &'_ RawValue| {
        serde_json::from_str::<BTreeMap<Cow<'_, str>, Box<RawValue>>>(object.get()).unwrap_or_default()
    };
    let meta =
        envelope.params.and_then(|params| fields(params).remove("_meta")).map(|meta| fields(&meta)).unwrap_or_default();
    let reserved = meta.iter().filter(|(name, _)| name.starts_with(RESERVED));
    let meta: Vec<String> =
        reserved.map(|(name, value)| format!("{}:{value}", serde_json::Value::from(&**name))).collect();
    let params = format!(r#"{{"_meta":{{{}}}}}"#, meta.join(","));
    format!(r#"{{"jsonrpc":"2.0","id":"leash-probe","method":"{DISCOVER}","params":{params}}}"#).into_bytes()
}

/// The answer to leash's question, with the id of the client's request, if the client asked the same.
pub(super) fn answer_to(envelope: &Envelope<'_>, answer: &[u8]) -> Option<Bytes> {
    let (Ok(Message::One(theirs)), Some(id)) = (Message::read(answer), envelope.id) else { return None };
    if envelope.method.as_deref() != Some(DISCOVER) {
        return None;
    }
    Some(Splice::new(answer).replace(theirs.id?, id.get()).finish().into())
}
