//! The successful responses of the API. The table of routes has each of them as a value, which both makes the response and
//! describes it in the OpenAPI document.

use std::marker::PhantomData;

use hyper::StatusCode;
use serde::Serialize;

use crate::respond::{self, Answer};

/// A response with a `T` as JSON, or with an event stream in which the data of each event is a `T`.
pub(super) struct Reply<T> {
    pub(super) status: StatusCode,
    pub(super) about: &'static str,
    /// Its content type.
    pub(super) kind: &'static str,
    body: PhantomData<fn(&T)>,
}

impl<T> Reply<T> {
    pub(super) const fn json(status: StatusCode, about: &'static str) -> Reply<T> {
        Reply { status, about, kind: "application/json", body: PhantomData }
    }

    pub(super) const fn events(status: StatusCode, about: &'static str) -> Reply<T> {
        Reply { status, about, kind: "text/event-stream", body: PhantomData }
    }

    /// Makes the response with a value.
    pub(super) fn send(&self, value: &T) -> Answer
    where
        T: Serialize,
    {
        // All views consist of text, numbers and lists, so this cannot fail.
        respond::json(self.status, serde_json::to_vec(value).unwrap_or_default())
    }
}
