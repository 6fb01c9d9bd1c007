//! Streams with a source that looks when the test says so.

use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use leash_model::alive::TreeProcess;
use serde_json::Value;

use super::super::source::{PageEnd, PageReceipt, PageTarget};
use super::*;

/// Makes the looks that the test sends. Each run of `follow` tells when it begins and ends.
struct Puppet {
    looks: Mutex<Receiver<FeedLook>>,
    told: Mutex<Sender<&'static str>>,
}

impl PageSource for Puppet {
    fn follow(&self, take: &mut dyn FnMut(FeedLook) -> bool) {
        let told = |what| self.told.lock().expect("no panic").send(what).unwrap_or_default();
        told("begin");
        while let Ok(look) = self.looks.lock().expect("no panic").recv()
            && take(look)
        {}
        told("end");
    }

    fn explain(&self, _: i32) -> Vec<String> {
        Vec::new()
    }

    fn history(&self, _: usize) -> Vec<PageReceipt> {
        Vec::new()
    }

    fn end(&self, _: PageTarget) -> Result<PageEnd, String> {
        Err("a puppet ends nothing".to_owned())
    }
}

struct Stage {
    streams: Rc<LiveStreams>,
    source: Arc<dyn PageSource>,
    looks: Sender<FeedLook>,
    told: Receiver<&'static str>,
    tasks: TaskTracker,
    at_ms: Cell<u64>,
}

impl Stage {
    fn set() -> Stage {
        let ((looks, receiver), (teller, told)) = (channel(), channel());
        let source = Arc::new(Puppet { looks: Mutex::new(receiver), told: Mutex::new(teller) });
        Stage { streams: Rc::default(), source, looks, told, tasks: TaskTracker::new(), at_ms: Cell::new(0) }
    }

    fn listen(&self) -> PageStreamBody {
        let body = self.streams.listen().expect("there is room");
        self.streams.watch(&self.source, &self.tasks);
        body
    }

    /// Lets the source look; the rows have these keys.
    fn look(&self, keys: &[&str]) {
        self.at_ms.set(self.at_ms.get() + 1000);
        let rows = keys.iter().map(|key| row(key)).collect();
        self.looks.send(FeedLook { at_ms: self.at_ms.get(), rows, ..FeedLook::default() }).expect("it looks");
    }
}

fn row(key: &str) -> FeedRow {
    let process =
        TreeProcess { pid: 7, ppid: 1, start: 1, state: 'S', command: "server".to_owned(), memory_bytes: 1024 };
    FeedRow {
        key: key.to_owned(),
        kind: leash_model::feed::RowKind::Tree,
        session: Some(key.to_owned()),
        run: Some(key.to_owned()),
        name: key.to_owned(),
        client: None,
        owner: None,
        containment: None,
        url: None,
        state: "running".to_owned(),
        evidence: Vec::new(),
        root: None,
        processes: vec![process],
        memory_bytes: Some(1024),
        calls: None,
        in_flight: None,
        started_ms: 0,
        remedy: leash_model::feed::RowRemedy::End,
    }
}

/// The next event of a stream: its name and its data. `None` at its end.
async fn next(body: &mut PageStreamBody) -> Option<(String, Value)> {
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        let bytes = frame.expect("no error").into_data().expect("data");
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        if text.starts_with(':') {
            continue;
        }
        let (name, data) = text.trim_end().split_once("\ndata: ").expect("an event");
        let name = name.strip_prefix("event: ").expect("a name").to_owned();
        return Some((name, serde_json::from_str(data).expect("JSON")));
    }
}

fn run(test: impl AsyncFnOnce(Stage)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    runtime.expect("a runtime").block_on(test(Stage::set()));
}

#[test]
fn stream_begins_with_a_snapshot_and_goes_on_with_changes() {
    run(async |stage| {
        let mut one = stage.listen();
        stage.look(&["a"]);
        assert_eq!(next(&mut one).await.expect("an event").0, "samples");
        let (name, data) = next(&mut one).await.expect("an event");
        assert_eq!((&*name, &data["added"][0]["key"]), ("snapshot", &"a".into()));
        stage.look(&["a"]);
        let (name, data) = next(&mut one).await.expect("an event");
        assert_eq!((&*name, &data["at_ms"]), ("look", &2000.into()), "the rows are not old");
        // A second reader gets everything; the first one only the difference.
        let mut two = stage.listen();
        stage.look(&["a", "b"]);
        let (name, data) = next(&mut one).await.expect("an event");
        assert_eq!((&*name, &data["added"][0]["key"], &data["revision"]), ("change", &"b".into(), &2.into()));
        let (_, samples) = next(&mut two).await.expect("an event");
        assert_eq!(samples.as_array().map(Vec::len), Some(3));
        let (name, data) = next(&mut two).await.expect("an event");
        assert_eq!((&*name, data["added"].as_array().map(Vec::len)), ("snapshot", Some(2)));
        assert_eq!(stage.told.try_iter().collect::<Vec<_>>(), ["begin"], "all streams share one look");
        stage.streams.close();
        assert!(next(&mut one).await.is_none() && next(&mut two).await.is_none());
        assert!(stage.streams.listen().is_none(), "the gateway stops");
    });
}

#[test]
fn nothing_is_looked_at_without_a_stream() {
    run(async |stage| {
        assert!(stage.told.try_recv().is_err());
        let mut one = stage.listen();
        stage.look(&["a"]);
        next(&mut one).await;
        drop(one);
        stage.look(&["a"]);
        stage.tasks.close();
        stage.tasks.wait().await;
        // Its channel is closed, so the next look is the last.
        stage.look(&["a"]);
        assert_eq!([stage.told.recv(), stage.told.recv()], [Ok("begin"), Ok("end")]);
        assert!(!stage.streams.is_watching.get());
    });
}

#[test]
fn slow_reader_gets_a_new_snapshot() {
    run(async |stage| {
        let (mut slow, mut fast) = (stage.listen(), stage.listen());
        let mut names = Vec::new();
        for number in 0..20 {
            let key = format!("row {number}");
            stage.look(&[&key]);
            names.push(next(&mut fast).await.expect("an event").0);
            if number == 0 {
                names.push(next(&mut fast).await.expect("an event").0);
            }
        }
        assert_eq!((&*names[1], names.iter().filter(|name| *name == "change").count()), ("snapshot", 19));
        assert!(slow.0.queue.borrow().len() <= limits::PAGE_QUEUE + 1, "a slow reader costs little");
        let mut last = None;
        while !slow.0.queue.borrow().is_empty() {
            last = next(&mut slow).await;
        }
        let (_, data) = last.expect("events");
        assert_eq!(data["added"][0]["key"], "row 19", "and it is up to date");
        drop((slow, fast));
        stage.streams.close();
    });
}

#[test]
fn streams_are_bounded() {
    run(async |stage| {
        let all: Vec<PageStreamBody> = (0..limits::PAGE_STREAMS).map(|_| stage.listen()).collect();
        assert!(stage.streams.listen().is_none());
        drop(all);
        assert!(stage.streams.listen().is_some(), "a closed tab makes room");
        stage.streams.close();
    });
}
