//! Reliable numbers: samples in interleaved rounds, medians, and intervals by bootstrap.

use std::fmt;

/// The number of resamples for an interval. With 2,000 the ends of a 95 % interval are those of the 50th resample from
/// either side, which moves by less than the third digit from one seed to another.
const DRAWS: usize = 2_000;

/// Samples of several arms. Sample `r` of each arm was taken next to sample `r` of the others, so that a temporary
/// disturbance of the machine affects all arms.
#[derive(Debug)]
pub(crate) struct Rounds {
    arms: Vec<Vec<f64>>,
}

/// A value and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Rounds {
    /// Takes one sample of each arm per round. Each round starts with another arm, so that no arm is always the first
    /// after the pause.
    pub(crate) fn take<E>(
        rounds: usize,
        arms: usize,
        mut sample: impl FnMut(usize) -> Result<f64, E>,
    ) -> Result<Self, E> {
        let mut taken = vec![Vec::with_capacity(rounds); arms];
        for round in 0..rounds {
            for turn in 0..arms {
                let arm = (round + turn) % arms;
                taken[arm].push(sample(arm)?);
            }
        }
        Ok(Self { arms: taken })
    }

    /// Samples that were taken elsewhere, in rounds: the same number for each arm.
    pub(crate) fn of(arms: Vec<Vec<f64>>) -> Self {
        assert!(arms.iter().all(|arm| arm.len() == arms[0].len()), "a round has a sample of each arm");
        Self { arms }
    }

    pub(crate) fn samples(&self, arm: usize) -> &[f64] {
        &self.arms[arm]
    }

    pub(crate) fn max(&self, arm: usize) -> f64 {
        self.arms[arm].iter().copied().fold(f64::NAN, f64::max)
    }

    /// The median of one arm.
    pub(crate) fn median(&self, arm: usize) -> Estimate {
        self.bootstrap(|rounds| median(rounds.iter().map(|&round| self.arms[arm][round])))
    }

    /// The median of `arm` divided by that of `base`.
    pub(crate) fn ratio(&self, arm: usize, base: usize) -> Estimate {
        self.compare(arm, base, |arm, base| arm / base)
    }

    /// The median of `arm` minus that of `base`.
    pub(crate) fn difference(&self, arm: usize, base: usize) -> Estimate {
        self.compare(arm, base, |arm, base| arm - base)
    }

    fn compare(&self, arm: usize, base: usize, by: impl Fn(f64, f64) -> f64) -> Estimate {
        let of = |arm: usize, rounds: &[usize]| median(rounds.iter().map(|&round| self.arms[arm][round]));
        // Whole rounds are drawn, so that neighbouring samples stay together.
        self.bootstrap(|rounds| by(of(arm, rounds), of(base, rounds)))
    }

    fn bootstrap(&self, statistic: impl Fn(&[usize]) -> f64) -> Estimate {
        let count = self.arms.first().map_or(0, Vec::len);
        let all: Vec<usize> = (0..count).collect();
        let mut random = Random(0x1ea5_4000);
        let mut drawn: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let rounds: Vec<usize> = all.iter().map(|_| random.below(count)).collect();
                statistic(&rounds)
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        Estimate { value: statistic(&all), low: drawn[DRAWS / 40], high: drawn[DRAWS - 1 - DRAWS / 40] }
    }
}

impl Estimate {
    /// A number of which only one sample was taken.
    pub(crate) fn single(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// The same in a unit that is smaller by this factor.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }
}

impl fmt::Display for Estimate {
    /// With three digits by default; `{:.1}` for fewer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3);
        write!(f, "{:.digits$} [{:.digits$}, {:.digits$}]", self.value, self.low, self.high)
    }
}

/// The middle value, or the mean of the two in the middle. NaN for an empty list.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The smallest of `sorted` values that is not below the `share` of them: of 100 values, the 99th is p99. NaN for an
/// empty list.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).wrapping_sub(1)).copied().unwrap_or(f64::NAN)
}

/// SplitMix64: the same draws in every run, so that the same samples give the same interval.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(arms: &[&[f64]]) -> Rounds {
        Rounds::of(arms.iter().map(|arm| arm.to_vec()).collect())
    }

    #[test]
    fn median_of_odd_even_and_empty_lists() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn quantiles_are_sampled_values() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        for (share, expected) in [(0.0, 1.0), (0.005, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)] {
            assert_eq!(quantile(&hundred, share), expected, "{share}");
        }
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn each_arm_begins_a_round_in_turn() {
        let mut order = Vec::new();
        let taken = Rounds::take(3, 3, |arm| {
            order.push(arm);
            Ok::<_, ()>(arm as f64)
        });
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(taken.expect("no sample failed").samples(2), [2.0, 2.0, 2.0]);
    }

    #[test]
    fn a_failed_sample_ends_the_measurement() {
        assert_eq!(Rounds::take(9, 2, |arm| if arm == 1 { Err("lost") } else { Ok(1.0) }).unwrap_err(), "lost");
    }

    #[test]
    fn a_constant_ratio_has_no_width_however_noisy_the_arms() {
        let base: Vec<f64> = (1..=25).map(f64::from).collect();
        let arm: Vec<f64> = base.iter().map(|value| value * 2.0).collect();
        let ratio = rounds(&[&base, &arm]).ratio(1, 0);
        assert_eq!(ratio, Estimate { value: 2.0, low: 2.0, high: 2.0 });
    }

    #[test]
    fn interval_contains_the_value_and_shrinks_with_the_noise() {
        let noisy: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i % 8)).collect();
        let calm: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i % 8) / 100.0).collect();
        let base = [10.0; 40];
        let taken = rounds(&[&base, &noisy, &calm]);
        let (wide, narrow) = (taken.difference(1, 0), taken.difference(2, 0));
        for estimate in [wide, narrow] {
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{estimate}");
        }
        assert!(wide.high - wide.low > 10.0 * (narrow.high - narrow.low), "{wide} {narrow}");
    }

    #[test]
    fn the_same_samples_give_the_same_interval() {
        let arm = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        assert_eq!(rounds(&[&arm]).median(0), rounds(&[&arm]).median(0));
    }

    #[test]
    fn digits_as_asked_for() {
        let estimate = Estimate { value: 1.0, low: 0.9876, high: 1.0049 };
        assert_eq!(estimate.to_string(), "1.000 [0.988, 1.005]");
        assert_eq!(format!("{estimate:.1}"), "1.0 [1.0, 1.0]");
    }
}
