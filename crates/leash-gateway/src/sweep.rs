//! Sessions at upstream servers that a dead gateway left open, ended by this one in the background.

use std::rc::Rc;

use leash_model::{limits, receipt::Reason};
use leash_tree::ledger::book::Entry;
use leash_upstream::sweep::{Receipted, ServerAccess, SweptBy, books, end, is_repeated};
use leash_upstream::{delete, notice::Notice};
use tokio::sync::Semaphore;

use crate::config::{ServerTarget, Settings};
use crate::{guard, state::gateway::Gateway};

/// Ends the sessions of dead gateways and connections.
pub(crate) async fn sweep(gateway: Rc<Gateway>) {
    let access = |entry: &Entry| access(&gateway.settings(), entry);
    books(&gateway.client, &gateway.places, &access, &|notice| gateway.tell(|| notice)).await;
}

/// Returns the facts about the configured server with the same name and address.
fn access(settings: &Settings, entry: &Entry) -> Option<ServerAccess> {
    match &settings.servers.get(&entry.server)?.target {
        ServerTarget::Url(upstream) if delete::shown(&upstream.url) == entry.url => {
            Some(ServerAccess { url: upstream.url.clone(), headers: upstream.headers.iter().cloned().collect() })
        }
        _ => None,
    }
}

/// Ends the sessions that this gateway took over from a killed gateway and cannot resume.
pub(crate) fn end_remaining(gateway: &Rc<Gateway>, entries: Vec<(Entry, Option<ServerAccess>)>, receipted: Receipted) {
    let (room, receipted) = (Rc::new(Semaphore::new(limits::SWEEP_AT_ONCE)), Rc::new(receipted));
    for (entry, given) in entries {
        let (gateway, room, receipted) = (Rc::clone(gateway), Rc::clone(&room), Rc::clone(&receipted));
        gateway.clone().tasks.spawn_local(async move {
            let _permit = room.acquire().await;
            let access = given.or_else(|| access(&gateway.settings(), &entry));
            // An entry that leash cannot have written, and one that was cut short, stay for the next start.
            let Some(done) = end(gateway.client.clone(), 0, entry, access).await else { return };
            if done.deleted.cut_short {
                return;
            }
            let receipt = done.receipt(SweptBy::NextStart, Reason::Swept);
            if is_repeated(&receipted, &receipt) || guard::write(&gateway, &receipt) {
                guard::note(&gateway, gateway.book.over(&receipt.session));
                gateway.keeper_link.over(&receipt.session);
            }
            gateway.tell(|| Notice::Swept(Box::new(receipt)));
        });
    }
}
