//! Tests of the sweep: the sessions in the books of dead gateways are ended.

use std::cell::RefCell;

use hyper::{Method, StatusCode};

use super::*;
use crate::scripted::{self, Scripted, reply, silence, status};
use leash_model::receipt::DeleteHow;
use testkit::Scratch;

struct Ground(Scratch);

impl Ground {
    fn new() -> Ground {
        Ground(Scratch::new())
    }

    /// Writes the book of a gateway that was killed with these sessions open.
    fn dead(&self, url: &Uri, ids: impl Iterator<Item = String>) {
        let book = Book::of_gateway(&self.places(), None).expect("a book");
        for id in ids {
            let version = Some("2025-11-25".to_owned());
            let (session, server) = (format!("s-{id}"), "files".to_owned());
            let url = delete::shown(url);
            book.open(&Entry { session, server, url, id, version, shown: None, started_ms: 5 }).expect("written");
        }
    }

    fn places(&self) -> Places {
        Places::below(&*self.0)
    }

    fn books(&self) -> usize {
        std::fs::read_dir(self.places().runtime_dir.join("gateways")).map_or(0, Iterator::count)
    }
}

#[test]
fn all_sessions_of_all_dead_gateways_are_deleted() {
    scripted::run(async {
        let upstream = Scripted::start(|seen| {
            let gone = seen.header("mcp-session-id").ends_with('7');
            reply(status(if gone { 404 } else { 200 }, ""))
        })
        .await;
        let ground = Ground::new();
        ground.dead(&upstream.url(), (0..150).map(|id| id.to_string()));
        ground.dead(&upstream.url(), (150..200).map(|id| id.to_string()));
        let living = Book::of_gateway(&ground.places(), None).expect("a book");
        let told = RefCell::new(0);
        books(&UpstreamClient::new(), &ground.places(), &|_| None, &|_| *told.borrow_mut() += 1).await;
        let mut ids: Vec<String> =
            upstream.of(&Method::DELETE).iter().map(|seen| seen.header("mcp-session-id").to_owned()).collect();
        ids.sort_by_key(|id| id.parse::<u32>().expect("a number"));
        assert_eq!(ids, (0..200).map(|id| id.to_string()).collect::<Vec<_>>());
        assert!(upstream.seen().iter().all(|seen| seen.header("mcp-protocol-version") == "2025-11-25"));
        let (receipts, broken) = receipts::read(&ground.places().receipts).expect("read");
        assert_eq!((receipts.len(), broken, *told.borrow()), (200, 0, 200));
        assert!(receipts.iter().all(|receipt| receipt.all_gone() && receipt.reason == Reason::Swept));
        let forgotten =
            receipts.iter().flat_map(|receipt| receipt.upstreams()).filter(|end| end.how == DeleteHow::Forgotten);
        assert_eq!(forgotten.count(), 20);
        // Only the book of the living gateway is left.
        assert_eq!(ground.books(), 2);
        living.close();
        assert_eq!(ground.books(), 0);
    });
}

#[test]
fn headers_come_from_the_settings_and_a_denied_session_is_left() {
    scripted::run(async {
        let upstream = Scripted::start(|seen| {
            reply(status(if seen.header("authorization") == "Bearer configured" { 204 } else { 401 }, ""))
        })
        .await;
        let ground = Ground::new();
        let with_key: Uri = format!("{}?key=1", upstream.url()).parse().expect("an address");
        ground.dead(&with_key, ["a".to_owned()].into_iter());
        let headers = [("authorization".to_owned(), "Bearer configured".to_owned())];
        let found = crate::address::upstream(&with_key.to_string(), &headers, Default::default()).expect("fine");
        let access = |entry: &Entry| {
            let is_it = delete::shown(&found.url) == entry.url;
            is_it.then(|| ServerAccess { url: found.url.clone(), headers: found.headers.iter().cloned().collect() })
        };
        books(&UpstreamClient::new(), &ground.places(), &access, &|_| {}).await;
        assert_eq!(upstream.seen()[0].uri, "/mcp?key=1");
        ground.dead(&with_key, ["b".to_owned()].into_iter());
        books(&UpstreamClient::new(), &ground.places(), &|_| None, &|_| {}).await;
        let (receipts, _) = receipts::read(&ground.places().receipts).expect("read");
        let ends: Vec<_> = receipts.iter().flat_map(|receipt| receipt.upstreams()).map(|end| end.how).collect();
        assert_eq!(ends, [DeleteHow::Deleted, DeleteHow::Denied]);
        assert!(!receipts[1].all_gone());
        assert_eq!(ground.books(), 0);
    });
}

#[test]
fn sweep_that_is_cut_short_leaves_the_rest_to_the_next_start() {
    scripted::run(async {
        let upstream = Scripted::start(|seen| match seen.header("mcp-session-id") {
            "quick" => reply(status(200, "")),
            _ => silence(),
        })
        .await;
        let ground = Ground::new();
        ground.dead(&upstream.url(), ["quick".to_owned(), "slow".to_owned()].into_iter());
        let client = UpstreamClient::new();
        let places = ground.places();
        let (tell, access) = (|_| client.deadline.set(Moment::on_runtime()), |_: &Entry| None);
        books(&client, &places, &access, &tell).await;
        let left = Book::abandoned(&ground.places().runtime_dir).expect("read");
        assert_eq!(left[0].open.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["slow"]);
        let (receipts, _) = receipts::read(&ground.places().receipts).expect("read");
        assert_eq!(receipts.len(), 1);
    });
}

/// Found by the chaos test: the keeper of a connection had ended its session and written the receipt, but could not
/// remove the book from a read-only disk. A session that was left then and is gone now gets a new receipt.
#[test]
fn session_with_a_receipt_gets_no_second_one() {
    scripted::run(async {
        let upstream =
            Scripted::start(|seen| reply(status(if seen.header("mcp-session-id") == "kept" { 405 } else { 404 }, "")))
                .await;
        let ground = Ground::new();
        let ids = ["gone", "kept", "left", "untold"];
        ground.dead(&upstream.url(), ids.iter().map(|id| (*id).to_owned()));
        let open = Book::abandoned(&ground.places().runtime_dir).expect("read").remove(0).open;
        for entry in &open[..3] {
            let deleted = match entry.id.as_str() {
                "gone" => DeleteResult::forgotten(StatusCode::NOT_FOUND),
                _ => delete::cut_short(1),
            };
            let end = deleted.receipt(&upstream.url(), &entry.id);
            let receipt = entry.receipt(Reason::SupervisorKilled, EndedBy::Keeper, Duration::ZERO, end);
            receipts::append(&ground.places().receipts, &receipt).expect("written");
        }
        let swept = RefCell::new(Vec::new());
        let tell = |notice| match notice {
            Notice::Swept(receipt) => swept.borrow_mut().push(receipt.session),
            other => panic!("{other:?}"),
        };
        books(&UpstreamClient::new(), &ground.places(), &|_| None, &tell).await;
        let (receipts, _) = receipts::read(&ground.places().receipts).expect("read");
        let mut news: Vec<&str> = receipts[3..].iter().map(|receipt| receipt.session.as_str()).collect();
        news.sort_unstable();
        assert_eq!(news, ["s-left", "s-untold"]);
        swept.borrow_mut().sort_unstable();
        assert_eq!(*swept.borrow(), news);
        assert_eq!((upstream.of(&Method::DELETE).len(), ground.books()), (4, 0));
    });
}

/// Found by the chaos test: a connection with few descriptors swept, could not write a receipt, and removed the
/// session.
#[test]
fn session_stays_in_the_book_if_the_receipt_needs_a_descriptor() {
    for (errno, left) in [(rustix::io::Errno::MFILE, 1), (rustix::io::Errno::NFILE, 1), (rustix::io::Errno::NOSPC, 0)] {
        let ground = Ground::new();
        ground.dead(&"http://127.0.0.1:1/mcp".parse().expect("an address"), ["a".to_owned()].into_iter());
        let mut book = Book::abandoned(&ground.places().runtime_dir).expect("read").remove(0);
        let (entry, url) = (book.open[0].clone(), "http://127.0.0.1:1/mcp".parse().expect("an address"));
        let done = FinishedDelete {
            book: 0,
            had_access: false,
            entry,
            url,
            deleted: DeleteResult::forgotten(StatusCode::NOT_FOUND),
            took: Duration::ZERO,
        };
        settle(&mut book, &done, &Err(errno.into()), &|_| {});
        drop(book);
        let again = Book::abandoned(&ground.places().runtime_dir).expect("read").remove(0);
        assert_eq!(again.open.len(), left, "{errno}");
    }
}

#[test]
fn keeper_leaves_unreachable_and_denied_sessions_to_the_next_start() {
    let check = |how, status: Option<StatusCode>, had_access, expected| {
        let deleted = DeleteResult { how, status, tries: 1, why: None, cut_short: false };
        assert_eq!(outcome(SweptBy::Keeper, had_access, &deleted), expected, "{deleted:?}");
        assert_eq!(outcome(SweptBy::NextStart, had_access, &deleted), SweepOutcome::Settled, "{deleted:?}");
    };
    for had_access in [true, false] {
        check(DeleteHow::Unreachable, None, had_access, SweepOutcome::Unreachable);
        check(DeleteHow::Unreachable, Some(StatusCode::BAD_GATEWAY), had_access, SweepOutcome::Settled);
        check(DeleteHow::Deleted, Some(StatusCode::OK), had_access, SweepOutcome::Settled);
        check(DeleteHow::Forgotten, Some(StatusCode::NOT_FOUND), had_access, SweepOutcome::Settled);
        check(DeleteHow::Unsupported, Some(StatusCode::METHOD_NOT_ALLOWED), had_access, SweepOutcome::Settled);
    }
    check(DeleteHow::Denied, Some(StatusCode::FORBIDDEN), true, SweepOutcome::Settled);
    check(DeleteHow::Denied, Some(StatusCode::FORBIDDEN), false, SweepOutcome::NoCredentials);
}

#[test]
fn keeper_deletes_with_the_credentials_it_was_told() {
    scripted::run(async {
        let upstream = Scripted::start(|seen| {
            reply(status(if seen.header("authorization") == "Bearer told" { 204 } else { 401 }, ""))
        })
        .await;
        let ground = Ground::new();
        ground.dead(&upstream.url(), ["told", "untold"].map(str::to_owned).into_iter());
        let access = |entry: &Entry| {
            let value = "Bearer told".parse().expect("a value");
            let headers = HeaderMap::from_iter([(hyper::header::AUTHORIZATION, value)]);
            (entry.id == "told").then(|| ServerAccess { url: upstream.url(), headers })
        };
        let (client, places) = (UpstreamClient::new(), ground.places());
        let (receipts, tell, reason) = (&*places.receipts, &|_| (), Reason::SupervisorKilled);
        let sweep = Sweep { client: &client, receipts, access: &access, tell, sweeper: SweptBy::Keeper, reason };
        sweep.end(Book::abandoned(&places.runtime_dir).expect("read")).await;
        let left = Book::abandoned(&places.runtime_dir).expect("read");
        assert_eq!(left.iter().flat_map(|book| &book.open).map(|entry| &*entry.id).collect::<Vec<_>>(), ["untold"]);
        let (receipts, _) = receipts::read(&places.receipts).expect("read");
        assert!(receipts.len() == 1 && receipts[0].all_gone() && receipts[0].ended_by == EndedBy::Keeper);
    });
}
