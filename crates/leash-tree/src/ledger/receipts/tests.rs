//! The file of receipts when it is torn, full or missing.

use leash_model::receipt::{EndedBy, Reason, VERSION};
use testkit::Scratch;

use super::*;

fn receipt(run: &str, session: &str) -> Receipt {
    Receipt {
        version: VERSION,
        session: session.to_owned(),
        run: run.to_owned(),
        name: "files".to_owned(),
        labels: Default::default(),
        reason: Reason::LEASH_END,
        client: None,
        containment: None,
        refused: Vec::new(),
        holdings: Vec::new(),
        dropped_holdings: 0,
        ended_by: EndedBy::Keeper,
        started_ms: 1,
        ended_ms: 2,
        took_ms: 1,
    }
}

/// The runs in the file, and the number of lines that are not receipts.
fn runs(path: &Path) -> (Vec<String>, usize) {
    let (receipts, broken) = read(path).unwrap();
    (receipts.into_iter().map(|receipt| receipt.run).collect(), broken)
}

#[test]
fn a_full_file_makes_way_and_is_still_read() {
    let dir = Scratch::new();
    let path = dir.join("below/receipts.jsonl");
    append(&path, &receipt("a", "one")).unwrap();
    File::options().append(true).open(&path).unwrap().set_len(limits::RECEIPTS_ROTATE).unwrap();
    append(&path, &receipt("b", "two")).unwrap();
    // The rest of the old file is not a receipt and is skipped.
    assert_eq!(runs(&path), (vec!["a".to_owned(), "b".to_owned()], 1));
    assert!(fs::metadata(&path).unwrap().len() < 1000, "the new file begins empty");
}

#[test]
fn torn_line_does_not_hide_other_receipts() {
    let dir = Scratch::new();
    let path = dir.join("receipts.jsonl");
    append(&path, &receipt("a", "one")).unwrap();
    File::options().append(true).open(&path).unwrap().write_all(b"{\"version\":1,\"ses\n").unwrap();
    append(&path, &receipt("b", "two")).unwrap();
    assert_eq!(runs(&path), (vec!["a".to_owned(), "b".to_owned()], 1));
}

#[test]
fn a_run_that_has_a_receipt_gets_no_second_one() {
    let dir = Scratch::new();
    let path = dir.join("receipts.jsonl");
    for run in ["a", "b", "a"] {
        append_once(&path, &receipt(run, "one")).unwrap();
    }
    assert_eq!(runs(&path), (vec!["a".to_owned(), "b".to_owned()], 0));
}

#[test]
fn receipt_of_the_whole_session_is_found() {
    let dir = Scratch::new();
    let path = dir.join("receipts.jsonl");
    assert_eq!(find(&path, "job").unwrap(), None, "without a file there is no receipt");
    let all = receipt(&whole("job"), "job");
    for receipt in [&receipt("a", "job"), &receipt(&whole("job"), "another"), &all, &receipt("b", "job")] {
        append(&path, receipt).unwrap();
    }
    assert_eq!(find(&path, "job").unwrap(), Some(all));
    assert_eq!(find(&path, "nobody").unwrap(), None);
}

#[test]
fn unreadable_receipts_file_is_an_error() {
    let dir = Scratch::new();
    assert!(read(&dir).is_err() && find(&dir, "job").is_err() && append(&dir, &receipt("a", "one")).is_err());
    // A path below a file is an error too: no receipt may be lost there.
    let file = dir.join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("receipts.jsonl");
    assert!(append(&below, &receipt("a", "one")).is_err() && read(&below).is_err() && find(&below, "job").is_err());
}

#[test]
fn reader_gets_each_receipt_once_also_around_a_rotation() {
    let dir = Scratch::new();
    let path = dir.join("receipts.jsonl");
    let mut reader = ReceiptsReader::new(path.clone());
    let mut next = || reader.read_new().into_iter().map(|receipt| receipt.run).collect::<Vec<_>>().join(" ");
    assert_eq!(next(), "", "there is no file yet");
    append(&path, &receipt("a", "one")).unwrap();
    append(&path, &receipt("b", "one")).unwrap();
    assert_eq!((next(), next()), ("a b".to_owned(), String::new()));
    append(&path, &receipt("c", "one")).unwrap();
    File::options().append(true).open(&path).unwrap().write_all(b"{\"version\":1").unwrap();
    assert_eq!((next(), next()), ("c".to_owned(), String::new()), "the last line is not whole");
    File::options().append(true).open(&path).unwrap().write_all(b"\n").unwrap();
    append(&path, &receipt("d", "one")).unwrap();
    File::options().append(true).open(&path).unwrap().set_len(limits::RECEIPTS_ROTATE).unwrap();
    append(&path, &receipt("e", "one")).unwrap();
    assert_eq!((next(), next()), ("d e".to_owned(), String::new()));
    let mut late = ReceiptsReader::new(path.clone());
    let all: Vec<String> = late.read_new().into_iter().map(|receipt| receipt.run).collect();
    assert_eq!(all, ["a", "b", "c", "d", "e"]);
}
