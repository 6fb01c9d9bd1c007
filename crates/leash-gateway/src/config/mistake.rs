//! The mistakes of a configuration: position, problem and hint.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistake {
    /// The file, as the caller named it; without a file, the option, such as `--name`.
    pub file: String,
    /// The line, from 1; 0 if there is no file.
    pub line: usize,
    /// The column in characters, from 1; 0 if there is no file.
    pub column: usize,
    /// The problem: a lower-case fragment. It never contains the value of a variable.
    pub what: String,
    /// The hint: how to fix it.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.file, self.what)
        } else {
            write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)
        }
    }
}

/// Every mistake of a configuration, in the order of the file. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistakes(Vec<ConfigMistake>);

impl ConfigMistakes {
    /// `Ok` without mistakes; otherwise all of them, sorted by position.
    pub fn none(mut found: Vec<ConfigMistake>) -> Result<(), ConfigMistakes> {
        if found.is_empty() {
            return Ok(());
        }
        found.sort_by_key(|mistake| (mistake.line, mistake.column));
        Err(ConfigMistakes(found))
    }

    /// All mistakes.
    pub fn all(&self) -> &[ConfigMistake] {
        &self.0
    }
}

impl From<ConfigMistake> for ConfigMistakes {
    fn from(mistake: ConfigMistake) -> ConfigMistakes {
        ConfigMistakes(vec![mistake])
    }
}

impl IntoIterator for ConfigMistakes {
    type Item = ConfigMistake;
    type IntoIter = std::vec::IntoIter<ConfigMistake>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for ConfigMistakes {
    /// Writes a line for each mistake, and its hint on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{mistake}")?;
            if let Some(hint) = &mistake.hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigMistakes {}
