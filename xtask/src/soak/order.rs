//! The command line, reduced to what this machine can do.

use crate::step::{Failure, Outcome, PLAY, value};

const USAGE: &str = "\
soak has --minutes N, --http N, --stdio N (sessions), --seed N, --json, --plot FILE, and --leak N: sessions per round that
never end, to see that a leak is found";

/// The sessions of one client: in the time of a soak a hundred clients can crash, but not ten thousand.
pub(crate) const HTTP_EACH: usize = 100;
/// The same for sessions with a tree of processes each.
pub(crate) const STDIO_EACH: usize = 5;

/// The percentage of HTTP sessions that are never used and expire.
const BRIEF_PERCENT: usize = 5;

/// The descriptors of a gateway for a tree: its pipes, its control socket and its containment.
const OF_A_TREE: usize = 10;
/// The other descriptors of a gateway: for new clients that connect before others have left, and for connections
/// upstream.
const ROOM: usize = 3_000;

/// The parsed command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) minutes: f64,
    pub(crate) http: usize,
    pub(crate) stdio: usize,
    pub(crate) seed: u64,
    /// The size of a planted leak.
    pub(crate) leak: usize,
    pub(crate) json: bool,
    /// A further path for the picture.
    pub(crate) plot: Option<String>,
    pub(crate) play: bool,
}

impl Order {
    pub(crate) fn parse(words: &[String]) -> Outcome<Self> {
        let mut order =
            Self { minutes: 10.0, http: 10_000, stdio: 200, seed: 1, leak: 0, json: false, plot: None, play: false };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--json" => order.json = true,
                PLAY => order.play = true,
                "--minutes" => order.minutes = value(words.next(), USAGE)?,
                "--http" => order.http = value(words.next(), USAGE)?,
                "--stdio" => order.stdio = value(words.next(), USAGE)?,
                "--seed" => order.seed = value(words.next(), USAGE)?,
                "--leak" => order.leak = value(words.next(), USAGE)?,
                "--plot" => order.plot = Some(value(words.next(), USAGE)?),
                _ => return Err(Failure::new(USAGE)),
            }
        }
        let is_good = order.minutes.is_finite()
            && order.minutes > 0.0
            && order.http >= 2 * HTTP_EACH
            && order.stdio >= 2 * STDIO_EACH;
        if is_good { Ok(order) } else { Err(Failure::new(USAGE)) }
    }

    /// The number of descriptors that each of the processes may need.
    pub(crate) fn descriptors(&self) -> u64 {
        (self.http + self.stdio * OF_A_TREE + ROOM) as u64
    }

    /// The same order with no more HTTP sessions than this many descriptors allow. `None` if that leaves none.
    pub(crate) fn within(mut self, descriptors: u64) -> Option<Self> {
        let missing = self.descriptors().saturating_sub(descriptors);
        self.http = self.http.checked_sub(usize::try_from(missing).ok()?)?;
        (self.http >= 2 * HTTP_EACH).then_some(self)
    }

    /// The number of concurrent sessions.
    pub(crate) fn population(&self) -> u64 {
        (self.http + self.stdio) as u64
    }

    /// The number of HTTP sessions that are never used and expire.
    pub(crate) fn brief(&self) -> usize {
        (self.http * BRIEF_PERCENT / 100 / HTTP_EACH).max(1) * HTTP_EACH
    }

    /// The number of HTTP sessions that live as long as their clients.
    pub(crate) fn lasting(&self) -> usize {
        self.http - self.brief()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Order> {
        Order::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_become_an_order() {
        let order = parse("--minutes 2 --http 500 --stdio 10 --seed 4 --json --leak 3 --plot x.svg").expect("good");
        let plot = Some("x.svg".to_owned());
        let expected = Order { minutes: 2.0, http: 500, stdio: 10, seed: 4, leak: 3, json: true, plot, play: false };
        assert_eq!(order, expected);
        let usual = parse("").expect("good");
        assert_eq!((usual.http, usual.stdio, usual.brief(), usual.lasting()), (10_000, 200, 500, 9_500));
        assert_eq!(order.brief() + order.lasting(), 500);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in ["--minutes 0", "--minutes x", "--http 100", "--stdio 5", "--http", "dance", "--plot"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn low_descriptor_limit_reduces_the_sessions() {
        let usual = parse("").expect("good");
        assert_eq!(usual.descriptors(), 15_000);
        assert_eq!(usual.clone().within(20_000), Some(usual.clone()));
        assert_eq!(usual.clone().within(7_000).map(|order| (order.http, order.stdio)), Some((2_000, 200)));
        assert_eq!(usual.clone().within(5_100), None);
        assert_eq!(usual.within(1_024), None);
    }
}
