//! The last problems of a gateway, for `leash status`.

use std::{cell::RefCell, collections::VecDeque};

use leash_model::status::{ProblemView, problem_of};
use leash_model::{clock, limits};
use leash_upstream::notice::Notice;

/// The last problems, the newest last.
#[derive(Default)]
pub(crate) struct Problems(RefCell<VecDeque<ProblemView>>);

impl Problems {
    /// Remembers a notice if it is about a problem. One that is there already moves to the end.
    pub(crate) fn note(&self, notice: &Notice) {
        let text = match notice {
            Notice::Warning(text) => Some(text.clone()),
            Notice::Ended(receipt) => problem_of(receipt),
            _ => None,
        };
        let Some(text) = text else { return };
        let mut all = self.0.borrow_mut();
        all.retain(|known| known.text != text);
        if all.len() == limits::PROBLEMS {
            all.pop_front();
        }
        all.push_back(ProblemView { at_ms: clock::unix_ms(), text });
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<ProblemView> {
        self.0.borrow().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_problems_are_kept_each_once() {
        let problems = Problems::default();
        let warn = |text: &str| problems.note(&Notice::Warning(text.to_owned()));
        (0..limits::PROBLEMS + 5).for_each(|number| warn(&number.to_string()));
        problems.note(&Notice::Draining(1));
        warn("8");
        let texts: Vec<String> = problems.list().into_iter().map(|problem| problem.text).collect();
        assert_eq!(texts.len(), limits::PROBLEMS);
        assert_eq!((&*texts[0], &*texts[limits::PROBLEMS - 1]), ("5", "8"));
    }
}
