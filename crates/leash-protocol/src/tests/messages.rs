//! Properties: any message can be read and changed, however it is written.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::json::{self, Text};
use crate::envelope::{Envelope, EnvelopeKind, IdKey, Message, Splice};
use crate::fuzzing;

/// The placeholder for the id: a control character, which JSON never contains.
const PLACE: &str = "\u{1}";

/// A message, and its expected values.
#[derive(Clone, Debug)]
struct Written {
    /// The text with [`PLACE`] for the id.
    template: String,
    kind: EnvelopeKind,
    id: Id,
    method: String,
    /// The parameters, or the result of a response.
    body: String,
}

impl Written {
    fn source(&self) -> String {
        self.with(&self.id)
    }

    fn with(&self, id: &Id) -> String {
        self.template.replace(PLACE, id.written())
    }

    /// Checks that the envelope has the expected values.
    fn check(&self, envelope: &Envelope<'_>) {
        let is_response = self.kind == EnvelopeKind::Response;
        assert_eq!(envelope.kind, self.kind);
        assert_eq!(envelope.method.as_deref(), (!is_response).then_some(self.method.as_str()));
        assert_eq!(envelope.params.map(|raw| raw.get()), (!is_response).then_some(self.body.as_str()));
        assert_eq!(envelope.result.map(|raw| raw.get()), is_response.then_some(self.body.as_str()));
        self.check_id(envelope, &self.id);
    }

    fn check_id(&self, envelope: &Envelope<'_>, id: &Id) {
        let has_id = self.kind != EnvelopeKind::Notification;
        assert_eq!(envelope.id.map(|id| id.get()), has_id.then_some(id.written()));
        assert_eq!(envelope.key(), has_id.then(|| id.key()));
        assert_eq!(envelope.key().map(|key| key.as_str().to_owned()), has_id.then(|| id.written().to_owned()));
    }
}

#[derive(Clone, Debug)]
enum Id {
    Number(String),
    Text(Text),
}

impl Id {
    fn written(&self) -> &str {
        match self {
            Id::Number(number) => number,
            Id::Text(text) => &text.written,
        }
    }

    /// Its key, by another form of the same id.
    fn key(&self) -> IdKey {
        let other = match self {
            Id::Number(number) => format!("{number}{}", if number.contains(['e', 'E']) { "" } else { "e0" }),
            Id::Text(text) => Value::from(text.meant.as_str()).to_string(),
        };
        let raw = serde_json::from_str::<Box<serde_json::value::RawValue>>(&other).expect("JSON");
        IdKey::of(&raw).expect("an id")
    }
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![json::number().prop_map(Id::Number), json::any_text().prop_map(Id::Text)]
}

fn message() -> impl Strategy<Value = Written> {
    let kind = select(vec![EnvelopeKind::Request, EnvelopeKind::Notification, EnvelopeKind::Response]);
    let parts = (kind, id(), json::any_text(), json::value());
    let others = (proptest::collection::vec((any_name(), json::value()), 0..6), json::blank());
    (parts, others).prop_flat_map(|((kind, id, method, body), (others, blank))| {
        let entries = own_entries(kind, &method, &body);
        (entries, Just((others, blank))).prop_map(move |(entries, (others, blank))| Written {
            template: json::object(&mixed(entries, others), blank),
            kind,
            id: id.clone(),
            method: method.meant.clone(),
            body: body.clone(),
        })
    })
}

/// The fields that a message of a kind must have, in any order.
fn own_entries(kind: EnvelopeKind, method: &Text, body: &str) -> impl Strategy<Value = Vec<(Text, String)>> + use<> {
    let own = match kind {
        EnvelopeKind::Request => vec![("id", PLACE), ("method", method.written.as_str()), ("params", body)],
        EnvelopeKind::Notification => vec![("method", method.written.as_str()), ("params", body)],
        EnvelopeKind::Response => vec![("id", PLACE), ("result", body)],
    };
    let own = own.into_iter().map(|(name, value)| json::entry(name, Just(value.to_owned())));
    let version = json::entry("jsonrpc", json::written("2.0".into()).prop_map(|text| text.written));
    own.chain([version]).collect::<Vec<_>>().prop_shuffle()
}

/// Puts other fields between the message's own ones. Another field with the name of an own field stands before it, so
/// the own one counts. (Other known names are left out, because they would make it another message.)
fn mixed(own: Vec<(Text, String)>, others: Vec<(Text, String)>) -> Vec<(Text, String)> {
    let is_own = |name: &Text| own.iter().any(|(own, _)| own.meant == name.meant);
    let is_known =
        |name: &Text| ["jsonrpc", "id", "method", "params", "result", "error"].contains(&name.meant.as_str());
    let (mut decoys, strangers): (Vec<_>, Vec<_>) = others.into_iter().partition(|(name, _)| is_own(name));
    let mut strangers = strangers.into_iter().filter(|(name, _)| !is_known(name));
    let mut all = Vec::new();
    for entry in own {
        let (before, later) = decoys.into_iter().partition(|(name, _)| name.meant == entry.0.meant);
        decoys = later;
        all.extend::<Vec<_>>(before);
        all.push(entry);
        all.extend(strangers.next());
    }
    all.extend(strangers);
    all
}

fn any_name() -> impl Strategy<Value = Text> {
    let known = select(vec!["jsonrpc", "id", "method", "params", "result"]);
    prop_oneof![known.prop_flat_map(|name| json::written(name.to_owned())).boxed(), json::any_text().boxed()]
}

proptest! {
    // Each case has several complex messages, so fewer cases are enough.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_message_is_read_correctly(written in message()) {
        let source = written.source();
        let message = Message::read(source.as_bytes()).expect("a message");
        let Message::One(envelope) = &message else { panic!("one message is not a batch") };
        written.check(envelope);
        fuzzing::envelope_reader(source.as_bytes());
    }

    #[test]
    fn any_batch_is_read_in_its_order(all in proptest::collection::vec(message(), 1..5), blank in json::blank()) {
        let sources: Vec<String> = all.iter().map(Written::source).collect();
        let source = format!("{blank}[{}]{blank}", sources.join(","));
        let message = Message::read(source.as_bytes()).expect("a batch");
        assert_eq!(message.envelopes().len(), all.len());
        for (envelope, written) in message.envelopes().iter().zip(&all) {
            written.check(envelope);
        }
        fuzzing::envelope_reader(source.as_bytes());
    }

    #[test]
    fn a_splice_changes_only_the_replaced_ids(
        all in proptest::collection::vec(message(), 1..4),
        ids in proptest::collection::vec(id(), 4),
    ) {
        let sources: Vec<String> = all.iter().map(Written::source).collect();
        let source = format!("[{}]", sources.join(","));
        let message = Message::read(source.as_bytes()).expect("a batch");
        let mut splice = Splice::new(source.as_bytes());
        // From the last to the first: the order of the calls does not matter.
        for (envelope, id) in message.envelopes().iter().zip(&ids).rev() {
            envelope.id.map(|old| splice.replace(old, id.written()));
        }
        let changed = splice.finish();

        let expected: Vec<String> = all.iter().zip(&ids).map(|(written, id)| written.with(id)).collect();
        prop_assert_eq!(&changed, &format!("[{}]", expected.join(",")).into_bytes());
        let again = Message::read(&changed).expect("a batch");
        for ((envelope, written), id) in again.envelopes().iter().zip(&all).zip(&ids) {
            written.check_id(envelope, id);
        }
    }

    #[test]
    fn ids_are_equal_when_they_mean_the_same(text in json::any_text(), number in 0..u64::MAX) {
        let raw = |text: &str| serde_json::from_str::<Box<serde_json::value::RawValue>>(text).expect("JSON");
        let plain = raw(&Value::from(text.meant.as_str()).to_string());
        prop_assert_eq!(IdKey::of(&raw(&text.written)), IdKey::of(&plain));
        prop_assert_eq!(IdKey::of(&raw(&number.to_string())), Some(IdKey::from_number(number)));
        prop_assert_ne!(IdKey::of(&raw(&format!("\"{number}\""))), Some(IdKey::from_number(number)));
    }
}

#[test]
fn client_info_is_read_from_initialize_only() {
    let read = |method: &str, params: &str| {
        crate::envelope::client_info(
            format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{method}","params":{params}}}"#).as_bytes(),
        )
    };
    let text = |text: &str| Some(text.to_owned());
    let claude = r#"{"clientInfo":{"name":"claude","version":"2.1","title":1},"capabilities":{}}"#;
    assert_eq!(read("initialize", claude), Some((text("claude"), text("2.1"))));
    assert_eq!(read("initialize", r#"{"clientInfo":{"name":"x"}}"#), Some((text("x"), None)));
    for params in ["{}", r#"{"clientInfo":7}"#, r#"{"clientInfo":{"name":7}}"#, "[]"] {
        assert_eq!(read("initialize", params), None, "{params}");
    }
    assert_eq!(read("tools/call", claude), None);
    assert_eq!(crate::envelope::client_info(b"[]"), None);
}
