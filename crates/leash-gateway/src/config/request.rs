//! Reads the JSON bodies of the control API: the same entries of `mcpServers` as in a file. Returns every mistake at
//! once, each with a JSON pointer to it. Variables are not expanded: the daemon does not have the environment of the
//! caller.

use std::{collections::BTreeMap, time::Duration};

use schemars::{Schema, SchemaGenerator, json_schema};

use super::json::{ConfigReader, Field, Object};
use super::table::{Key, KeySchema, Table, key, shapes};
use super::{keys, mistake::ConfigMistake, pointer, server::SERVER, settings::ServerSettings};
use leash_model::limits;
use leash_tree::contain::caps::Caps;

/// The label that leash sets itself.
const OURS: &str = "gateway";

/// The hint about an owner that cannot be read.
const OWNER_HINT: &str = "write `{\"pid\": N}` or `{\"connection\": true}`, or leave it out";

/// A request for a session; [`NEW_SESSION`] describes its fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionRequest {
    pub(crate) name: Option<String>,
    pub(crate) servers: BTreeMap<String, ServerSettings>,
    pub(crate) owner: Option<RequestedOwner>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) idle: Option<Duration>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) budget: Caps,
    pub(crate) labels: BTreeMap<String, String>,
}

/// The body of `POST /v1/sessions`.
pub(crate) const NEW_SESSION: Table<SessionRequest> = Table {
    name: "NewSession",
    about: "The body of `POST /v1/sessions`.",
    keys: &[
        key!("name", name => Some(name), "For people."),
        Key {
            needed: Some("name the servers of the session: `{\"mcpServers\": {\"NAME\": {\"command\": ...}}}`"),
            ..key!(
                "mcpServers",
                servers_of_session => servers,
                "At least one server, each as in the configuration of any MCP client, plus a `leash` object for leash's \
                 terms. Variables are not expanded."
            )
        },
        key!("owner", owner_wish => Some(owner), "Its owner; without this key it has none."),
        key!("ttl", lifetime => Some(ttl), "The time that it lives without being renewed."),
        key!("idle", lifetime => Some(idle), "The time that it lives without being used."),
        key!("maxAge", lifetime => Some(max_age), "The time that it lives at most."),
        key!("budget", budget => budget, "The budget of all trees of the session together."),
        key!("labels", labels => labels, "For people and for `?label=`."),
    ],
    ..Table::EMPTY
};

/// A renewal of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) ttl: Option<Duration>,
}

/// The body of `PUT /v1/sessions/{id}/lease`.
pub(crate) const LEASE: Table<LeaseRequest> = Table {
    name: "Lease",
    about: "The body of `PUT /v1/sessions/{id}/lease`.",
    keys: &[key!("ttl", lifetime => Some(ttl), "A new ttl, if it is to change.")],
    ..Table::EMPTY
};

/// The requested owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedOwner {
    /// A process.
    Pid(i32),
    /// The connection of the request.
    Connection,
}

/// The values of `owner`, of which exactly one must be given.
#[derive(Default)]
struct OwnerFields {
    pid: Option<i32>,
    connection: Option<RequestedOwner>,
}

const OWNER: Table<OwnerFields> = Table {
    name: "NewOwner",
    about: "The owner of a new session: one of the two.",
    keys: &[
        key!("pid", pid => Some(pid), "A process."),
        key!("connection", connection => Some(connection), "The connection of this request: the response is an event stream."),
    ],
    ..Table::EMPTY
};

/// The reason that a request cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// It is not JSON.
    NotJson(RequestMistake),
    /// It is JSON, but has mistakes.
    Faults(Vec<RequestMistake>),
}

/// One mistake of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestMistake {
    /// Its position: a JSON pointer.
    pub(crate) pointer: String,
    /// The problem.
    pub(crate) what: String,
    /// The hint: how to fix it.
    pub(crate) hint: Option<String>,
}

/// Reads the body of a request. A body whose keys may all be missing may be empty.
pub(crate) fn read_request<T: Default>(table: &Table<T>, text: &str) -> Result<T, RequestError> {
    let mut request = T::default();
    if text.trim().is_empty() && !table.needs_keys() {
        return Ok(request);
    }
    let mut reader = ConfigReader { expands: false, ..ConfigReader::new(text, "", &|_| None) };
    let root = reader.root();
    if let Some(top) = root.and_then(|root| reader.object(root, "the request", "the request")) {
        reader.request(&top, table, &mut request);
    }
    let mut found = reader.found;
    found.sort_by_key(|mistake| (mistake.line, mistake.column));
    match root {
        // A reader without a root has found a mistake.
        None => Err(RequestError::NotJson(found.into_iter().next().map(not_json).unwrap_or_default())),
        Some(_) if found.is_empty() => Ok(request),
        Some(_) => Err(RequestError::Faults(found.into_iter().map(|mistake| fault(text, mistake)).collect())),
    }
}

fn not_json(mistake: ConfigMistake) -> RequestMistake {
    let what = format!("{} (line {}, column {})", mistake.what, mistake.line, mistake.column);
    // The hint about an empty file does not apply to a request.
    let hint = mistake.hint.filter(|hint| !hint.contains("the file"));
    RequestMistake { pointer: String::new(), what, hint }
}

fn fault(text: &str, mistake: ConfigMistake) -> RequestMistake {
    RequestMistake { pointer: pointer::at(text, mistake.line, mistake.column), what: mistake.what, hint: mistake.hint }
}

impl<'a> ConfigReader<'a> {
    /// Reads the fields of a request. Reports every needed key that is missing.
    fn request<T>(&mut self, top: &Object<'a>, table: &Table<T>, request: &mut T) {
        self.fields(top, table, request, |name| keys::known_keys(name, &table.names()));
        for key in table.keys.iter().filter(|key| top.get(key.name).is_none()) {
            if let Some(hint) = key.needed {
                self.say(self.text.trim_start(), format!("the request has no `{}`", key.name), hint.to_owned());
            }
        }
    }

    fn name(&mut self, field: &Field<'a>) -> Option<String> {
        let name = self.string(field)?;
        if name.is_empty() || name.len() > limits::LABEL_LENGTH || name.contains(char::is_control) {
            let hint = format!("1 to {} bytes, without control characters", limits::LABEL_LENGTH);
            self.say(field.value.get(), format!("{field} cannot be a name"), hint);
        }
        Some(name)
    }

    fn servers_of_session(&mut self, field: &Field<'a>) -> Option<BTreeMap<String, ServerSettings>> {
        let entries = self.object(field.value, "`mcpServers`", "`mcpServers`")?;
        let (mut servers, before) = (BTreeMap::new(), self.found.len());
        for entry in &entries.0 {
            if let Some(server) = self.server(entry) {
                servers.insert(server.name.clone(), server);
            }
        }
        if self.found.len() > before {
            return None;
        }
        if servers.is_empty() {
            let what = if entries.0.is_empty() { "there are no servers" } else { "every server is switched off" };
            self.say(field.value.get(), what, "a session needs at least one server".to_owned());
        } else if servers.len() > limits::JOB_SERVERS {
            let hint = format!("at most {} servers a session", limits::JOB_SERVERS);
            self.say(field.value.get(), "there are too many servers", hint);
        }
        Some(servers)
    }

    fn owner_wish(&mut self, field: &Field<'a>) -> Option<RequestedOwner> {
        let owner = self.object(field.value, &field.to_string(), "`owner`")?;
        let mut read = OwnerFields::default();
        self.fields(&owner, &OWNER, &mut read, |name| keys::known_keys(name, &OWNER.names()));
        let wrong = match (owner.has(&["pid"]), owner.has(&["connection"])) {
            (true, true) => "has both `pid` and `connection`",
            (false, false) => "has neither `pid` nor `connection`",
            (true, false) | (false, true) => return read.pid.map(RequestedOwner::Pid).or(read.connection),
        };
        self.say(field.value.get(), format!("{field} {wrong}"), OWNER_HINT.to_owned());
        None
    }

    fn pid(&mut self, field: &Field<'a>) -> Option<i32> {
        let number = field.value.get().parse::<i32>().ok().filter(|pid| *pid > 0);
        if number.is_none() {
            self.say(field.value.get(), format!("{field} must be the number of a process"), OWNER_HINT.to_owned());
        }
        number
    }

    fn connection(&mut self, field: &Field<'a>) -> Option<RequestedOwner> {
        let wanted = self.boolean(field)?;
        if !wanted {
            self.say(field.value.get(), format!("{field} can only be `true`"), OWNER_HINT.to_owned());
        }
        wanted.then_some(RequestedOwner::Connection)
    }

    fn labels(&mut self, field: &Field<'a>) -> Option<BTreeMap<String, String>> {
        let mut labels = BTreeMap::new();
        for field in &self.object(field.value, &field.to_string(), "`labels`")?.0 {
            let Some(value) = self.string(field) else { continue };
            let long = |text: &str| text.len() > limits::LABEL_LENGTH || text.contains(char::is_control);
            if field.name.is_empty() || field.name.contains('=') || long(&field.name) || long(&value) {
                let hint = format!(
                    "at most {} bytes without control characters, and no `=` in the name",
                    limits::LABEL_LENGTH
                );
                self.say(field.key, format!("{field} cannot be a label"), hint);
            } else if field.name == OURS {
                self.say(field.key, format!("{field} is a label of leash's own"), "choose another name".to_owned());
            }
            labels.insert(field.name.clone(), value);
        }
        if labels.len() > limits::LABELS {
            self.say(field.value.get(), "there are too many labels", format!("at most {}", limits::LABELS));
        }
        Some(labels)
    }
}

shapes! {
    name: {"type": "string", "minLength": 1, "maxLength": limits::LABEL_LENGTH},
    pid: {"type": "integer", "minimum": 1, "maximum": i32::MAX},
    connection: {"type": "boolean", "enum": [true]},
    labels: {
        "type": "object",
        "maxProperties": limits::LABELS,
        "additionalProperties": {"type": "string", "maxLength": limits::LABEL_LENGTH},
    },
}

impl KeySchema {
    fn servers_of_session(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "minProperties": 1, "additionalProperties": SERVER.schema(generator)})
    }

    fn owner_wish(generator: &mut SchemaGenerator) -> Schema {
        let mut owner = OWNER.schema(generator);
        owner.insert("minProperties".to_owned(), 1.into());
        owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each mistake as `pointer: what`, or the names of the servers if there is none.
    fn check(text: &str, expected: &[&str]) {
        let told: Vec<String> = match read_request(&NEW_SESSION, text) {
            Ok(request) => request.servers.into_keys().collect(),
            Err(RequestError::NotJson(fault)) => vec![format!("not JSON: {}", fault.what)],
            Err(RequestError::Faults(faults)) => {
                faults.into_iter().map(|fault| format!("{}: {}", fault.pointer, fault.what)).collect()
            }
        };
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn all_keys_of_a_session_are_read() {
        let text = r#"{"name": "job 42", "owner": {"pid": 7}, "ttl": "30s", "idle": "10m", "maxAge": "1h",
            "labels": {"team": "a"}, "budget": {"memory": "2G", "pids": 50}, "mcpServers": {"files": {"command": "npx", "env": {"A": "${B}"}}}}"#;
        let request = read_request(&NEW_SESSION, text).expect("valid");
        assert_eq!(request.owner, Some(RequestedOwner::Pid(7)));
        assert_eq!(request.ttl, Some(Duration::from_secs(30)));
        assert_eq!((request.idle, request.max_age), (Some(Duration::from_secs(600)), Some(Duration::from_secs(3600))));
        assert_eq!(request.labels["team"], "a");
        assert_eq!(request.budget, Caps { memory: Some(2 << 30), pids: Some(50), cpu: None });
        let crate::config::ServerTarget::Command(line) = &request.servers["files"].target else { panic!("a command") };
        assert_eq!(line.env["A"], "${B}", "the environment of the daemon is not the caller's");
    }

    #[test]
    fn every_mistake_is_reported_with_a_pointer() {
        check(
            r#"{"nmae": 1, "mcpServers": {"a/b~": {"command": "x"}, "b": {"command": "x", "args": ["1", 2]},
                "c": {"url": "ftp://x"}, "d": {"command": "x", "leash": {"idle": 5}}}, "owner": {"pid": 0}, "ttl": "soon", "budget": {"cpu": true, "swap": 1},
                "labels": {"gateway": "x", "a=b": "c", "n": 1}}"#,
            &[
                "/nmae: unknown key `nmae` in the request",
                "/mcpServers/a~1b~0: `a/b~` cannot be the name of a server",
                "/mcpServers/b/args/1: `args` in server `b` must be a text in double quotes, not a number",
                "/mcpServers/c/url: `url` in server `c`: the URL does not start with `http://` or `https://`",
                "/mcpServers/d/leash/idle: `idle` in server `d` must be a duration in double quotes, not a number",
                "/owner/pid: `pid` in `owner` must be the number of a process",
                "/ttl: `ttl` in the request: `soon` does not start with a whole number",
                "/budget/cpu: `cpu` in `budget` must be a percentage or a weight, not a boolean",
                "/budget/swap: unknown key `swap` in `budget`",
                "/labels/gateway: `gateway` in `labels` is a label of leash's own",
                "/labels/a=b: `a=b` in `labels` cannot be a label",
                "/labels/n: `n` in `labels` must be a text in double quotes, not a number",
            ],
        );
    }

    #[test]
    fn a_missing_part_is_reported_at_its_container() {
        check("{}", &[": the request has no `mcpServers`"]);
        check("[]", &[": the request must be an object, not an array"]);
        check(r#"{"mcpServers": {}}"#, &["/mcpServers: there are no servers"]);
        check(r#"{"mcpServers": {"a": {}}}"#, &["/mcpServers/a: server `a` has neither `command` nor `url`"]);
        check(
            r#"{"mcpServers": {"a": {"command": "x", "disabled": true}}}"#,
            &["/mcpServers: every server is switched off"],
        );
        check("{ // mine\n}", &["not JSON: this is not JSON: key must be a string (line 1, column 3)"]);
        check("", &["not JSON: this is not JSON: EOF while parsing a value (line 1, column 1)"]);
    }

    #[test]
    fn an_owner_is_a_pid_or_a_connection() {
        let with = |owner: &str| format!(r#"{{"mcpServers": {{"a": {{"command": "x"}}}}, "owner": {owner}}}"#);
        check(&with(r#"{"connection": true}"#), &["a"]);
        check(&with("null"), &["a"]);
        check(&with(r#"{"connection": false}"#), &["/owner/connection: `connection` in `owner` can only be `true`"]);
        check(&with("{}"), &["/owner: `owner` in the request has neither `pid` nor `connection`"]);
        check(
            &with(r#"{"pid": 1, "connection": true}"#),
            &["/owner: `owner` in the request has both `pid` and `connection`"],
        );
    }

    #[test]
    fn a_lease_may_have_a_new_ttl() {
        let read = |text: &str| read_request(&LEASE, text).map(|lease| lease.ttl);
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"ttl": "5s"}"#), Ok(Some(Duration::from_secs(5))));
        assert!(matches!(read(r#"{"ttl": "0"}"#), Err(RequestError::Faults(faults)) if faults[0].pointer == "/ttl"));
        assert!(matches!(read("{"), Err(RequestError::NotJson(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,60}") {
            let _ = read_request(&NEW_SESSION, &text);
        }
    }
}
