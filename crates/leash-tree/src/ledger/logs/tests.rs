//! Logs that are rotated, torn, removed, or not logs at all.

use std::os::unix::fs::PermissionsExt as _;

use testkit::Scratch;

use super::*;

fn head(run: &str) -> LogHead {
    LogHead { version: LOG_VERSION, run: run.to_owned(), session: format!("of-{run}"), name: "files".to_owned() }
}

fn writer(dir: &Scratch, run: &str) -> LogWriter {
    LogWriter::new(&dir.join("receipts.jsonl"), head(run))
}

fn write(writer: &mut LogWriter, at_ms: u64, line: &str) {
    writer.append(at_ms, &[line.as_bytes().to_vec()]).unwrap();
}

fn shown(entries: &[LogEntry]) -> Vec<String> {
    entries.iter().map(|one| format!("{} {} {}", one.at_ms, one.run, String::from_utf8_lossy(&one.line))).collect()
}

fn reader(dir: &Scratch) -> LogReader {
    LogReader::new([dir.join("logs"), dir.join("no-such-directory")])
}

fn sum(dir: &Path) -> u64 {
    files(dir).unwrap().into_values().flatten().map(|file| file.size).sum()
}

fn set_age(path: &Path, ms: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn lines_of_several_runs_are_read_in_the_order_of_their_times() {
    let dir = Scratch::new();
    let (mut a, mut b) = (writer(&dir, "a"), writer(&dir, "b"));
    write(&mut a, 1, "one");
    write(&mut b, 2, "two\twith a tab");
    a.append(3, &[b"three".to_vec(), b"".to_vec(), vec![0xff, 0x1b]]).unwrap();
    let entries = reader(&dir).news(&|_| true).unwrap();
    assert_eq!(shown(&entries), ["1 a one", "2 b two\twith a tab", "3 a three", "3 a ", "3 a \u{fffd}\u{1b}"]);
    assert_eq!(entries[4].line, [0xff, 0x1b], "the bytes are exact");
    assert_eq!((&*entries[0].session, &*entries[0].name), ("of-a", "files"));
    assert_eq!(shown(&reader(&dir).news(&|head| head.session == "of-b").unwrap()), ["2 b two\twith a tab"]);
    let receipts = dir.join("receipts.jsonl");
    assert_eq!(shown(&tail(&receipts, "of-a", 2).unwrap()), ["3 a ", "3 a \u{fffd}\u{1b}"]);
    assert_eq!(shown(&tail(&receipts, "b", 9).unwrap()), ["2 b two\twith a tab"]);
    assert!(tail(&receipts, "none", 9).unwrap().is_empty());
}

#[test]
fn only_the_owner_can_read_a_log() {
    let dir = Scratch::new();
    write(&mut writer(&dir, "a"), 1, "secret");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(dir.join("logs")), mode(dir.join("logs/a.log"))), (0o700, 0o600));
}

#[test]
fn a_reader_gets_each_line_once_also_when_the_log_is_rotated() {
    let dir = Scratch::new();
    let (mut writer, mut reader) = (writer(&dir, "a"), reader(&dir));
    let mut seen = 0;
    let line = "x".repeat(1000);
    for number in 0..2500 {
        write(&mut writer, number, &line);
        if number % 100 == 99 {
            let news = reader.news(&|_| true).unwrap();
            assert_eq!((news.len(), news[0].at_ms), (100, seen), "the next lines and no other");
            seen += 100;
        }
    }
    let log: Vec<u64> = files(&dir.join("logs")).unwrap().remove("a").unwrap().iter().map(|file| file.size).collect();
    assert_eq!(log.len(), 2);
    assert!(log.iter().all(|size| *size <= limits::LOG / 2), "{log:?}");
    assert!(reader.news(&|_| true).unwrap().is_empty());
}

#[test]
fn a_line_that_is_being_written_is_read_when_it_is_whole() {
    let dir = Scratch::new();
    let (mut writer, mut reader) = (writer(&dir, "a"), reader(&dir));
    write(&mut writer, 1, "one");
    let mut file = File::options().append(true).open(dir.join("logs/a.log")).unwrap();
    file.write_all(b"2 tw").unwrap();
    assert_eq!(shown(&reader.news(&|_| true).unwrap()), ["1 a one"]);
    file.write_all(b"o\n").unwrap();
    assert_eq!(shown(&reader.news(&|_| true).unwrap()), ["2 a two"]);
}

#[test]
fn a_new_line_begins_after_a_torn_one() {
    let dir = Scratch::new();
    let mut writer = writer(&dir, "a");
    write(&mut writer, 1, "one");
    let open = writer.file.as_mut().unwrap();
    open.file.write_all(b"2 tor").unwrap();
    open.is_torn = true;
    write(&mut writer, 3, "three");
    assert_eq!(shown(&reader(&dir).news(&|_| true).unwrap()), ["1 a one", "2 a tor", "3 a three"]);
}

#[test]
fn a_removed_log_is_made_again() {
    let dir = Scratch::new();
    let mut writer = writer(&dir, "a");
    write(&mut writer, 1, "one");
    fs::remove_dir_all(dir.join("logs")).unwrap();
    write(&mut writer, 2, "two");
    assert_eq!(shown(&reader(&dir).news(&|_| true).unwrap()), ["2 a two"]);
}

#[test]
fn the_oldest_logs_make_room_and_those_in_use_stay() {
    let dir = Scratch::new();
    let logs = dir.join("logs");
    let mut writers: Vec<LogWriter> = ["a", "b", "c", "d"].map(|run| writer(&dir, run)).into();
    for (writer, age) in writers.iter_mut().zip(1..) {
        write(writer, age, &"x".repeat(1000));
        set_age(&writer.path(), age * 1000);
    }
    make_room(&logs, sum(&logs));
    assert_eq!(files(&logs).unwrap().len(), 4, "the sum is not too large");
    // The oldest one is in use; the next two are not.
    let (a, d) = (writers.remove(0), writers.pop());
    drop(writers);
    make_room(&logs, 3000);
    assert_eq!(files(&logs).unwrap().into_keys().collect::<Vec<_>>(), ["a", "d"]);
    drop((a, d));
    make_room(&logs, 1500);
    assert_eq!(files(&logs).unwrap().into_keys().collect::<Vec<_>>(), ["d"]);
}

#[test]
fn logs_older_than_the_oldest_receipt_are_removed() {
    let dir = Scratch::new();
    let logs = dir.join("logs");
    for (run, age) in [("old", 1000), ("new", 3000)] {
        write(&mut writer(&dir, run), 1, "x");
        set_age(&logs.join(format!("{run}.log")), age);
    }
    let mut quiet = writer(&dir, "quiet");
    write(&mut quiet, 1, "x");
    set_age(&quiet.path(), 1000);
    // The older half of a log whose newer half is not that old.
    fs::copy(logs.join("new.log"), logs.join("new.log.1")).unwrap();
    set_age(&logs.join("new.log.1"), 500);
    fs::write(logs.join("another-file"), "x").unwrap();
    forget_before(&logs, 2000);
    assert_eq!(files(&logs).unwrap().into_keys().collect::<Vec<_>>(), ["new", "quiet"]);
    assert!(logs.join("new.log.1").exists() && logs.join("another-file").exists());
}

#[test]
fn what_is_not_a_log_has_no_lines() {
    let dir = Scratch::new();
    let logs = dir.join("logs");
    write(&mut writer(&dir, "a"), 1, "one");
    fs::write(logs.join("empty.log"), "").unwrap();
    fs::write(logs.join("text.log"), "1 no head\n").unwrap();
    fs::write(logs.join("later.log"), "{\"version\":2,\"run\":\"x\",\"session\":\"x\",\"name\":\"x\"}\n1 x\n").unwrap();
    std::os::unix::fs::symlink(logs.join("a.log"), logs.join("link.log")).unwrap();
    fs::create_dir(logs.join("directory.log")).unwrap();
    let mut reader = reader(&dir);
    assert_eq!(shown(&reader.news(&|_| true).unwrap()), ["1 a one"]);
    assert_eq!(reader.heads().unwrap(), [head("a")]);
    for (line, parsed) in [("12 a b", Some((12, "a b"))), ("12 ", Some((12, ""))), ("12", None), ("{} x", None)] {
        let expected = parsed.map(|(at, text): (u64, &str)| (at, text.as_bytes()));
        assert_eq!(reader::parse(line.as_bytes()), expected, "{line}");
    }
}
