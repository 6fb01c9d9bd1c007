//! The memory of the last minute, one sample a second.

use std::collections::{HashMap, VecDeque};

use leash_model::feed::FeedRow;

/// The number of samples of a row.
const SAMPLES: usize = 60;

/// The memory of each row in the last minute.
#[derive(Debug, Default)]
pub(super) struct MemoryHistory {
    /// KiB, the oldest first.
    rows: HashMap<String, VecDeque<u32>>,
    /// The second of the last sample.
    second: u64,
}

impl MemoryHistory {
    /// Takes a sample of each row, unless this second has one.
    pub(super) fn note(&mut self, rows: &[FeedRow], at_ms: u64) {
        if at_ms / 1000 == self.second {
            return;
        }
        self.second = at_ms / 1000;
        let mut old = std::mem::take(&mut self.rows);
        for row in rows {
            let Some(memory) = row.memory_bytes else { continue };
            let mut samples = old.remove(&row.key).unwrap_or_default();
            if samples.len() == SAMPLES {
                samples.pop_front();
            }
            samples.push_back(u32::try_from(memory / 1024).unwrap_or(u32::MAX));
            self.rows.insert(row.key.clone(), samples);
        }
    }

    /// A row's samples as a line of this many characters, the newest at its end. Each character is the largest of its
    /// samples, compared with the largest of all.
    pub(super) fn line(&self, key: &str, width: usize, marks: &[char]) -> String {
        let (Some(samples), Some(top)) = (self.rows.get(key), marks.len().checked_sub(1)) else {
            return String::new();
        };
        let largest = samples.iter().copied().max().unwrap_or_default().max(1);
        let per_mark = SAMPLES.div_ceil(width.max(1));
        let newest_first: Vec<u32> = samples.iter().rev().copied().collect();
        let mark = |samples: &[u32]| {
            let value = samples.iter().copied().max().unwrap_or_default();
            marks[(u64::from(value) * top as u64).div_ceil(u64::from(largest)) as usize]
        };
        let line: Vec<char> = newest_first.chunks(per_mark).map(mark).collect();
        let line: String = line.into_iter().rev().collect();
        format!("{line:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    const MARKS: [char; 5] = ['0', '1', '2', '3', '4'];

    #[test]
    fn line_shows_the_last_minute_with_the_newest_at_its_end() {
        let mut history = MemoryHistory::default();
        let mut note = |second: u64, kib: u64| {
            history.note(&[row("t1", kib * 1024)], second * 1000);
            history.line("run:t1", 10, &MARKS)
        };
        assert_eq!(note(1, 100), "         4");
        assert_eq!(note(1, 0), "         4", "this second has a sample");
        for second in 2..=6 {
            note(second, 50);
        }
        assert_eq!(note(7, 50), "        42");
        for second in 8..=66 {
            note(second, 25);
        }
        assert_eq!(note(67, 25), "4444444444", "the large ones are more than a minute ago");
        assert_eq!(note(68, 0), "4444444444", "a mark is the largest of its six samples");
    }

    #[test]
    fn row_that_is_gone_is_forgotten() {
        let mut history = MemoryHistory::default();
        history.note(&[row("t1", 1024)], 1000);
        history.note(&[], 2000);
        assert_eq!(history.line("run:t1", 10, &MARKS), "");
    }
}
