//! The interface to the program around the gateway, which knows how to look at everything: `leash-gateway` may not use
//! the scan of `leash-orphans`.

use leash_model::feed::FeedLook;
use leash_model::identity::Identity;
use leash_model::receipt::Receipt;
use serde::Serialize;

/// The functions behind the page. All of them block, so the gateway calls them on other threads.
pub trait PageSource: Send + Sync {
    /// Looks at everything that is alive, again and again, until `take` returns false.
    fn follow(&self, take: &mut dyn FnMut(FeedLook) -> bool);
    /// The answer of `leash why` about a process, one line each.
    fn explain(&self, pid: i32) -> Vec<String>;
    /// The receipts that were written last, at most this many, the newest first.
    fn history(&self, most: usize) -> Vec<PageReceipt>;
    /// Ends something and waits until it is gone. The error is a sentence for the user.
    fn end(&self, target: PageTarget) -> Result<PageEnd, String>;
}

/// Something that the user wants to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageTarget {
    /// A run, by its id.
    Run(String),
    /// A session, by its id.
    Session(String),
    /// A server of another program, if it is still proved to be an orphan.
    Orphan(Identity),
}

/// The result of an end.
#[derive(Clone, Debug, Serialize)]
pub struct PageEnd {
    /// The result for people, one line each.
    pub lines: Vec<String>,
    /// The receipts.
    pub receipts: Vec<Receipt>,
}

/// A receipt with its texts for people.
#[derive(Clone, Debug, Serialize)]
pub struct PageReceipt {
    /// The reason of the end.
    pub why: String,
    /// What became of its holdings: `gone`, `ended` or `left`.
    pub fate: &'static str,
    /// False if something is left.
    pub is_gone: bool,
    /// The things that are left, one line each.
    pub left: Vec<String>,
    /// The receipt itself.
    pub receipt: Receipt,
}
