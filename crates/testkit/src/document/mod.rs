//! Documents that are executed: the commands on a page, and the shell that plays them.

mod compare;
mod page;
mod shell;

pub use page::{Command, Page};
pub use shell::{Script, play};
