//! Decides if numbers grow over time: a rank test and a robust slope, which both tolerate noise, outliers and a
//! sawtooth.

use crate::bench::stats::median;

/// Neighbouring samples are correlated, and a test that takes them for independent sees trends everywhere. Medians of
/// blocks as long as one cycle of the load are much less so.
const BLOCKS: usize = 24;

/// The significance level: one of a hundred flat series looks like growth.
const SIGNIFICANT: f64 = 0.01;

/// The trend of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trend {
    /// The median.
    pub(crate) level: f64,
    /// Growth per second: the median of the slopes between all pairs (Theil-Sen).
    pub(crate) slope: f64,
    /// The lower end of the 95 % interval of the growth per second (Sen).
    pub(crate) least: f64,
    /// The upper end of that interval.
    pub(crate) most: f64,
    /// The probability that a flat series looks like this or steeper (Mann-Kendall, one-sided).
    pub(crate) chance: f64,
    /// The growth per second that counts as flat, however certain it is.
    pub(crate) tolerated: f64,
}

impl Trend {
    /// The trend of samples at ascending times. `None` for fewer than eight, which are too few for a test.
    pub(crate) fn of(samples: &[(f64, f64)], tolerated: f64) -> Option<Self> {
        let blocks = blocks(samples);
        if blocks.len() < 8 {
            return None;
        }
        let (score, variance) = mann_kendall(&blocks);
        let mut slopes: Vec<f64> = pairs(&blocks).map(|((at, from), (then, to))| (to - from) / (then - at)).collect();
        slopes.sort_by(f64::total_cmp);
        // Sen's interval: as many pairs from the middle as the score would move by chance.
        let aside = ((slopes.len() as f64 - 1.96 * variance.sqrt()) / 2.0).max(0.0) as usize;
        let aside = aside.min((slopes.len() - 1) / 2);
        let z = if variance > 0.0 { (score - score.signum()) / variance.sqrt() } else { 0.0 };
        Some(Self {
            level: median(blocks.iter().map(|(_, value)| *value)),
            slope: median(slopes.iter().copied()),
            least: slopes[aside],
            most: slopes[slopes.len() - 1 - aside],
            chance: above(z),
            tolerated,
        })
    }

    /// True if it certainly grows, and by an amount that matters.
    pub(crate) fn grows(&self) -> bool {
        self.chance < SIGNIFICANT && self.slope > self.tolerated
    }
}

/// Medians of as many blocks as possible.
fn blocks(samples: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = samples.len().div_ceil(BLOCKS).max(1);
    let middle = |block: &[(f64, f64)]| {
        (median(block.iter().map(|(time, _)| *time)), median(block.iter().map(|(_, value)| *value)))
    };
    samples.chunks(size).map(middle).collect()
}

fn pairs(values: &[(f64, f64)]) -> impl Iterator<Item = ((f64, f64), (f64, f64))> {
    values.iter().enumerate().flat_map(|(at, first)| values[at + 1..].iter().map(|second| (*first, *second)))
}

/// The number of ascending pairs minus the descending ones, and its variance without a trend, corrected for equal
/// values.
fn mann_kendall(values: &[(f64, f64)]) -> (f64, f64) {
    let sign = |((_, from), (_, to)): ((f64, f64), (f64, f64))| match to.total_cmp(&from) {
        std::cmp::Ordering::Less => -1.0,
        std::cmp::Ordering::Equal => 0.0,
        std::cmp::Ordering::Greater => 1.0,
    };
    let score = pairs(values).map(sign).sum();
    let spread = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|equal| spread(equal.len() as f64)).sum();
    (score, (spread(values.len() as f64) - ties) / 18.0)
}

/// The probability that a normal variable is above `z`; exact to seven digits (Abramowitz and Stegun, 26.2.17).
fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let weights = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let sum = weights.iter().fold(0.0, |sum, weight| (sum + weight) * t);
    sum * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise between -1 and 1, the same every time.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut random = testkit::chaos::random::Random::of(seed, 0);
        move || random.between(0, 2_000_001) as f64 / 1e6 - 1.0
    }

    fn series(count: usize, mut value: impl FnMut(f64) -> f64) -> Vec<(f64, f64)> {
        (0..count).map(|at| (at as f64, value(at as f64))).collect()
    }

    /// The trend of a number that may grow by 0.01 a second.
    fn trend(samples: &[(f64, f64)]) -> Trend {
        Trend::of(samples, 0.01).expect("there are enough samples")
    }

    #[test]
    fn normal_tail_matches_the_tables() {
        for (z, expected) in [(0.0, 0.5), (1.0, 0.158_655), (1.96, 0.024_998), (2.326, 0.010_009), (-1.0, 0.841_345)] {
            assert!((above(z) - expected).abs() < 1e-5, "{z}: {}", above(z));
        }
    }

    #[test]
    fn score_matches_the_manual_calculation() {
        // All ten pairs ascend; 5*4*15/18.
        let rising = series(5, |at| at);
        assert_eq!(mann_kendall(&rising), (10.0, 50.0 / 3.0));
        let tied: Vec<(f64, f64)> = [23.0, 24.0, 29.0, 6.0, 29.0, 24.0, 24.0, 29.0, 23.0]
            .iter()
            .enumerate()
            .map(|(at, value)| (at as f64, *value))
            .collect();
        let (score, variance) = mann_kendall(&tied);
        // 9 values with ties of 2, 3 and 3: (9*8*23 - 2*1*9 - 2*3*2*11)/18.
        assert_eq!(variance, (1656.0 - 18.0 - 132.0) / 18.0);
        // By first value: 5 + 1 - 4 + 5 - 3 + 0 + 0 - 1.
        assert_eq!(score, 3.0);
    }

    #[test]
    fn a_line_has_its_slope() {
        let found = trend(&series(240, |at| 1000.0 + 2.0 * at));
        assert_eq!((found.least, found.slope, found.most), (2.0, 2.0, 2.0));
        assert!(found.grows() && found.chance < 1e-6);
    }

    #[test]
    fn flat_noise_does_not_grow() {
        let wrong = (0..200).filter(|seed| {
            let mut noise = noise(*seed);
            trend(&series(240, |_| 100.0 + 10.0 * noise())).grows()
        });
        // At this significance level one of a hundred may look like growth; the number varies.
        assert!(wrong.count() <= 4);
    }

    #[test]
    fn a_leak_below_the_noise_is_found() {
        let found = (0..200).filter(|seed| {
            let mut noise = noise(*seed);
            // Each sample is up to 10 off, and the leak is 20 in the whole time.
            trend(&series(240, |at| 100.0 + 10.0 * noise() + 20.0 * at / 240.0)).grows()
        });
        assert!(found.count() > 195);
    }

    #[test]
    fn shrinking_periodic_and_constant_series_do_not_grow() {
        assert!(!trend(&series(240, |at| 1000.0 - at)).grows());
        for period in [3.0, 7.0, 20.0, 33.0] {
            assert!(!trend(&series(240, |at| 1000.0 + 300.0 * (at % period) / period)).grows(), "sawtooth of {period}");
        }
        assert!(!trend(&series(240, |_| 42.0)).grows());
        let mut spiked = series(240, |_| 100.0);
        spiked[239].1 = 1e9;
        assert!(!trend(&spiked).grows(), "one outlier is no trend");
    }

    /// The test uses blocks and their order in time, not their size: it finds a rising sawtooth even if it rises by
    /// less than a tooth.
    #[test]
    fn a_sawtooth_that_climbs_grows() {
        assert!(trend(&series(480, |at| 1000.0 + 30.0 * (at % 20.0) / 20.0 + at / 20.0)).grows());
    }

    /// A heap fills its holes, more and more slowly. It is flat when that is over, and grows before.
    #[test]
    fn series_that_settles_only_grows_before() {
        let mut noise = noise(1);
        let heap = series(600, |at| 200_000.0 * (1.0 - 0.3 * (-at / 40.0).exp()) + 500.0 * noise());
        assert!(trend(&heap[..200]).grows());
        assert!(!trend(&heap[200..]).grows());
    }

    /// With 10,000 sessions of which 331 a second were replaced, 12 turns after the start: medians in KiB, every 3e+01
    /// s.
    const RATE: f64 = 331.0;
    const STEP: f64 = 3e+01;
    const IN_USE: [f64; 24] = [
        197_771.0, 197_925.0, 198_232.0, 198_052.0, 198_630.0, 198_377.0, 198_091.0, 198_208.0, 197_911.0, 197_550.0,
        197_507.0, 197_828.0, 198_302.0, 198_445.0, 197_978.0, 197_778.0, 197_864.0, 198_230.0, 198_066.0, 198_287.0,
        198_037.0, 197_445.0, 197_443.0, 197_721.0,
    ];
    const ANONYMOUS: [f64; 24] = [
        215_674.0, 209_898.0, 215_758.0, 215_614.0, 219_948.0, 220_528.0, 220_836.0, 221_938.0, 218_548.0, 220_930.0,
        220_500.0, 218_152.0, 216_704.0, 219_874.0, 220_284.0, 218_838.0, 213_892.0, 216_614.0, 219_322.0, 216_878.0,
        218_490.0, 212_084.0, 219_890.0, 217_694.0,
    ];

    /// The trend if each session leaked this many bytes more, and this many were tolerated.
    fn leaking(recorded: &[f64], bytes: f64, tolerated: f64) -> Trend {
        let value = |(at, value): (usize, &f64)| {
            let time = STEP * at as f64;
            (time, value + time * RATE * bytes / 1024.0)
        };
        let samples: Vec<_> = recorded.iter().enumerate().map(value).collect();
        Trend::of(&samples, RATE * tolerated / 1024.0).expect("there are enough samples")
    }

    #[test]
    fn leak_is_found_in_samples_of_a_real_heap() {
        for (recorded, tolerated, leak) in [(&IN_USE[..], 16.0, 20.0), (&ANONYMOUS[..], 64.0, 96.0)] {
            let (none, some) = (leaking(recorded, 0.0, tolerated), leaking(recorded, leak, tolerated));
            assert!(!none.grows(), "{none:?}");
            assert!(some.grows(), "{some:?}");
        }
    }

    #[test]
    fn certain_growth_below_the_tolerance_is_flat() {
        let found = trend(&series(240, |at| 1000.0 + at / 200.0));
        assert!(found.chance < 1e-6 && !found.grows());
        assert!(trend(&series(240, |at| 1000.0 + at / 50.0)).grows());
    }

    #[test]
    fn too_few_samples_have_no_trend() {
        assert_eq!(Trend::of(&series(7, |at| at), 0.0), None);
        assert_eq!(Trend::of(&[], 0.0), None);
    }
}
