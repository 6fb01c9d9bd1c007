//! Reads an event stream of the upstream, event by event.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use leash_model::limits;
use leash_protocol::sse::{Event, Splitter};

/// The result of one read.
#[derive(Debug)]
pub(crate) enum StreamItem {
    /// An event.
    Event(Event),
    /// An event that was too large. leash drops it.
    TooLarge,
    /// The stream has ended or broken. leash treats both the same way, because a proxy may end a stream that the server
    /// did not end.
    Ended,
}

/// A stream that leash reads.
#[derive(Debug)]
pub(crate) struct EventStream {
    body: Incoming,
    splitter: Splitter,
    over: bool,
}

/// The point from which a stream can be resumed, and the pause before that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// The id of the last event that had one.
    pub(crate) last_id: Option<String>,
    /// The pause that the server asked for, in milliseconds.
    pub(crate) retry: Option<u64>,
}

impl ResumePoint {
    /// Takes the id and the pause from an event.
    pub(crate) fn pass(&mut self, event: &Event) {
        if let Some(id) = event.id() {
            // By the rules of event streams, an empty id clears the last one.
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.retry = event.retry().or(self.retry);
    }
}

/// Returns the message in an event. `None` if the event has only an id or is of another kind.
pub(crate) fn message(event: &Event) -> Option<Vec<u8>> {
    let is_message = event.name().is_none_or(|name| name == "message");
    event.data().filter(|data| is_message && !data.trim_ascii().is_empty())
}

impl EventStream {
    pub(crate) fn new(body: Incoming) -> EventStream {
        // An event is a message with its field names and ids.
        EventStream { body, splitter: Splitter::new(limits::LINE + limits::EVENT_OVERHEAD), over: false }
    }

    /// Returns the next event. Cancel safe: a dropped call loses no event.
    pub(crate) async fn next(&mut self) -> StreamItem {
        loop {
            let event = if self.over { self.splitter.finish() } else { self.splitter.next_event() };
            match event {
                Some(Ok(event)) => return StreamItem::Event(event),
                Some(Err(_)) => return StreamItem::TooLarge,
                None if self.over => return StreamItem::Ended,
                None => {}
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.splitter.push(bytes);
                    }
                }
                Some(Err(_)) | None => self.over = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Event> {
        let mut splitter = Splitter::new(1024);
        splitter.push(text.as_bytes());
        std::iter::from_fn(|| splitter.next_event()).map(|event| event.expect("small")).collect()
    }

    #[test]
    fn message_is_read_from_message_events_only() {
        let text = "data: {}\n\nevent: message\ndata: {\"a\":\ndata: 1}\n\nid: 7\ndata:\n\nevent: endpoint\ndata: /x\n\n: hi\n\nretry: 5\n\n";
        let messages: Vec<Option<Vec<u8>>> = events(text).iter().map(message).collect();
        let expected = [Some(&b"{}"[..]), Some(b"{\"a\":\n1}"), None, None, None, None];
        assert_eq!(messages, expected.map(|message| message.map(<[u8]>::to_vec)));
    }

    #[test]
    fn resume_point_keeps_the_last_id_and_the_pause() {
        let mut point = ResumePoint::default();
        for event in events("id: 1\nretry: 10\ndata:\n\ndata: {}\n\n") {
            point.pass(&event);
        }
        assert_eq!(point, ResumePoint { last_id: Some("1".to_owned()), retry: Some(10) });
        for event in events("id\ndata: {}\n\n") {
            point.pass(&event);
        }
        assert_eq!(point, ResumePoint { last_id: None, retry: Some(10) });
    }
}
