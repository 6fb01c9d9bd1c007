//! An event stream of the upstream, event by event.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use leash_model::limits;
use leash_protocol::sse::{Event, Splitter};

/// What comes out of a stream.
#[derive(Debug)]
pub(crate) enum Fed {
    /// An event.
    Event(Event),
    /// One that was too large, and is left out.
    TooLarge,
    /// Nothing more comes: it was ended, or it broke. Which of the two makes no difference, for a proxy in between may end what
    /// the server did not.
    Over,
}

/// A stream that is being read. What it remembers outlives the connection.
#[derive(Debug)]
pub(crate) struct Feed {
    body: Incoming,
    splitter: Splitter,
    over: bool,
}

/// Where a stream can be taken up again, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The id of the last event that had one.
    pub(crate) last_id: Option<String>,
    /// How many milliseconds the server wants us to wait.
    pub(crate) retry: Option<u64>,
}

impl Place {
    /// Takes notice of an event.
    pub(crate) fn pass(&mut self, event: &Event) {
        if let Some(id) = event.id() {
            // An empty id takes the last one back, by the rules of event streams.
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.retry = event.retry().or(self.retry);
    }
}

/// The message that an event carries; `None` for those that only carry an id, or another kind of thing.
pub(crate) fn message(event: &Event) -> Option<Vec<u8>> {
    let is_message = event.name().is_none_or(|name| name == "message");
    event.data().filter(|data| is_message && !data.trim_ascii().is_empty())
}

impl Feed {
    pub(crate) fn new(body: Incoming) -> Feed {
        // An event is a message and the words around it.
        Feed { body, splitter: Splitter::new(limits::LINE + limits::EVENT_WORDS), over: false }
    }

    /// The next event. Nothing is lost when the wait is given up.
    pub(crate) async fn next(&mut self) -> Fed {
        loop {
            let event = if self.over { self.splitter.finish() } else { self.splitter.next_event() };
            match event {
                Some(Ok(event)) => return Fed::Event(event),
                Some(Err(_)) => return Fed::TooLarge,
                None if self.over => return Fed::Over,
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
    fn what_events_carry() {
        let text = "data: {}\n\nevent: message\ndata: {\"a\":\ndata: 1}\n\nid: 7\ndata:\n\nevent: endpoint\ndata: /x\n\n: hi\n\nretry: 5\n\n";
        let messages: Vec<Option<Vec<u8>>> = events(text).iter().map(message).collect();
        let expected = [Some(&b"{}"[..]), Some(b"{\"a\":\n1}"), None, None, None, None];
        assert_eq!(messages, expected.map(|message| message.map(<[u8]>::to_vec)));
    }

    #[test]
    fn where_a_stream_can_be_taken_up() {
        let mut place = Place::default();
        for event in events("id: 1\nretry: 10\ndata:\n\ndata: {}\n\n") {
            place.pass(&event);
        }
        assert_eq!(place, Place { last_id: Some("1".to_owned()), retry: Some(10) });
        for event in events("id\ndata: {}\n\n") {
            place.pass(&event);
        }
        assert_eq!(place, Place { last_id: None, retry: Some(10) });
    }
}
