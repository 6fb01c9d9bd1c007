//! The paths of the control API: one table, which routes requests and from which the OpenAPI document is made.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::problem::Problem;
use super::view::{AbortedView, EventView, Lease, NewSession, ReceiptsView, SessionView, SessionsView, VersionView};
use leash_model::receipt::Receipt;

/// The operation of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    List,
    EndAll,
    Show,
    End,
    Renew,
    Abort,
    Events,
    Document,
    Version,
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
    pub(super) query: &'static [Parameter],
    pub(super) body: Option<Shape>,
    pub(super) answers: &'static [RouteResponse],
}

/// A parameter of the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) is: ParameterType,
    pub(super) about: &'static str,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterType {
    Boolean,
    Text,
    /// A text that may be given several times.
    Texts,
}

/// A possible response.
pub(super) struct RouteResponse {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) kind: &'static str,
    pub(super) shape: Option<Shape>,
}

/// The schema of a type.
pub(super) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn json<T: JsonSchema>(status: u16, about: &'static str) -> RouteResponse {
    RouteResponse { status, about, kind: "application/json", shape: Some(shape::<T>) }
}

const fn problem(status: u16, about: &'static str) -> RouteResponse {
    RouteResponse { status, about, kind: "application/problem+json", shape: Some(shape::<Problem>) }
}

const fn events(status: u16, about: &'static str) -> RouteResponse {
    RouteResponse { status, about, kind: "text/event-stream", shape: Some(shape::<EventView>) }
}

const UNKNOWN: RouteResponse = problem(404, "`no-such-session`");

const WAIT: Parameter = Parameter {
    name: "wait",
    is: ParameterType::Boolean,
    about: "`false`: the answer comes at once, and the end goes on.",
};

const FORCE: Parameter =
    Parameter { name: "force", is: ParameterType::Boolean, about: "`true`: no grace, processes are killed at once." };

/// All routes.
pub(super) const ROUTES: [Route; 10] = [
    Route {
        method: "POST",
        path: "/v1/sessions",
        act: Operation::Create,
        name: "createSession",
        summary: "Begin a session",
        contract: "When it returns with 201, every stdio server runs and every HTTP server has accepted a connection. When it \
                   returns with anything else, nothing remains of what was begun. With `owner.connection` the answer is an event \
                   stream whose first event, `session`, has the session; when that connection is closed, the session ends.",
        query: &[],
        body: Some(shape::<NewSession>),
        answers: &[
            json::<SessionView>(201, "The session; `Location` says where it is"),
            problem(400, "`invalid-json` or `invalid-request`, with every mistake"),
            problem(406, "`not-acceptable`: an event stream would not be accepted"),
            problem(409, "`ended`: it was ended while it was starting"),
            problem(413, "`too-large`"),
            problem(415, "`unsupported-media-type`"),
            problem(502, "`server-failed`, with `server` and `why`"),
            problem(503, "`draining` or `too-many-sessions`"),
        ],
    },
    Route {
        method: "GET",
        path: "/v1/sessions",
        act: Operation::List,
        name: "listSessions",
        summary: "All sessions",
        contract: "Those that are starting, live or ending, in the order in which they began.",
        query: &[
            Parameter { name: "all", is: ParameterType::Boolean, about: "`true`: also the last 100 that have ended." },
            Parameter { name: "label", is: ParameterType::Texts, about: "`NAME=VALUE`: only those with this label." },
        ],
        body: None,
        answers: &[json::<SessionsView>(200, "The sessions"), problem(400, "`invalid-request`")],
    },
    Route {
        method: "DELETE",
        path: "/v1/sessions",
        act: Operation::EndAll,
        name: "endSessions",
        summary: "End all sessions",
        contract: "As for one: all end at the same time, and when it returns with 200 nothing is left of any, or what is left is \
                   in its receipt. Sessions that begin meanwhile are not touched.",
        query: &[WAIT, FORCE],
        body: None,
        answers: &[
            json::<ReceiptsView>(200, "The receipts"),
            json::<SessionsView>(202, "With `wait=false`: the sessions that are being ended"),
            problem(400, "`invalid-request`"),
        ],
    },
    Route {
        method: "GET",
        path: "/v1/sessions/{id}",
        act: Operation::Show,
        name: "getSession",
        summary: "One session",
        contract: "Also one that has ended, as long as its receipt is kept.",
        query: &[],
        body: None,
        answers: &[json::<SessionView>(200, "The session"), UNKNOWN],
    },
    Route {
        method: "DELETE",
        path: "/v1/sessions/{id}",
        act: Operation::End,
        name: "endSession",
        summary: "End a session",
        contract: "When it returns with 200, every process of the session is proved to be gone and every session at a server \
                   elsewhere is deleted, those of `leash run --session` and `leash connect --session` with its id included; what \
                   could not be is named in the receipt as `left`, with the reason. Its URLs answer \
                   404 from the moment of the call. A caller that leaves changes nothing. Asked again it returns the same receipt.",
        query: &[WAIT, FORCE],
        body: None,
        answers: &[
            json::<Receipt>(200, "The receipt"),
            json::<SessionView>(202, "With `wait=false`: the session that is being ended"),
            problem(400, "`invalid-request`"),
            UNKNOWN,
        ],
    },
    Route {
        method: "PUT",
        path: "/v1/sessions/{id}/lease",
        act: Operation::Renew,
        name: "renewSession",
        summary: "Renew a lease",
        contract: "When it returns with 200, the session lives for at least its ttl from now, unless something else ends it.",
        query: &[],
        body: Some(shape::<Lease>),
        answers: &[
            json::<SessionView>(200, "The session"),
            problem(400, "`invalid-json` or `invalid-request`"),
            UNKNOWN,
            problem(409, "`no-lease` or `ended`"),
            problem(413, "`too-large`"),
            problem(415, "`unsupported-media-type`"),
        ],
    },
    Route {
        method: "POST",
        path: "/v1/sessions/{id}/abort",
        act: Operation::Abort,
        name: "abortSession",
        summary: "Cancel the requests in flight",
        contract: "When it returns, every request that was in flight is cancelled: its client gets the error -32000 `aborted`, or its \
                   answer breaks off where half of it is written, and its server is told; at HTTP servers that is under way. The session \
                   stays, with everything it holds.",
        query: &[],
        body: None,
        answers: &[json::<AbortedView>(200, "The number of requests"), UNKNOWN, problem(409, "`ended`")],
    },
    Route {
        method: "GET",
        path: "/v1/events",
        act: Operation::Events,
        name: "listen",
        summary: "Events of sessions",
        contract: "Events from now on: `started`, `owner-lost`, `ending` and `ended` with the receipt. A comment comes at once, \
                   and then every 15 s. A reader that leaves 256 events unread is cut off, and its last event is `lost`.",
        query: &[Parameter {
            name: "session",
            is: ParameterType::Text,
            about: "Only of this one; the stream ends with it.",
        }],
        body: None,
        answers: &[events(200, "The events"), problem(400, "`invalid-request`"), UNKNOWN],
    },
    Route {
        method: "GET",
        path: "/v1/openapi.json",
        act: Operation::Document,
        name: "getOpenapi",
        summary: "This document",
        contract: "It is made from the code that answers.",
        query: &[],
        body: None,
        answers: &[RouteResponse { status: 200, about: "This document", kind: "application/json", shape: None }],
    },
    Route {
        method: "GET",
        path: "/v1/version",
        act: Operation::Version,
        name: "getVersion",
        summary: "Version of the daemon",
        contract: "Also a way to check that a daemon is running.",
        query: &[],
        body: None,
        answers: &[json::<VersionView>(200, "Version and pid")],
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
