//! The shortest part of a list that still shows what the whole list shows.

/// Removes as many elements of `all` as it can while `shows` returns true, in at most `tries` tries: halves first,
/// single elements last. A failure that does not show every time shrinks less, but never to a wrong result.
pub fn shrink<T: Clone>(all: &[T], mut tries: usize, mut shows: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut best = all.to_vec();
    let mut size = best.len().div_ceil(2);
    while size > 0 && !best.is_empty() {
        let mut at = 0;
        let mut shorter = false;
        while at < best.len() {
            if tries == 0 {
                return best;
            }
            tries -= 1;
            let end = (at + size).min(best.len());
            let rest = [&best[..at], &best[end..]].concat();
            if shows(&rest) {
                best = rest;
                shorter = true;
            } else {
                at = end;
            }
        }
        // Single elements are tried until none of them can be removed.
        if size > 1 {
            size = size.div_ceil(2);
        } else if !shorter {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(list: &[u32], wanted: &[u32]) -> bool {
        wanted.iter().all(|one| list.contains(one))
    }

    #[test]
    fn irrelevant_elements_are_removed() {
        let all: Vec<u32> = (0..40).collect();
        for wanted in [&[7][..], &[0, 39], &[3, 4, 5, 31], &[]] {
            assert_eq!(shrink(&all, 10_000, |list| has(list, wanted)), wanted);
        }
    }

    #[test]
    fn order_is_kept_and_relevant_elements_are_kept() {
        let all = [5, 1, 4, 2, 3];
        assert_eq!(shrink(&all, 1000, |list| list.len() == 5), all);
        assert_eq!(shrink(&all, 1000, |list| has(list, &[2, 5])), [5, 2]);
    }

    /// One element can only be removed after another one.
    #[test]
    fn single_elements_are_tried_again() {
        let all: Vec<u32> = (0..9).collect();
        let shows = |list: &[u32]| has(list, &[8]) && (!has(list, &[0]) || has(list, &[1]));
        assert_eq!(shrink(&all, 1000, shows), [8]);
    }

    #[test]
    fn tries_are_bounded_and_the_result_still_shows_the_failure() {
        let all: Vec<u32> = (0..100).collect();
        let mut tried = 0;
        let best = shrink(&all, 9, |list| {
            tried += 1;
            has(list, &[50])
        });
        assert!(tried <= 9 && best.contains(&50) && best.len() < 100);
    }
}
