//! The paths of the control API: one table, which routes requests and from which the OpenAPI document is made.

use hyper::StatusCode;
use serde_json::Value;

use super::query::{ENDING, EndOptions, FILTER, Filter, ONLY, Only, Parameter};
use super::view::{AbortedView, EventView, ReceiptsView, SessionView, SessionsView, VersionView};
use super::{events::EventData, problem::Kind, reply::Reply};
use crate::config::{LEASE, LeaseRequest, NEW_SESSION, SessionRequest, Table};
use leash_model::{receipt::Receipt, status::StatusView, view::PageLinkView};

/// The operation of a route: its query, its body and its successful responses. An operation reads and answers with these
/// values, and the OpenAPI document describes the same ones.
pub(super) enum Operation {
    Create(Table<SessionRequest>, Reply<SessionView>, Reply<EventData<'static>>),
    List(&'static [Parameter<Filter>], Reply<SessionsView>),
    /// The second response is for a caller that does not wait.
    EndAll(&'static [Parameter<EndOptions>], Reply<ReceiptsView>, Reply<SessionsView>),
    Show(Reply<SessionView>),
    /// The second response is for a caller that does not wait.
    End(&'static [Parameter<EndOptions>], Reply<Receipt>, Reply<SessionView>),
    Renew(Table<LeaseRequest>, Reply<SessionView>),
    Abort(Reply<AbortedView>),
    Events(&'static [Parameter<Only>], Reply<EventView>),
    Document(Reply<Value>),
    Version(Reply<VersionView>),
    Status(Reply<StatusView>),
    PageLink(Reply<PageLinkView>),
}

/// A method and a path of the API.
pub(super) struct Route {
    pub(super) method: &'static str,
    /// The path, with `{id}` in place of an id.
    pub(super) path: &'static str,
    pub(super) act: Operation,
    /// Its name in generated clients.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// The contract: the facts that hold when it returns.
    pub(super) contract: &'static str,
    /// Its problems, apart from those of every request, of every body and of every id.
    pub(super) problems: &'static [Kind],
}

/// All routes.
pub(super) static ROUTES: [Route; 12] = [
    Route {
        method: "POST",
        path: "/v1/sessions",
        act: Operation::Create(
            NEW_SESSION,
            Reply::json(StatusCode::CREATED, "The session; `Location` says where it is"),
            Reply::events(
                StatusCode::CREATED,
                "With `owner.connection`: `session`, and then the events of the session",
            ),
        ),
        name: "createSession",
        summary: "Begin a session",
        contract: "When it returns with 201, every stdio server runs and every HTTP server has accepted a connection. When it \
                   returns with anything else, nothing remains of what was begun. With `owner.connection` the answer is an event \
                   stream whose first event, `session`, has the session; when that connection is closed, the session ends.",
        problems: &[Kind::NotAcceptable, Kind::Ended, Kind::ServerFailed, Kind::Draining, Kind::TooManySessions],
    },
    Route {
        method: "GET",
        path: "/v1/sessions",
        act: Operation::List(&FILTER, Reply::json(StatusCode::OK, "The sessions")),
        name: "listSessions",
        summary: "All sessions",
        contract: "Those that are starting, live or ending, in the order in which they began.",
        problems: &[],
    },
    Route {
        method: "DELETE",
        path: "/v1/sessions",
        act: Operation::EndAll(
            &ENDING,
            Reply::json(StatusCode::OK, "The receipts"),
            Reply::json(StatusCode::ACCEPTED, "With `wait=false`: the sessions that are being ended"),
        ),
        name: "endSessions",
        summary: "End all sessions",
        contract: "As for one: all end at the same time, and when it returns with 200 nothing is left of any, or what is left is \
                   in its receipt. Sessions that begin meanwhile are not touched.",
        problems: &[],
    },
    Route {
        method: "GET",
        path: "/v1/sessions/{id}",
        act: Operation::Show(Reply::json(StatusCode::OK, "The session")),
        name: "getSession",
        summary: "One session",
        contract: "Also one that has ended, as long as its receipt is kept.",
        problems: &[],
    },
    Route {
        method: "DELETE",
        path: "/v1/sessions/{id}",
        act: Operation::End(
            &ENDING,
            Reply::json(StatusCode::OK, "The receipt"),
            Reply::json(StatusCode::ACCEPTED, "With `wait=false`: the session that is being ended"),
        ),
        name: "endSession",
        summary: "End a session",
        contract: "When it returns with 200, every process of the session is proved to be gone and every session at a server \
                   elsewhere is deleted, those of `leash run --session` and `leash connect --session` with its id included; what \
                   could not be is named in the receipt as `left`, with the reason. Its URLs answer \
                   404 from the moment of the call. A caller that leaves changes nothing. Asked again it returns the same receipt.",
        problems: &[],
    },
    Route {
        method: "PUT",
        path: "/v1/sessions/{id}/lease",
        act: Operation::Renew(LEASE, Reply::json(StatusCode::OK, "The session")),
        name: "renewSession",
        summary: "Renew a lease",
        contract: "When it returns with 200, the session lives for at least its ttl from now, unless something else ends it.",
        problems: &[Kind::Ended, Kind::NoLease],
    },
    Route {
        method: "POST",
        path: "/v1/sessions/{id}/abort",
        act: Operation::Abort(Reply::json(StatusCode::OK, "The number of requests")),
        name: "abortSession",
        summary: "Cancel the requests in flight",
        contract: "When it returns, every request that was in flight is cancelled: its client gets the error -32000 `aborted`, or its \
                   answer breaks off where half of it is written, and its server is told; at HTTP servers that is under way. The session \
                   stays, with everything it holds.",
        problems: &[Kind::Ended],
    },
    Route {
        method: "GET",
        path: "/v1/events",
        act: Operation::Events(&ONLY, Reply::events(StatusCode::OK, "The events")),
        name: "listen",
        summary: "Events of sessions",
        contract: "Events from now on: `started`, `owner-lost`, `ending` and `ended` with the receipt. A comment comes at once, \
                   and then every 15 s. A reader that leaves 256 events unread is cut off, and its last event is `lost`.",
        problems: &[Kind::NoSuchSession, Kind::Ended],
    },
    Route {
        method: "GET",
        path: "/v1/openapi.json",
        act: Operation::Document(Reply::json(StatusCode::OK, "This document")),
        name: "getOpenapi",
        summary: "This document",
        contract: "It is made from the code that answers.",
        problems: &[],
    },
    Route {
        method: "GET",
        path: "/v1/status",
        act: Operation::Status(Reply::json(StatusCode::OK, "The gateway")),
        name: "getStatus",
        summary: "The whole gateway",
        contract: "The servers of its configuration with their client sessions and trees, and its last problems. `leash status` \
                   shows it.",
        problems: &[],
    },
    Route {
        method: "POST",
        path: "/v1/page-links",
        act: Operation::PageLink(Reply::json(StatusCode::CREATED, "The link")),
        name: "createPageLink",
        summary: "A one-time link to the page",
        contract: "The link works once, for a minute, in a browser of the same user on this machine. `leash status --open` prints it.",
        problems: &[Kind::NoPage],
    },
    Route {
        method: "GET",
        path: "/v1/version",
        act: Operation::Version(Reply::json(StatusCode::OK, "Version and pid")),
        name: "getVersion",
        summary: "Version of the daemon",
        contract: "Also a way to check that a daemon is running.",
        problems: &[],
    },
];

/// The result of routing a request.
pub(super) enum Routing<'p> {
    /// This route, with the id in the path.
    Route(&'static Route, &'p str),
    /// The path has only these methods.
    Other(String),
    /// The path does not exist.
    Nothing,
}

/// Finds the route of a request.
pub(super) fn find<'p>(method: &str, path: &'p str) -> Routing<'p> {
    let here = || ROUTES.iter().filter_map(|route| Some((route, matches(route.path, path)?)));
    if let Some((route, id)) = here().find(|(route, _)| route.method == method) {
        return Routing::Route(route, id);
    }
    let methods: Vec<&str> = here().map(|(route, _)| route.method).collect();
    if methods.is_empty() { Routing::Nothing } else { Routing::Other(methods.join(", ")) }
}

/// The id in a path, empty if the pattern has none; `None` if the path does not match.
fn matches<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let (mut wanted, mut given, mut id) = (pattern.split('/'), path.split('/'), "");
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(id),
            (Some("{id}"), Some(part)) if !part.is_empty() => id = part,
            (Some(wanted), Some(part)) if wanted == part => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, expected: &str) {
        let found = match find(method, path) {
            Routing::Route(route, id) => format!("{} {id}", route.name),
            Routing::Other(methods) => methods,
            Routing::Nothing => "nothing".to_owned(),
        };
        assert_eq!(found, expected, "{method} {path}");
    }

    #[test]
    fn requests_are_routed_by_method_and_path() {
        check("POST", "/v1/sessions", "createSession ");
        check("DELETE", "/v1/sessions/a.b", "endSession a.b");
        check("POST", "/v1/sessions/a/abort", "abortSession a");
        check("PATCH", "/v1/sessions", "POST, GET, DELETE");
        check("GET", "/v1/sessions/a/lease", "PUT");
        for path in ["/", "/v1", "/v1/sessions/", "/v1/sessions/a/b", "/v1/sessions//lease", "/v2/sessions"] {
            check("GET", path, "nothing");
        }
    }
}
