//! Makes one receipt for a session from the receipts of its members.

use std::collections::BTreeMap;

use leash_model::receipt::{EndedBy, Holding, Reason, Receipt};

/// The receipt of a session, made from those of its members: everything that it held, from the first sign of the end to
/// the last proof. A tree in two receipts is listed once: a gateway also reports trees that have their own receipts.
/// `None` if there is no receipt.
pub fn together(session: &str, members: &[Receipt]) -> Option<Receipt> {
    let (first, rest) = members.split_first()?;
    if rest.is_empty() {
        return Some(first.clone());
    }
    let mut whole = Receipt {
        session: session.to_owned(),
        run: session.to_owned(),
        name: names(members),
        labels: BTreeMap::new(),
        reason: reason(members).clone(),
        client: if let [only] = members { only.client.clone() } else { None },
        // The weakest containment gives the promise of several trees.
        containment: members.iter().filter_map(|member| member.containment).min(),
        refused: Vec::new(),
        holdings: Vec::new(),
        dropped_holdings: members.iter().map(|member| member.dropped_holdings).sum(),
        ended_by: first.ended_by,
        ..first.clone()
    };
    for member in members {
        let began = |receipt: &Receipt| receipt.ended_ms.saturating_sub(receipt.took_ms);
        let sign = began(&whole).min(began(member));
        whole.started_ms = whole.started_ms.min(member.started_ms);
        whole.ended_ms = whole.ended_ms.max(member.ended_ms);
        whole.took_ms = whole.ended_ms - sign;
        whole.ended_by = least_planned(whole.ended_by, member.ended_by);
        for (key, value) in &member.labels {
            whole.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for refusal in &member.refused {
            if !whole.refused.contains(refusal) {
                whole.refused.push(refusal.clone());
            }
        }
        for holding in &member.holdings {
            if !whole.holdings.iter().any(|known| is_same(known, holding)) {
                whole.holdings.push(holding.clone());
            }
        }
    }
    Some(whole)
}

/// Each name once, in the order of the members.
fn names(members: &[Receipt]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for member in members {
        if !names.contains(&member.name.as_str()) {
            names.push(&member.name);
        }
    }
    names.join(", ")
}

/// The reason for the whole session: a request if there was one, because some members may have ended for other reasons
/// before. Otherwise the reason of the member that ended first.
fn reason(members: &[Receipt]) -> &Reason {
    let asked = members.iter().map(|member| &member.reason).find(|reason| matches!(reason, Reason::Requested { .. }));
    let earliest =
        || members.iter().min_by_key(|member| member.ended_ms).map_or(&Reason::LEASH_END, |first| &first.reason);
    asked.unwrap_or_else(earliest)
}

/// Of two processes that ended members, the less planned one: it is the more interesting one.
fn least_planned(a: EndedBy, b: EndedBy) -> EndedBy {
    let rank = |by: &EndedBy| match by {
        EndedBy::Keeper => 0,
        EndedBy::Gateway => 1,
        EndedBy::Supervisor => 2,
        EndedBy::Sweep => 3,
        EndedBy::Reap => 4,
    };
    if rank(&b) > rank(&a) { b } else { a }
}

/// True if two receipts are about the same tree. For upstream sessions only the beginnings of their ids are known,
/// which may be equal for many.
fn is_same(a: &Holding, b: &Holding) -> bool {
    match (a, b) {
        (Holding::Tree(a), Holding::Tree(b)) => a.leader.is_some() && a.leader == b.leader,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
