//! All output for the user.

pub(crate) mod answer;
pub(crate) mod check;
pub(crate) mod escape;
pub(crate) mod evidence;
pub(crate) mod message;
pub(crate) mod printer;
pub(crate) mod table;
