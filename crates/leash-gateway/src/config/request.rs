//! Reads the JSON bodies of the control API: the same entries of `mcpServers` as in a file. Returns every mistake at
//! once, each with a JSON pointer to it. Variables are not expanded: the daemon does not have the environment of the
//! caller.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;

use super::json::{Field, Kind, Object, Reader, kind};
use super::keys;
use super::mistake::Mistake;
use super::settings::Server;
use super::terms::Terms;
use leash_model::limits;

/// The keys of a session.
const SESSION: [&str; 7] = ["name", "mcpServers", "owner", "ttl", "idle", "maxAge", "labels"];

/// The label that leash sets itself.
const OURS: &str = "gateway";

/// A request for a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionRequest {
    /// Its name, for people.
    pub(crate) name: Option<String>,
    /// Its servers, by name.
    pub(crate) servers: BTreeMap<String, Server>,
    /// Its owner.
    pub(crate) owner: Option<OwnerWish>,
    /// The time that it lives without being renewed.
    pub(crate) ttl: Option<Duration>,
    /// The time that it lives without being used.
    pub(crate) idle: Option<Duration>,
    /// The time that it lives at most.
    pub(crate) max_age: Option<Duration>,
    /// Its labels, for people and filters.
    pub(crate) labels: BTreeMap<String, String>,
}

/// The requested owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerWish {
    /// A process.
    Pid(i32),
    /// The connection of the request.
    Connection,
}

/// The reason that a request cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misread {
    /// It is not JSON.
    NotJson(Fault),
    /// It is JSON, but has mistakes.
    Faults(Vec<Fault>),
}

/// One mistake of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Its position: a JSON pointer.
    pub(crate) pointer: String,
    /// The problem.
    pub(crate) what: String,
    /// The hint: how to fix it.
    pub(crate) hint: Option<String>,
}

/// Reads the body of `POST /v1/sessions`.
pub(crate) fn session_request(text: &str) -> Result<SessionRequest, Misread> {
    with_reader(text, |reader, root| {
        let mut request = SessionRequest::default();
        if let Some(top) = reader.object(root, "the request", "the request") {
            reader.session(root, &top, &mut request);
        }
        request
    })
}

/// Reads the body of a renewal: the new ttl, if there is one.
pub(crate) fn lease_request(text: &str) -> Result<Option<Duration>, Misread> {
    // A renewal without changes may have an empty body.
    if text.trim().is_empty() {
        return Ok(None);
    }
    with_reader(text, |reader, root| {
        let top = reader.object(root, "the request", "the request")?;
        reader.known(&top, &["ttl"]);
        reader.time(&top, "ttl")
    })
}

fn with_reader<'a, T>(text: &'a str, read: impl FnOnce(&mut Reader<'a>, &'a RawValue) -> T) -> Result<T, Misread> {
    let mut reader = Reader {
        text,
        file: "",
        variable: &|_| None,
        overridden: true,
        tolerant: false,
        expands: false,
        found: Vec::new(),
    };
    let read = reader.root().map(|root| read(&mut reader, root));
    let mut found = std::mem::take(&mut reader.found);
    found.sort_by_key(|mistake| (mistake.line, mistake.column));
    match read {
        None => Err(Misread::NotJson(found.into_iter().next().map(|mistake| not_json(&mistake)).unwrap_or_default())),
        Some(read) if found.is_empty() => Ok(read),
        Some(_) => Err(Misread::Faults(found.into_iter().map(|mistake| fault(text, mistake)).collect())),
    }
}

impl Default for Fault {
    fn default() -> Fault {
        Fault { pointer: String::new(), what: "this is not JSON".to_owned(), hint: None }
    }
}

fn not_json(mistake: &Mistake) -> Fault {
    let what = format!("{} (line {}, column {})", mistake.what, mistake.line, mistake.column);
    // The hint about an empty file does not apply to a request.
    Fault { pointer: String::new(), what, hint: mistake.hint.clone().filter(|hint| !hint.contains("the file")) }
}

fn fault(text: &str, mistake: Mistake) -> Fault {
    let pointer = pointer(text, offset(text, mistake.line, mistake.column));
    Fault { pointer, what: mistake.what, hint: mistake.hint }
}

/// The offset of a line and a column.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.chars().take(column.saturating_sub(1)).map(char::len_utf8).sum::<usize>()
}

/// The JSON pointer to the value at an offset of a text.
fn pointer(text: &str, offset: usize) -> String {
    let mut path = String::new();
    let Ok(mut value) = serde_json::from_str::<&RawValue>(text) else { return path };
    let begins = |part: &str| (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let holds = |from: &str, to: &str| (begins(from)..begins(to) + to.len()).contains(&offset);
    loop {
        let inside = match kind(value) {
            Kind::Object => {
                let entries = super::json::entries(value);
                let entry = entries.into_iter().find(|(key, value)| holds(key.get(), value.get()));
                entry.map(|(key, value)| (serde_json::from_str::<String>(key.get()).unwrap_or_default(), value))
            }
            Kind::Array => {
                let elements = serde_json::from_str::<Vec<&RawValue>>(value.get()).unwrap_or_default();
                let mut numbered = elements.into_iter().enumerate();
                let element = numbered.find(|(_, element)| holds(element.get(), element.get()));
                element.map(|(index, element)| (index.to_string(), element))
            }
            _ => None,
        };
        let Some((name, inner)) = inside else { return path };
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        value = inner;
    }
}

impl<'a> Reader<'a> {
    fn session(&mut self, root: &'a RawValue, top: &Object<'a>, request: &mut SessionRequest) {
        self.known(top, &SESSION);
        request.name = top.get("name").and_then(|field| self.name(field));
        match top.get("mcpServers") {
            Some(field) => self.servers_of_session(field, request),
            None => {
                let hint = "name the servers of the session: `{\"mcpServers\": {\"NAME\": {\"command\": ...}}}`";
                self.say(root.get(), "the request has no `mcpServers`", hint.to_owned());
            }
        }
        request.owner = top.get("owner").and_then(|field| self.owner_wish(field));
        request.ttl = self.time(top, "ttl");
        request.idle = self.time(top, "idle");
        request.max_age = self.time(top, "maxAge");
        request.labels = top.get("labels").map(|field| self.labels(field)).unwrap_or_default();
    }

    /// Reports unknown keys.
    fn known(&mut self, object: &Object<'a>, known: &[&str]) {
        for field in object.0.iter().filter(|field| !known.contains(&field.name.as_str())) {
            let all = || format!("leash knows {}", known.join(", "));
            let hint = keys::did_you_mean(&field.name, known).unwrap_or_else(all);
            self.unknown(field, Some(hint));
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

    fn servers_of_session(&mut self, field: &Field<'a>, request: &mut SessionRequest) {
        let Some(entries) = self.object(field.value, "`mcpServers`", "`mcpServers`") else { return };
        let before = self.found.len();
        for entry in &entries.0 {
            if let Some(server) = self.server(entry, &Terms::default()) {
                request.servers.insert(server.name.clone(), server);
            }
        }
        if self.found.len() > before {
            return;
        }
        if request.servers.is_empty() {
            let what = if entries.0.is_empty() { "there are no servers" } else { "every server is switched off" };
            self.say(field.value.get(), what, "a session needs at least one server".to_owned());
        } else if request.servers.len() > limits::JOB_SERVERS {
            let hint = format!("at most {} servers a session", limits::JOB_SERVERS);
            self.say(field.value.get(), "there are too many servers", hint);
        }
    }

    fn owner_wish(&mut self, field: &Field<'a>) -> Option<OwnerWish> {
        let owner = self.object(field.value, &field.to_string(), "`owner`")?;
        self.known(&owner, &["pid", "connection"]);
        let hint = "write `{\"pid\": N}` or `{\"connection\": true}`, or leave it out";
        match (owner.get("pid"), owner.get("connection")) {
            (Some(pid), None) => {
                let number = pid.value.get().parse::<i32>().ok().filter(|pid| *pid > 0);
                if number.is_none() {
                    self.say(pid.value.get(), format!("{pid} must be the number of a process"), hint.to_owned());
                }
                number.map(OwnerWish::Pid)
            }
            (None, Some(connection)) => match self.boolean(connection)? {
                true => Some(OwnerWish::Connection),
                false => {
                    self.say(connection.value.get(), format!("{connection} can only be `true`"), hint.to_owned());
                    None
                }
            },
            (Some(_), Some(_)) => {
                self.say(field.value.get(), format!("{field} has both `pid` and `connection`"), hint.to_owned());
                None
            }
            (None, None) => {
                self.say(field.value.get(), format!("{field} has neither `pid` nor `connection`"), hint.to_owned());
                None
            }
        }
    }

    fn time(&mut self, object: &Object<'a>, name: &str) -> Option<Duration> {
        self.some_span(object.get(name)?, "leave it out for no limit")
    }

    fn labels(&mut self, field: &Field<'a>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        let Some(object) = self.object(field.value, &field.to_string(), "`labels`") else { return labels };
        for field in &object.0 {
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
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each mistake as `pointer: what`, or the names of the servers if there is none.
    fn check(text: &str, expected: &[&str]) {
        let told: Vec<String> = match session_request(text) {
            Ok(request) => request.servers.into_keys().collect(),
            Err(Misread::NotJson(fault)) => vec![format!("not JSON: {}", fault.what)],
            Err(Misread::Faults(faults)) => {
                faults.into_iter().map(|fault| format!("{}: {}", fault.pointer, fault.what)).collect()
            }
        };
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn all_keys_of_a_session_are_read() {
        let text = r#"{"name": "job 42", "owner": {"pid": 7}, "ttl": "30s", "idle": "10m", "maxAge": "1h",
            "labels": {"team": "a"}, "mcpServers": {"files": {"command": "npx", "env": {"A": "${B}"}}}}"#;
        let request = session_request(text).expect("valid");
        assert_eq!(request.owner, Some(OwnerWish::Pid(7)));
        assert_eq!(request.ttl, Some(Duration::from_secs(30)));
        assert_eq!((request.idle, request.max_age), (Some(Duration::from_secs(600)), Some(Duration::from_secs(3600))));
        assert_eq!(request.labels["team"], "a");
        let crate::config::Target::Command(line) = &request.servers["files"].target else { panic!("a command") };
        assert_eq!(line.env["A"], "${B}", "the environment of the daemon is not the caller's");
    }

    #[test]
    fn every_mistake_is_reported_with_a_pointer() {
        check(
            r#"{"nmae": 1, "mcpServers": {"a/b~": {"command": "x"}, "b": {"command": "x", "args": ["1", 2]},
                "c": {"url": "ftp://x"}, "d": {"command": "x", "leash": {"idle": 5}}}, "owner": {"pid": 0}, "ttl": "soon",
                "labels": {"gateway": "x", "a=b": "c", "n": 1}}"#,
            &[
                "/nmae: unknown key `nmae` in the request",
                "/mcpServers/a~1b~0: `a/b~` cannot be the name of a server",
                "/mcpServers/b/args/1: `args` in server `b` must be a text in double quotes, not a number",
                "/mcpServers/c/url: `url` in server `c`: the url does not start with `http://` or `https://`",
                "/mcpServers/d/leash/idle: `idle` in server `d` must be a duration in double quotes, not a number",
                "/owner/pid: `pid` in `owner` must be the number of a process",
                "/ttl: `ttl` in the request: `soon` does not start with a whole number",
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
        assert_eq!(lease_request(""), Ok(None));
        assert_eq!(lease_request("{}"), Ok(None));
        assert_eq!(lease_request(r#"{"ttl": "5s"}"#), Ok(Some(Duration::from_secs(5))));
        assert!(
            matches!(lease_request(r#"{"ttl": "0"}"#), Err(Misread::Faults(faults)) if faults[0].pointer == "/ttl")
        );
        assert!(matches!(lease_request("{"), Err(Misread::NotJson(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,60}") {
            let _ = session_request(&text);
        }

        #[test]
        fn any_offset_has_a_pointer(offset in 0..80usize) {
            let text = r#"{"a": [1, {"b~/": "c"}], "d": {}}"#;
            let found = pointer(text, offset);
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            proptest::prop_assert!(value.pointer(&found).is_some(), "{}", found);
        }
    }
}
