//! The places where the last clients' sockets were found: the next one is likely to be beside them.

use std::collections::HashMap;

use leash_model::limits;

/// Processes that held sockets before, the latest first, with the descriptor number of the socket.
#[derive(Clone, Debug, Default)]
pub struct Hints(Vec<(i32, u32)>);

impl Hints {
    /// Hints with processes only, without descriptor numbers.
    pub fn of(pids: &[i32]) -> Hints {
        Hints(pids.iter().map(|pid| (*pid, 0)).collect())
    }

    pub(super) fn all(&self) -> &[(i32, u32)] {
        &self.0
    }

    /// Puts the processes that were found first, for the next search.
    pub(super) fn remember(&mut self, found: &HashMap<i32, u32>) {
        for (&pid, &fd) in found {
            match self.0.first_mut() {
                Some((first, at)) if *first == pid => *at = fd,
                _ => {
                    self.0.retain(|(known, _)| *known != pid);
                    self.0.insert(0, (pid, fd));
                }
            }
        }
        self.0.truncate(limits::PEER_HINTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_first() {
        let mut hints = Hints::of(&(1000..1000 + limits::PEER_HINTS as i32).collect::<Vec<_>>());
        for fd in 5..8 {
            hints.remember(&HashMap::from([(7, fd)]));
            assert_eq!(hints.all()[..2], [(7, fd), (1000, 0)]);
            assert_eq!(hints.all().len(), limits::PEER_HINTS);
        }
        hints.remember(&HashMap::from([(1001, 3)]));
        assert_eq!(hints.all()[..3], [(1001, 3), (7, 7), (1000, 0)]);
        hints.remember(&HashMap::new());
        assert_eq!(hints.all()[0], (1001, 3));
    }
}
