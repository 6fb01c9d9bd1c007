//! Byte fidelity: any JSON-RPC message arrives as it was sent, in both directions. A library that parses messages into
//! types and writes them again loses unknown fields, the digits of large numbers and the order of keys; leash forwards
//! the received bytes.
//!
//! The exceptions, each shown here: a body of several lines becomes one line for a stdio server, with blanks instead of
//! line breaks; a line of a stdio server becomes an event's data, where a CR between two tokens is a line break; and in
//! the modern era leash replaces the ids and progress tokens of clients that share a stdio server by others on the
//! pipe.

mod http;
mod modern;
mod odd;
mod stdio;

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

/// Runs cases of one property. A failing one is shrunk for a few seconds.
fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    let config = Config { cases, failure_persistence: None, max_shrink_time: 20_000, ..Config::default() };
    if let Err(error) = TestRunner::new(config).run(strategy, test) {
        panic!("{error}");
    }
}

/// An object that the cases share. After a failed case a new one is made.
struct Shared<T> {
    made: RefCell<Option<T>>,
    make: Box<dyn Fn() -> T>,
}

impl<T> Shared<T> {
    fn new(make: impl Fn() -> T + 'static) -> Self {
        Self { made: RefCell::new(None), make: Box::new(make) }
    }

    fn with(&self, case: impl FnOnce(&mut T) -> TestCaseResult) -> TestCaseResult {
        let mut used = self.made.take().unwrap_or_else(|| (self.make)());
        case(&mut used)?;
        self.made.replace(Some(used));
        Ok(())
    }
}

/// Compared as bytes, shown as text.
fn same(sent: impl AsRef<[u8]>, arrived: impl AsRef<[u8]>) -> TestCaseResult {
    let (sent, arrived) = (sent.as_ref(), arrived.as_ref());
    let shown = |bytes| String::from_utf8_lossy(bytes).into_owned();
    prop_assert!(sent == arrived, "\nsent:    {:?}\narrived: {:?}", shown(sent), shown(arrived));
    Ok(())
}
