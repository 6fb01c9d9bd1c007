//! Runs the fuzz targets for a few seconds, always with the same inputs: the seeds in `fuzz/corpus`, and variations of
//! them.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use crate::fuzzing;

/// Bytes with a meaning in one of the formats.
const MEANINGFUL: &[u8] = b"\n\r: \0\xef\xbb\xbf\"\\{}[],u0a19-.eE\t\xff";

#[test]
fn event_splitter_passes_variations_of_the_corpus() {
    check("sse_splitter", fuzzing::sse_splitter, 20_000);
}

#[test]
fn line_framer_passes_variations_of_the_corpus() {
    check("line_framer", fuzzing::line_framer, 20_000);
}

#[test]
fn envelope_reader_passes_variations_of_the_corpus() {
    check("envelope_reader", fuzzing::envelope_reader, 50_000);
}

fn check(target: &str, body: fn(&[u8]), variations: usize) {
    let seeds = corpus(target);
    assert!(seeds.len() > 5, "the corpus of {target} was not found");
    for seed in &seeds {
        run(target, body, seed);
    }
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for _ in 0..variations {
        let input = random.variation(&seeds);
        run(target, body, &input);
    }
}

/// Runs one input. The message of the panic is on stderr already; this adds the input.
fn run(target: &str, body: fn(&[u8]), input: &[u8]) {
    if catch_unwind(|| body(input)).is_err() {
        panic!("{target} fails for b\"{}\"", input.escape_ascii());
    }
}

/// The seeds in the order of their names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(dir).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
}

/// A pseudo-random generator with the same numbers everywhere.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound.max(1)
    }

    fn pick<'a>(&mut self, seeds: &'a [Vec<u8>]) -> &'a [u8] {
        &seeds[self.below(seeds.len())]
    }

    /// A range in `bytes` with a short length.
    fn span(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let length = self.below(16).min(bytes.len() - start);
        start..start + length
    }

    /// A seed, changed in one to six places.
    fn variation(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.pick(seeds).to_vec();
        for _ in 0..=self.below(6) {
            let span = self.span(&bytes);
            match self.below(6) {
                0 => {
                    bytes.drain(span);
                }
                1 => {
                    let meaningful = MEANINGFUL[self.below(MEANINGFUL.len())];
                    bytes.insert(span.start, meaningful);
                }
                2 => {
                    let copy = bytes[span.clone()].to_vec();
                    bytes.splice(span.start..span.start, copy);
                }
                3 => {
                    let other = self.pick(seeds);
                    let part = other[self.span(other)].to_vec();
                    bytes.splice(span, part);
                }
                4 if span.start < bytes.len() => bytes[span.start] ^= 1 << self.below(8),
                4 => bytes.push(0),
                _ if self.below(8) == 0 => bytes.truncate(span.start),
                _ => bytes.splice(span, *b"\r\n").for_each(drop),
            }
        }
        bytes
    }
}
