//! Reproducible random numbers.

/// SplitMix64: the same seed gives the same numbers, on every machine and in every version of any library.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of one episode of a seed. They do not depend on earlier episodes.
    pub fn of(seed: u64, episode: u64) -> Self {
        let mut random = Self(seed ^ episode.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.bits();
        random
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` up to, but without, `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.bits() % (high - low).max(1)
    }

    /// True with a probability of `percent`.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.between(0, 100) < percent
    }

    /// One of `all`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.between(0, all.len() as u64) as usize]
    }

    /// One of `all`, weighted by its number.
    pub fn weigh<T: Copy>(&mut self, all: &[(u64, T)]) -> T {
        let mut at = self.between(0, all.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in all {
            if at < *weight {
                return *one;
            }
            at -= weight;
        }
        all[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let numbers = |seed, episode| {
            let mut random = Random::of(seed, episode);
            (0..8).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7, 3), numbers(7, 3));
        assert_ne!(numbers(7, 3), numbers(7, 4));
        assert_ne!(numbers(7, 3), numbers(8, 3));
    }

    #[test]
    fn every_choice_is_drawn_and_no_other() {
        let mut random = Random::of(1, 1);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            seen[random.weigh(&[(1, 0), (0, 1), (9, 2)])] += 1;
            assert!((5..9).contains(&random.between(5, 9)));
        }
        assert!(seen[0] > 50 && seen[1] == 0 && seen[2] > 800, "{seen:?}");
    }
}
