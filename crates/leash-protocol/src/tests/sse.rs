//! Event streams, cut in any way.

use proptest::prelude::*;
use proptest::sample::select;

use crate::fuzzing;
use crate::sse::{Event, KEEP_ALIVE, Splitter, TooLarge, encode};

/// All complete events, and the rest.
fn events(stream: &[u8]) -> (Vec<Event>, Vec<u8>) {
    let mut splitter = Splitter::new(1 << 20);
    splitter.push(stream);
    let found = std::iter::from_fn(|| splitter.next_event()).map(|event| event.expect("within the limit")).collect();
    (found, splitter.take_rest().to_vec())
}

fn one(stream: &str) -> Event {
    let (mut found, rest) = events(stream.as_bytes());
    assert_eq!((found.len(), &rest[..]), (1, &b""[..]), "{stream:?}");
    found.remove(0)
}

fn raw(stream: &str) -> Vec<String> {
    let (found, _) = events(stream.as_bytes());
    found.iter().map(|event| String::from_utf8(event.raw.to_vec()).expect("text")).collect()
}

/// The bytes in pieces, with the given lengths in a cycle.
pub(super) fn cut<'b>(bytes: &'b [u8], lengths: &[usize]) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for length in lengths.iter().cycle().take(bytes.len()) {
        let (piece, further) = rest.split_at((*length).min(rest.len()));
        pieces.push(piece);
        rest = further;
    }
    pieces.push(rest);
    pieces
}

#[test]
fn events_end_at_blank_lines_of_any_kind() {
    assert_eq!(raw("data: a\n\ndata: b\n\n"), ["data: a\n\n", "data: b\n\n"]);
    assert_eq!(raw("data: a\r\n\r\ndata: b\r\n\r\n"), ["data: a\r\n\r\n", "data: b\r\n\r\n"]);
    assert_eq!(raw("data: a\r\rdata: b\r\r"), ["data: a\r\r", "data: b\r\r"]);
    assert_eq!(raw("data: a\n\n\n:\n\n"), ["data: a\n\n", "\n", ":\n\n"]);
    assert_eq!(raw("data: a\r\n\ndata: b\r\n\rdata: c\n\r"), ["data: a\r\n\n", "data: b\r\n\r", "data: c\n\r"]);
}

#[test]
fn an_unfinished_event_is_the_rest() {
    let (found, rest) = events(b"data: a\n\ndata: b\n");
    assert_eq!((found.len(), &rest[..]), (1, &b"data: b\n"[..]));
    let mut splitter = Splitter::new(100);
    splitter.push(b"id: 1");
    assert_eq!((splitter.next_event(), splitter.rest()), (None, &b"id: 1"[..]));
    assert_eq!(splitter.finish(), None);
    assert_eq!(splitter.take_rest(), "id: 1");
    splitter.push(b"\ndata: x\n\n");
    assert_eq!(splitter.next_event().and_then(Result::ok).map(|event| event.raw), Some("\n".into()), "a new stream");
}

#[test]
fn crlf_that_is_cut_in_two_is_one_ending() {
    let mut splitter = Splitter::new(100);
    splitter.push(b"data: a\r\n\r");
    assert_eq!(splitter.next_event(), None, "in a stream of CRLF the LF will come");
    splitter.push(b"\ndata: b\r");
    let first = splitter.next_event().and_then(Result::ok).expect("an event");
    assert_eq!(first.raw, "data: a\r\n\r\n");
    splitter.push(b"\n\r\n");
    let second = splitter.next_event().and_then(Result::ok).expect("an event");
    assert_eq!(second.raw, "data: b\r\n\r\n");
}

#[test]
fn an_event_never_waits_for_a_byte_that_is_not_sent() {
    let mut splitter = Splitter::new(100);
    splitter.push(b"data: a\r\r");
    let event = splitter.next_event().and_then(Result::ok).expect("a stream of CR has no LF to wait for");
    assert_eq!(event.raw, "data: a\r\r");
    // At the end of the stream, even a CRLF stream waits no longer for the LF.
    splitter.push(b"data: b\r\n\r");
    assert_eq!(splitter.next_event(), None);
    let event = splitter.finish().and_then(Result::ok).expect("an event");
    assert_eq!((event.raw, splitter.rest()), ("data: b\r\n\r".into(), &b""[..]));
}

#[test]
fn a_late_lf_ends_nothing() {
    // CR ended the event, and the LF that belongs to it came later.
    assert_eq!(raw("data: a\n\r\ndata: b\n\n"), ["data: a\n\r", "\ndata: b\n\n"]);
    let (found, _) = events(b"data: a\n\r\ndata: b\n\n");
    assert_eq!(found[1].data().as_deref(), Some(&b"b"[..]));
}

#[test]
fn fields_are_read_as_the_standard_says() {
    let event =
        one("event: add\nid: 7\nid: 8\nretry: 1500\ndata: one\ndata:two\ndata:  three\ndata\nother: x\n: note\n\n");
    assert_eq!((event.name().as_deref(), event.id().as_deref(), event.retry()), (Some("add"), Some("8"), Some(1500)));
    assert_eq!(event.data().as_deref(), Some(&b"one\ntwo\n three\n"[..]));
    assert!(!event.is_comment_only());

    let odd = one("id: a\0\nretry: 5x\nretry: -1\nretry:\nevent: x\nevent:\ndataX: no\n data: no\n\n");
    assert_eq!((odd.id(), odd.retry(), odd.name(), odd.data()), (None, None, None, None));
    assert!(!odd.is_comment_only());
    assert_eq!(one("retry: 7\nretry: 99999999999999999999999\n\n").retry(), Some(7));
    assert_eq!(one("id: 1\nid: 2\0\n\n").id().as_deref(), Some("1"));
}

#[test]
fn a_priming_event_has_data_that_is_empty() {
    let event = one("id: 1\ndata: \n\n");
    assert_eq!((event.id().as_deref(), event.data()), (Some("1"), Some(Vec::new())));
    assert_eq!(one("id:\n\n").id().as_deref(), Some(""));
}

#[test]
fn comments_are_told_from_fields() {
    assert!(one(std::str::from_utf8(KEEP_ALIVE).expect("text")).is_comment_only());
    assert!(one("\n").is_comment_only());
    assert!(one(":a\r\n: data: b\r\n\r\n").is_comment_only());
    assert!(!one(":a\nunknown\n\n").is_comment_only());
}

#[test]
fn a_byte_order_mark_counts_at_the_beginning_only() {
    let stream = b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n";
    let (found, _) = events(stream);
    assert_eq!(found[0].data().as_deref(), Some(&b"a"[..]));
    assert_eq!((found[1].data(), found[1].is_comment_only()), (None, false));
    assert_eq!([&found[0].raw[..], &found[1].raw[..]].concat(), stream);
    let (found, _) = events(b"\xef\xbb\xbf\n");
    assert!(found[0].is_comment_only() && found[0].raw.len() == 4);
}

#[test]
fn an_event_over_the_limit_is_left_out() {
    let mut splitter = Splitter::new(12);
    splitter.push(b"data: 1234\n\ndata: 12345\n\ndata: 1\n\ndata: 12345678");
    let found: Vec<_> =
        std::iter::from_fn(|| splitter.next_event()).map(|event| event.map(|event| event.raw)).collect();
    let large = || Err(TooLarge { limit: 12 });
    assert_eq!(found, [Ok("data: 1234\n\n".into()), large(), Ok("data: 1\n\n".into()), large()]);
    splitter.push(b"90\n");
    assert_eq!((splitter.next_event(), splitter.rest()), (None, &b""[..]), "it is told once");
    splitter.push(b"\ndata: 2\n\n");
    assert_eq!(splitter.next_event().and_then(Result::ok).and_then(|event| event.data()), Some(b"2".to_vec()));
}

#[test]
fn events_are_written_as_the_sdks_write_them() {
    let check = |id: Option<&str>, name: Option<&str>, data: &[u8], expected: &str| {
        let mut out = b"before ".to_vec();
        encode(&mut out, id, name, data);
        assert_eq!(String::from_utf8(out).expect("text"), format!("before {expected}"));
    };
    check(Some("1"), Some("message"), b"{}", "id: 1\nevent: message\ndata: {}\n\n");
    check(None, None, b"", "data: \n\n");
    check(None, None, b"a\nb\r\nc\rd\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
    check(Some("a\nb\r\0"), Some("x\ny"), b" ", "id: ab\nevent: xy\ndata:  \n\n");
}

/// Text made of the bytes that matter in event streams.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\n\r\n",
        b"\r\r",
        b"data",
        b"id",
        b"event",
        b"retry",
        b":",
        b": ",
        b" ",
        b"1",
        b"x",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xff",
        b": keep-alive\n\n",
        b"data: {}\r\n\r\n",
    ];
    proptest::collection::vec(select(words), 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_the_stream_is_cut(
        stream in stream(),
        cuts in proptest::collection::vec(0..9_usize, 1..20),
        limit in prop_oneof![Just(usize::MAX), 0..40_usize],
    ) {
        let all = |pieces: &[&[u8]]| {
            let mut splitter = Splitter::new(limit);
            let mut found = Vec::new();
            for piece in pieces {
                splitter.push(piece);
                found.extend(std::iter::from_fn(|| splitter.next_event()));
            }
            found.extend(splitter.finish());
            (found, splitter.take_rest())
        };
        prop_assert_eq!(all(&cut(&stream, &cuts)), all(&[&stream]));
    }

    #[test]
    fn no_byte_of_a_stream_is_lost(stream in stream()) {
        let (found, rest) = events(&stream);
        let together: Vec<u8> = found.iter().flat_map(|event| event.raw.to_vec()).chain(rest).collect();
        prop_assert_eq!(&together, &stream);
        fuzzing::sse_splitter(&stream);
    }

    #[test]
    fn an_encoded_event_can_be_read(id in "[!-~]{1,9}", name in "[a-z]{1,9}", json in super::json::value()) {
        let mut out = Vec::new();
        encode(&mut out, Some(&id), Some(&name), json.replace(['\n', '\r'], " ").as_bytes());
        let event = one(std::str::from_utf8(&out).expect("text"));
        prop_assert_eq!((event.id(), event.name()), (Some(id), Some(name)));
        prop_assert_eq!(event.data(), Some(json.replace(['\n', '\r'], " ").into_bytes()));
    }
}
