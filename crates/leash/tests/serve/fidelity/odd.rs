//! JSON texts that every reader must accept and few writers produce.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The whitespace between the tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Blanks and tabs: the text is one line.
    Line,
    /// Also line breaks.
    Lines,
}

pub(super) fn gap(space: Space) -> BoxedStrategy<&'static str> {
    let mut gaps = vec!["", "", "", "", " ", "\t", "  \t "];
    if space == Space::Lines {
        gaps.extend(["\n", "\r\n", "\n    ", "\r"]);
    }
    select(gaps).boxed()
}

/// Integers of thirty digits, negative zero, exponents beyond any float.
fn number() -> BoxedStrategy<String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,29})",
        "-?[1-9][0-9]{29}",
        "-?(0|[1-9][0-9]?)(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?"
    ]
    .boxed()
}

/// A string with its quotes: unnecessary escapes, half surrogate pairs, separators that some readers take for newlines.
pub(super) fn string() -> BoxedStrategy<String> {
    let escapes = [
        "\\\"",
        "\\\\",
        "\\/",
        "\\b",
        "\\f",
        "\\n",
        "\\r",
        "\\t",
        "\\u0000",
        "\\u001F",
        "\\u0041",
        "\\uD83D\\uDE00",
        "\\ud800",
        "\\uDC00",
        "\\u2028",
        "\\uFFFF",
    ];
    let wide = ["\u{7f}", "\u{85}", "é", "e\u{301}", "\u{2028}", "\u{2029}", "\u{feff}", "😀", "\u{10ffff}"];
    let piece = prop_oneof![
        "[ !#-\\[\\]-~]{1,6}",
        select(escapes.to_vec()).prop_map(str::to_owned),
        select(wide.to_vec()).prop_map(str::to_owned),
    ];
    vec(piece, 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat())).boxed()
}

/// The name of an unknown field.
fn strange_name() -> BoxedStrategy<String> {
    string().prop_map(|text| format!("\"x{}", &text[1..])).boxed()
}

/// Any value; objects may contain a name twice.
pub(super) fn value(space: Space) -> BoxedStrategy<String> {
    let literal = select(vec!["null", "true", "false", "[]", "{}", "\"\""]).prop_map(str::to_owned);
    let leaf = prop_oneof![literal, number(), string()];
    let tree = leaf.prop_recursive(4, 24, 4, move |inner| {
        let item = (gap(space), inner.clone(), gap(space)).prop_map(|(a, value, b)| format!("{a}{value}{b}"));
        let name = prop_oneof![string(), Just("\"twice\"".to_owned())];
        let field = (gap(space), name, gap(space), item.clone())
            .prop_map(|(a, name, b, value)| format!("{a}{name}{b}:{value}"));
        prop_oneof![
            vec(item, 1..4).prop_map(|items| format!("[{}]", items.join(","))),
            vec(field, 1..4).prop_map(|fields| format!("{{{}}}", fields.join(","))),
        ]
    });
    let deep = (1..3000_usize, any::<bool>()).prop_map(|(depth, array)| match array {
        true => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        false => format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
    });
    prop_oneof![12 => tree, 1 => deep].boxed()
}

/// An object with these fields among unknown ones, in any order.
pub(super) fn object(space: Space, fields: Vec<(&'static str, String)>) -> BoxedStrategy<String> {
    let known: Vec<(String, String)> = fields.into_iter().map(|(name, value)| (format!("\"{name}\""), value)).collect();
    let strange = vec((strange_name(), value(space)), 0..4);
    strange
        .prop_flat_map(move |strange| {
            let all = known.iter().cloned().chain(strange).collect::<Vec<_>>();
            let count = all.len();
            let gaps = vec((gap(space), gap(space), gap(space), gap(space)), count);
            (Just(all).prop_shuffle(), gaps, vec(any::<bool>(), count), proptest::option::of(value(space)))
        })
        .prop_map(|(all, gaps, spelled, decoy)| {
            let fields = all.iter().zip(gaps).zip(spelled).map(|((field, (a, b, c, d)), spelled)| {
                let name = if spelled { respelled(&field.0) } else { field.0.clone() };
                format!("{a}{name}{b}:{c}{}{d}", field.1)
            });
            let mut fields: Vec<String> = fields.collect();
            // If a name occurs twice, the last one counts.
            if let (Some(decoy), Some((name, _))) = (decoy, all.first()) {
                fields.insert(0, format!("{name}:{decoy}"));
            }
            format!("{{{}}}", fields.join(","))
        })
        .boxed()
}

/// A string with its first character as an escape, if that is a plain one.
pub(super) fn respelled(string: &str) -> String {
    match string.as_bytes() {
        [b'"', first, ..] if first.is_ascii_alphanumeric() => format!("\"\\u{:04X}{}", first, &string[2..]),
        _ => string.to_owned(),
    }
}

/// An id as a client may choose it.
pub(super) fn id() -> BoxedStrategy<String> {
    prop_oneof!["-?(0|[1-9][0-9]{0,29})", "[0-9]\\.[0-9]{1,5}", string(), "\"[a-z0-9-]{1,36}\""].boxed()
}

fn method() -> BoxedStrategy<String> {
    "\"x/[a-z]{1,8}\"".prop_map(|method| if method.len() % 2 == 0 { respelled(&method) } else { method }).boxed()
}

fn version() -> BoxedStrategy<String> {
    select(vec!["\"2.0\"", "\"2.0\"", "\"\\u0032.0\""]).prop_map(str::to_owned).boxed()
}

fn around(space: Space, text: BoxedStrategy<String>) -> BoxedStrategy<String> {
    (gap(space), text, gap(space)).prop_map(|(a, text, b)| format!("{a}{text}{b}")).boxed()
}

/// A request with this id.
pub(super) fn request(space: Space, id: String) -> BoxedStrategy<String> {
    let parts = (version(), method(), value(space), any::<bool>());
    let text = parts.prop_flat_map(move |(version, method, params, with)| {
        let mut fields = vec![("jsonrpc", version), ("id", id.clone()), ("method", method)];
        if with {
            fields.push(("params", params));
        }
        object(space, fields)
    });
    around(space, text.boxed())
}

/// A notification.
pub(super) fn notification(space: Space) -> BoxedStrategy<String> {
    let parts = (version(), method(), value(space));
    let text = parts.prop_flat_map(move |(version, method, params)| {
        object(space, vec![("jsonrpc", version), ("method", method), ("params", params)])
    });
    around(space, text.boxed())
}

/// A response with this id; some have a result and some an error.
pub(super) fn response(space: Space, id: String) -> BoxedStrategy<String> {
    let parts = (version(), value(space), select(vec!["result", "error"]));
    let text = parts.prop_flat_map(move |(version, value, name)| {
        object(space, vec![("jsonrpc", version), ("id", id.clone()), (name, value)])
    });
    around(space, text.boxed())
}

/// Several texts as an array.
pub(super) fn array(space: Space, texts: Vec<String>) -> BoxedStrategy<String> {
    let gaps = vec((gap(space), gap(space)), texts.len());
    let text = gaps.prop_map(move |gaps| {
        let items = texts.iter().zip(gaps).map(|(text, (a, b))| format!("{a}{text}{b}"));
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    });
    around(space, text.boxed())
}
