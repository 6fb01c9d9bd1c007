//! Books of living processes, of dead ones, and of processes that died in the middle of a line.

use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;

use super::*;
use leash_model::limits;
use testkit::Scratch;

struct Ground(Scratch);

impl Ground {
    fn new() -> Ground {
        Ground(Scratch::new())
    }

    fn places(&self) -> Places {
        Places::below(&*self.0)
    }

    fn runtime(&self) -> PathBuf {
        self.places().runtime_dir
    }

    fn files(&self) -> usize {
        fs::read_dir(self.runtime().join(DIR)).map_or(0, Iterator::count)
    }
}

fn entry(session: &str) -> Entry {
    Entry {
        session: session.to_owned(),
        server: "files".to_owned(),
        url: "http://127.0.0.1:1/mcp".to_owned(),
        id: format!("upstream-{session}"),
        version: None,
        shown: None,
        started_ms: 1,
    }
}

fn sessions(open: &[Entry]) -> Vec<&str> {
    open.iter().map(|entry| entry.session.as_str()).collect()
}

#[test]
fn book_is_abandoned_only_after_its_process_died() {
    let ground = Ground::new();
    let book = Book::of_gateway(&ground.places(), None).expect("a book");
    for session in ["a", "b", "c"] {
        book.open(&entry(session)).expect("written");
    }
    book.over("b").expect("written");
    let newer = Entry { version: Some("2025-06-18".to_owned()), ..entry("a") };
    book.change(&newer).expect("written");
    assert!(Book::abandoned(&ground.runtime()).expect("read").is_empty());
    let [listed] = &Book::list(&ground.runtime()).expect("read")[..] else { panic!("one book") };
    assert!(listed.attended && matches!(listed.cover.command, BookCommand::Serve { .. }));
    // Its process dies: the kernel closes its descriptors.
    drop(book);
    assert!(!Book::list(&ground.runtime()).expect("read")[0].attended);
    let mut found = Book::abandoned(&ground.runtime()).expect("read");
    assert_eq!(found[0].open, [newer, entry("c")]);
    assert_eq!(found[0].cover.as_ref().map(|cover| &cover.receipts), Some(&ground.places().receipts));
    // It is ours while we hold it. A killed sweep continues where it stopped.
    assert!(Book::abandoned(&ground.runtime()).expect("read").is_empty());
    found[0].over("a").expect("written");
    drop(found);
    let found = Book::abandoned(&ground.runtime()).expect("read");
    assert_eq!(sessions(&found[0].open), ["c"]);
    found.into_iter().for_each(AbandonedBook::remove);
    assert_eq!(ground.files(), 0);
}

#[test]
fn closed_book_is_removed_unless_a_session_is_open() {
    let ground = Ground::new();
    let book = Book::of_gateway(&ground.places(), None).expect("a book");
    book.open(&entry("a")).expect("written");
    book.close();
    assert_eq!(ground.files(), 2);
    book.over("a").expect("written");
    book.close();
    assert_eq!(ground.files(), 0);
}

#[test]
fn a_torn_line_costs_one_session_at_most() {
    let ground = Ground::new();
    let book = Book::of_gateway(&ground.places(), None).expect("a book");
    book.open(&entry("a")).expect("written");
    // As after a write of which a full disk took only half.
    let journal = path(&book.dir, book.run(), "jsonl");
    File::options()
        .append(true)
        .open(&journal)
        .and_then(|mut file| file.write_all(b"{\"open\":{\"sess"))
        .expect("written");
    book.journal.borrow_mut().torn = true;
    book.open(&entry("b")).expect("written");
    assert_eq!(sessions(&read(&journal).expect("read").open), ["a", "b"]);
}

#[test]
fn a_full_disk_is_reported_once_until_there_is_room_again() {
    let ground = Ground::new();
    let book = Book::of_gateway(&ground.places(), None).expect("a book");
    let full = File::options().write(true).open("/dev/full").expect("opened");
    let file = std::mem::replace(&mut book.journal.borrow_mut().file, full);
    assert_eq!(book.open(&entry("a")).map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
    assert!(book.open(&entry("b")).is_ok() && book.over("b").is_ok(), "the first failure was reported");
    book.journal.borrow_mut().file = file;
    book.open(&entry("c")).expect("written");
    assert_eq!(sessions(&read(&path(&book.dir, book.run(), "jsonl")).expect("read").open), ["c"]);
}

#[test]
fn long_book_is_rewritten_with_open_sessions_only() {
    let ground = Ground::new();
    let book = Book::of_gateway(&ground.places(), None).expect("a book");
    book.open(&entry("first")).expect("written");
    for number in 0..10_000 {
        book.open(&entry(&number.to_string())).expect("written");
        book.over(&number.to_string()).expect("written");
    }
    book.open(&entry("last")).expect("written");
    let journal = path(&book.dir, book.run(), "jsonl");
    assert!(fs::metadata(&journal).expect("there").len() < 2 * limits::BOOK_REWRITE);
    let pages = read(&journal).expect("read");
    assert_eq!(sessions(&pages.open), ["first", "last"]);
    assert_eq!(pages.cover.as_ref(), Some(&book.cover));
    assert_eq!(fs::metadata(&journal).expect("there").permissions().mode() & 0o777, 0o600);
    // The book writes to the file that is at the path.
    book.over("first").expect("written");
    assert_eq!(sessions(&read(&journal).expect("read").open), ["last"]);
}

#[test]
fn book_of_a_later_version_is_left_alone() {
    let ground = Ground::new();
    let mut book = Book::of_gateway(&ground.places(), None).expect("a book");
    book.cover.version = BOOK_VERSION + 1;
    *book.journal.borrow_mut() = book.rewrite(&JournalContent::default()).expect("rewritten");
    drop(book);
    assert!(Book::abandoned(&ground.runtime()).expect("read").is_empty());
    assert_eq!(ground.files(), 2);
}

#[test]
fn directory_writable_by_other_users_is_refused() {
    let ground = Ground::new();
    let dir = ground.runtime().join(DIR);
    fs::create_dir_all(&dir).expect("made");
    fs::set_permissions(ground.runtime(), fs::Permissions::from_mode(0o700)).expect("set");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("set");
    assert!(matches!(Book::of_gateway(&ground.places(), None), Err(StoreError::Open { .. })));
    assert!(Book::abandoned(&ground.runtime()).is_err());
    // A missing directory is not an error: no session was ever open.
    assert!(Book::abandoned(&ground.0.join("elsewhere")).expect("read").is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A session that was opened and is not over is in the book, after any sequence of steps and rewrites.
    #[test]
    fn book_lists_exactly_the_open_sessions(steps in prop::collection::vec((0..6u8, 0..3u8), 0..60)) {
        let ground = Ground::new();
        let book = Book::of_gateway(&ground.places(), None).expect("a book");
        book.journal.borrow_mut().rewrite_at = 0;
        let mut model: Vec<String> = Vec::new();
        for (session, step) in steps {
            let session = session.to_string();
            let known = model.contains(&session);
            match step {
                0 if !known => {
                    book.open(&entry(&session)).expect("written");
                    model.push(session);
                }
                1 if known => {
                    book.over(&session).expect("written");
                    model.retain(|known| *known != session);
                }
                _ if known => book.change(&entry(&session)).expect("written"),
                _ => {}
            }
            book.journal.borrow_mut().rewrite_at = 0;
        }
        drop(book);
        let found = Book::abandoned(&ground.runtime()).expect("read");
        prop_assert_eq!(sessions(&found[0].open), model);
    }
}

#[test]
fn member_belongs_to_its_session_before_anything_is_open() {
    let ground = Ground::new();
    let member = Membership {
        session: "job-7".to_owned(),
        name: "web".to_owned(),
        labels: BTreeMap::from([("team".to_owned(), "red".to_owned())]),
        owners: vec![Owner::Stdin],
    };
    let book = Book::of_connection(&ground.places(), "run-1", member.clone()).expect("a book");
    let [listed] = &Book::list(&ground.runtime()).expect("read")[..] else { panic!("one book") };
    assert_eq!(listed.cover.run, "run-1");
    assert_eq!(listed.cover.command, BookCommand::Connect { member });
    assert!(Book::is_attended(&ground.runtime(), book.run()));
    // A gateway belongs to no session itself.
    let gateway = Book::of_gateway(&ground.places(), None).expect("a book");
    assert_eq!(gateway.cover().command.member(), None);
}

/// In one step: at every moment the book has one owner and names all open sessions.
#[test]
fn book_changes_its_owner_in_one_step() {
    let ground = Ground::new();
    let address = "127.0.0.1:5327".parse().expect("an address");
    let old = Book::of_gateway(&ground.places(), Some(address)).expect("a book");
    for session in ["a", "b"] {
        old.open(&entry(session)).expect("written");
    }
    old.over("a").expect("written");
    let cover = old.cover().clone();
    let lock = old.lock().try_clone_to_owned().expect("a descriptor");
    drop(old);
    let look = |expected: &Cover| {
        let books = Book::list(&ground.places().runtime_dir).expect("read");
        assert!(matches!(&books[..], [book] if book.attended && book.cover == *expected), "{books:?}");
        sessions(&books[0].open).join(" ")
    };
    // Only the receipts differ here. Another process would differ in more.
    let places = Places { receipts: ground.places().receipts.with_extension("other"), ..ground.places() };
    let (book, found) = Book::adopt(&places, &cover, lock, |_| vec![entry("c")]).expect("adopted");
    assert_eq!((sessions(&found), look(&cover)), (vec!["b", "c"], "b".to_owned()));
    book.own().expect("renamed");
    assert_eq!(
        (&book.cover().command, look(book.cover())),
        (&BookCommand::Serve { listen: Some(address) }, "b c".to_owned())
    );
    for session in ["b", "c"] {
        book.over(session).expect("written");
    }
    book.close();
    assert_eq!(Book::list(&ground.places().runtime_dir).expect("read").len(), 0);
}

#[test]
fn clients_are_listed_until_they_are_gone() {
    let ground = Ground::new();
    let book = Book::of_gateway(&ground.places(), None).expect("a book");
    let clients = || Book::list(&ground.runtime()).expect("read").remove(0).clients;
    let claude = GatewayClient { name: Some("claude".to_owned()), ..GatewayClient::default() };
    book.client_came("a", &GatewayClient::default()).expect("written");
    book.client_changed("a", &GatewayClient { pid: Some(7), ..claude.clone() }).expect("written");
    for number in 0..20_000 {
        let run = number.to_string();
        book.client_came(&run, &claude).expect("written");
        book.client_gone(&run).expect("written");
    }
    assert_eq!(clients(), BTreeMap::from([("a".to_owned(), GatewayClient { pid: Some(7), ..claude })]));
    let journal = path(&book.dir, book.run(), "jsonl");
    assert!(fs::metadata(&journal).expect("there").len() < 2 * limits::BOOK_REWRITE, "it was rewritten");
    book.client_gone("a").expect("written");
    assert!(clients().is_empty());
    // Clients hold nothing upstream.
    book.close();
    assert_eq!(ground.files(), 0);
}
