//! Budgets that all clients share (memory for bodies, sessions), counted per client, so that one client cannot use all
//! of it.

use std::cell::{Cell, RefCell};
use std::{collections::HashMap, hash::Hash, net::IpAddr, rc::Rc};

use leash_upstream::origin::Origin;

use super::connection::Principal;
use leash_model::limits;

/// The client that a share is counted for. A credential counts only together with its origin, because a client can make
/// up any number of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BudgetClient {
    pub(crate) origin: Origin,
    credential: Option<u128>,
}

impl BudgetClient {
    pub(crate) fn of(principal: Principal, peer: IpAddr) -> BudgetClient {
        BudgetClient::at(Origin::of(principal.uid, peer), principal)
    }

    /// The same, if the origin is known.
    pub(crate) fn at(origin: Origin, principal: Principal) -> BudgetClient {
        BudgetClient { origin, credential: principal.credential }
    }
}

/// The limits: for all clients, for all clients of one origin, and for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) all: usize,
    pub(crate) origin: usize,
    pub(crate) client: usize,
}

impl Bounds {
    /// The limits for request bodies, of which each may have up to `largest` bytes.
    pub(crate) fn of_bodies(largest: usize) -> Bounds {
        let part = |parts: usize| (limits::BODIES / parts).max(largest).min(limits::BODIES);
        Bounds { all: limits::BODIES, origin: part(2), client: part(4) }
    }

    /// The limits for sessions: `per_client` if it is configured; otherwise a tenth is reserved for other clients.
    pub(crate) fn of_sessions(most: usize, per_client: Option<usize>) -> Bounds {
        let most_of_it = most - most / 10;
        let client = per_client.unwrap_or(most_of_it);
        Bounds { all: most, origin: client.max(most_of_it), client }
    }
}

/// The amounts in use: by all clients, by each origin and by each client.
#[derive(Default)]
pub(crate) struct Budget {
    used: Cell<usize>,
    origins: RefCell<HashMap<Origin, usize>>,
    clients: RefCell<HashMap<BudgetClient, usize>>,
}

/// The amount that one request or session uses; returned to the budget when it is dropped.
pub(crate) struct Share {
    budget: Rc<Budget>,
    client: BudgetClient,
    bounds: Bounds,
    taken: usize,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// The limit for all clients together.
    All,
    /// The limit for this client or for its origin.
    Client,
}

impl Budget {
    /// A new, empty share of a client.
    pub(crate) fn share(self: &Rc<Self>, client: BudgetClient, bounds: Bounds) -> Share {
        Share { budget: Rc::clone(self), client, bounds, taken: 0 }
    }

    /// The amount that all clients use.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }
}

impl Share {
    /// Takes more, if the limits allow it.
    pub(crate) fn take(&mut self, more: usize) -> Result<(), LimitReached> {
        let Share { budget, client, bounds, .. } = self;
        let (mut origins, mut clients) = (budget.origins.borrow_mut(), budget.clients.borrow_mut());
        let of_origin = origins.get(&client.origin).copied().unwrap_or_default() + more;
        let of_client = clients.get(client).copied().unwrap_or_default() + more;
        if of_origin > bounds.origin || of_client > bounds.client {
            return Err(LimitReached::Client);
        }
        if budget.used.get() + more > bounds.all {
            return Err(LimitReached::All);
        }
        budget.used.update(|used| used + more);
        origins.insert(client.origin, of_origin);
        clients.insert(*client, of_client);
        self.taken += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.taken == 0 {
            return;
        }
        self.budget.used.update(|used| used - self.taken);
        give_back(&mut self.budget.origins.borrow_mut(), &self.client.origin, self.taken);
        give_back(&mut self.budget.clients.borrow_mut(), &self.client, self.taken);
    }
}

/// Reduces a count, and removes it when it is 0.
fn give_back<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K, taken: usize) {
    if let Some(count) = counts.get_mut(key) {
        *count -= taken;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { all: 10, origin: 8, client: 6 };

    fn client(uid: u32, credential: Option<u128>) -> BudgetClient {
        BudgetClient::of(Principal { credential, uid: Some(uid) }, IpAddr::from([127, 0, 0, 1]))
    }

    #[test]
    fn a_share_is_given_back() {
        let budget = Rc::new(Budget::default());
        let (mut one, mut other) = (budget.share(client(1, None), BOUNDS), budget.share(client(2, None), BOUNDS));
        assert_eq!((one.take(4), other.take(4), one.take(2)), (Ok(()), Ok(()), Ok(())));
        assert_eq!((other.take(1), budget.used()), (Err(LimitReached::All), 10));
        drop(one);
        assert_eq!((other.take(2), budget.used()), (Ok(()), 6));
        drop(other);
        assert_eq!(budget.used(), 0);
        assert!(budget.origins.borrow().is_empty() && budget.clients.borrow().is_empty());
    }

    #[test]
    fn one_client_never_takes_all() {
        let budget = Rc::new(Budget::default());
        let mut greedy = budget.share(client(1, None), BOUNDS);
        assert_eq!((greedy.take(6), greedy.take(1)), (Ok(()), Err(LimitReached::Client)));
        assert_eq!(
            budget.share(client(1, None), BOUNDS).take(1),
            Err(LimitReached::Client),
            "another connection is the same client"
        );
        // Another credential is another client, but the same origin.
        let mut disguised = budget.share(client(1, Some(7)), BOUNDS);
        assert_eq!((disguised.take(2), disguised.take(1)), (Ok(()), Err(LimitReached::Client)));
        assert_eq!(budget.share(client(2, None), BOUNDS).take(2), Ok(()));
    }

    #[test]
    fn origins_are_users_addresses_and_networks() {
        let origin = |uid, peer: &str| Origin::of(uid, peer.parse().expect("an address"));
        assert_eq!(origin(Some(5), "127.0.0.1"), origin(Some(5), "::1"));
        assert_ne!(origin(Some(5), "127.0.0.1"), origin(None, "127.0.0.1"));
        assert_eq!(origin(None, "::ffff:192.0.2.1"), origin(None, "192.0.2.1"));
        assert_ne!(origin(None, "192.0.2.1"), origin(None, "192.0.2.2"));
        assert_eq!(origin(None, "2001:db8:1:2::3"), origin(None, "2001:db8:1:2:ffff::4"));
        assert_ne!(origin(None, "2001:db8:1:2::3"), origin(None, "2001:db8:1:3::3"));
    }

    #[test]
    fn bounds_reserve_a_share_for_other_clients() {
        let bounds = |all, origin, client| Bounds { all, origin, client };
        for (most, per_client, expected) in [
            (10_000, None, bounds(10_000, 9_000, 9_000)),
            (10_000, Some(5), bounds(10_000, 9_000, 5)),
            (10_000, Some(20_000), bounds(10_000, 20_000, 20_000)),
            // So few that nothing is reserved.
            (1, None, bounds(1, 1, 1)),
            (9, None, bounds(9, 9, 9)),
            (0, None, bounds(0, 0, 0)),
        ] {
            assert_eq!(Bounds::of_sessions(most, per_client), expected);
        }
        const MIB: usize = 1 << 20;
        assert_eq!(Bounds::of_bodies(4 * MIB), bounds(256 * MIB, 128 * MIB, 64 * MIB));
        assert_eq!(Bounds::of_bodies(100 * MIB), bounds(256 * MIB, 128 * MIB, 100 * MIB));
        assert_eq!(Bounds::of_bodies(1024 * MIB), bounds(256 * MIB, 256 * MIB, 256 * MIB));
    }
}
