//! All output for the user.

pub(crate) mod check;
pub(crate) mod evidence;
pub(crate) mod message;
pub(crate) mod printer;
pub(crate) mod table;

pub(crate) use leash_model::escape;
