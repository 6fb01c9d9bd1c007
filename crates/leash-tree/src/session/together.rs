//! One receipt for a session of which several members wrote one each.

use std::collections::BTreeMap;

use leash_model::receipt::{EndedBy, Holding, Reason, Receipt};

/// The receipt of a session, out of those of its members: everything that it held, from the first sign of the end to the last
/// proof. What two of them tell of is there once: a gateway tells of the trees that told of themselves. `None` without any.
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
        // The promise of several trees is that of the weakest.
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

/// Somebody asked for the end, and not all may have waited for that; otherwise the first to go knows why.
fn reason(members: &[Receipt]) -> &Reason {
    let asked = members.iter().map(|member| &member.reason).find(|reason| **reason == Reason::Requested);
    let earliest =
        || members.iter().min_by_key(|member| member.ended_ms).map_or(&Reason::Requested, |first| &first.reason);
    asked.unwrap_or_else(earliest)
}

/// Of two who saw to an end, the one whose part was the less planned: that is the one worth knowing of.
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

/// Whether two receipts speak of the same tree. Of upstream sessions only the beginnings of their ids are known, which many share.
fn is_same(a: &Holding, b: &Holding) -> bool {
    match (a, b) {
        (Holding::Tree(a), Holding::Tree(b)) => a.leader.is_some() && a.leader == b.leader,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
