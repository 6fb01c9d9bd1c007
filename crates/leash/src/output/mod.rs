//! All output for the user.

pub(crate) mod answer;
pub(crate) mod check;
pub(crate) mod evidence;
pub(crate) mod ids;
pub(crate) mod message;
pub(crate) mod palette;
pub(crate) mod printer;
pub(crate) mod report;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod text;
pub(crate) mod waiting;

pub(crate) use leash_model::escape;
