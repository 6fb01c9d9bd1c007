//! Outputs without what differs from run to run: placeholders stand for ids, process numbers, times and sizes, and the
//! columns of tables are as wide as these need.

use std::collections::BTreeSet;

/// The width of the terminal.
const WIDTH: usize = 80;

/// The values that differ from run to run.
pub(crate) struct Facts {
    /// The ids of sessions and runs.
    pub(crate) ids: BTreeSet<String>,
    pub(crate) uid: String,
}

/// A command and its output, for the snapshot.
pub(crate) fn step(command: &str, printed: &str, facts: &Facts) -> String {
    let lines: Vec<&str> = printed.lines().collect();
    let blocks = lines.chunk_by(|above, _| !above.is_empty());
    let blocks = blocks.map(|block| match block.iter().position(|line| is_header(line)) {
        Some(start) => {
            let text: String = block[..start].iter().map(|line| plain(line, facts) + "\n").collect();
            text + &table(&block[start..], facts)
        }
        None => block.iter().map(|line| plain(line, facts) + "\n").collect(),
    });
    format!("$ {command}\n{}", blocks.collect::<String>())
}

/// True for the first line of a table.
fn is_header(line: &str) -> bool {
    line.starts_with(|sign: char| sign.is_ascii_uppercase()) && !line.contains(|sign: char| sign.is_lowercase())
}

/// A table with columns as wide as the placeholders need. No row may be wider than the terminal.
fn table(lines: &[&str], facts: &Facts) -> String {
    let rows: Vec<Vec<String>> = lines.iter().map(|line| cells(&plain(line, facts))).collect();
    let columns = rows[0].len();
    let is_row = |row: &Vec<String>| row.len() == columns && columns > 1;
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| is_row(row)).map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let mut text = String::new();
    for (line, row) in lines.iter().zip(&rows) {
        let padded = row.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
        let shown = if is_row(row) { padded.collect::<Vec<_>>().join("  ") } else { plain(line, facts) };
        text.push_str(shown.trim_end());
        assert!(!is_row(row) || fits(line), "over {WIDTH} columns: {line}");
        text.push('\n');
    }
    text
}

fn fits(line: &str) -> bool {
    line.trim_end().chars().count() <= WIDTH
}

/// The cells of a row; the first one keeps its indentation.
fn cells(line: &str) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let cells = line[indent..].split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let mut cells: Vec<String> = cells.map(str::to_owned).collect();
    if let Some(first) = cells.first_mut() {
        first.insert_str(0, &line[..indent]);
    }
    cells
}

/// A line with placeholders.
fn plain(line: &str, facts: &Facts) -> String {
    let mut line = line.trim_end().replace(&facts.uid, "UID");
    let is_made = |id: &&String| matches!(id.len(), 26 | 36);
    for id in facts.ids.iter().filter(is_made) {
        // Tables show the beginning.
        line = line.replace(id, "ID").replace(&id[..8], "ID");
    }
    machine(&line).unwrap_or_else(|| words(&line))
}

/// A row of `leash doctor` that depends on the machine.
fn machine(line: &str) -> Option<String> {
    let (first, rest) = line.split_once("  ")?;
    let second = line.len() - rest.trim_start().len();
    let text = match first {
        "sealed" | "unit" | "leaf" => "HERE  PROMISE OR REASON",
        "leash" => "fine  VERSION, HOW AND WHERE INSTALLED",
        "kernel" => "fine  KERNEL",
        "open files" | "processes" => "fine  LIMIT",
        "PATH" => "fine  DIRECTORIES",
        _ => return None,
    };
    Some(format!("{}{text}", &line[..second]))
}

/// A line with placeholders for the words that differ.
fn words(line: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let before = out.last().map(String::as_str).unwrap_or_default();
        let unit = word.trim_end_matches(|sign: char| !sign.is_alphanumeric());
        if matches!(unit, "B" | "KiB" | "MiB" | "GiB") && is_number(before) {
            out.pop();
            out.push(word.replacen(unit, "SIZE", 1));
            continue;
        }
        out.push(self::word(word));
    }
    ending(&out.join(" "))
}

/// A word with placeholders: `12.3s` is TIME, and `client(20123)` has a process.
fn word(word: &str) -> String {
    let core = word.trim_matches(|sign: char| !sign.is_alphanumeric());
    let is_id = core.len() == 26 && core.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    if is_time(core) || is_id {
        return word.replacen(core, if is_id { "ID" } else { "TIME" }, 1);
    }
    if let Some((before, after)) = word.split_once("/tmp/tmp.") {
        let after = after.split_once('/').map(|(_, after)| format!("/{after}")).unwrap_or_default();
        return format!("{before}/tmp/tmp.NAME{after}");
    }
    let parts = word.split_inclusive(|sign: char| !sign.is_alphanumeric());
    let parts = parts.map(|part| {
        let number = part.trim_end_matches(|sign: char| !sign.is_alphanumeric());
        if is_process(number) { part.replacen(number, "PID", 1) } else { part.to_owned() }
    });
    parts.collect()
}

/// True for the number of a process: [`crate::newcomer`] lets them begin at 20,000.
fn is_process(word: &str) -> bool {
    word.len() == 5 && word.starts_with('2') && is_whole(word)
}

/// A line without the details of an end that depend on time: on a busy machine a server needs SIGKILL.
fn ending(line: &str) -> String {
    let mut line = line.to_owned();
    // The receipt of the demonstration, which is in no history. A process of it exits at once; leash may not see it.
    if let Some((_, rest)) = line.split_once("]: ").filter(|_| line.starts_with("receipt: sample [")) {
        let (before, after) = rest.split_once(" processes,").unwrap_or((rest, ""));
        let before = before.trim_end_matches(|sign: char| sign.is_ascii_digit());
        line = format!("receipt: sample [ID]: {before}COUNT processes,{after}");
    }
    for way in ["exited after SIGTERM in TIME", "exited after end of input in TIME", "killed in TIME"] {
        line = line.replace(way, "ENDED in TIME");
    }
    for step in ["term", "kill", "eof"] {
        // The number of processes follows: leash may not see one that exits at once.
        if let Some((before, after)) = line.split_once(&format!("  {step}  ")) {
            // A narrow table has no such column.
            let rest = after.trim_start().trim_start_matches(|sign: char| sign.is_ascii_digit());
            let count = if rest.len() < after.trim_start().len() { "COUNT" } else { "" };
            line = format!("{before}  HOW  {count}{rest}");
        }
    }
    line
}

fn is_whole(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_number(word: &str) -> bool {
    word.split('.').all(is_whole)
}

/// True for `44ms`, `2.8s`, `1m05s` and the like.
fn is_time(word: &str) -> bool {
    let is_part = |part: &str| part.strip_suffix(['d', 'h', 'm', 's']).is_some_and(is_number);
    let is_parts = || !word.is_empty() && word.split_inclusive(['d', 'h', 'm', 's']).all(is_part);
    word.strip_suffix("ms").is_some_and(is_number) || is_parts()
}

#[test]
fn what_differs_has_a_placeholder() {
    let ids = ["0123456789abcdefghjkmnpqrs", "tour"].map(str::to_owned).into();
    let facts = Facts { ids, uid: "3000000001".to_owned() };
    for (printed, normal) in [
        (
            "tour: leash end; 2 servers, 1.2 MiB freed; killed in 12ms",
            "tour: leash end; 2 servers, SIZE freed; ENDED in TIME",
        ),
        ("files (pid 20012): live, 1m05s old", "files (pid PID): live, TIME old"),
        ("notes [0123456789abcdefghjkmnpqrs]: gone", "notes [ID]: gone"),
        ("receipt: sample [qckzgevx]: idle; 5 processes, x", "receipt: sample [ID]: idle; COUNT processes, x"),
        ("ended 01234567", "ended ID"),
        ("20095: 12345 files", "PID: 12345 files"),
        ("its server's processes: 20033, 20034", "its server's processes: PID, PID"),
        ("runtime directory  fine  /run/user/3000000001/leash", "runtime directory  fine  /run/user/UID/leash"),
        ("--- /tmp/tmp.vn1fSvfhTv/home/x", "--- /tmp/tmp.NAME/home/x"),
        ("kernel             fine  Linux 6.18", "kernel             fine  KERNEL"),
        ("A      BB\n20012  sleep 600", "A    BB\nPID  sleep 600"),
        ("A   BB\n  12  x", "A     BB\n  12  x"),
        (
            "AGE       MEMORY    X\n2.8s ago  27.2 MiB  sh(20077),st(20007)",
            "AGE       MEMORY  X\nTIME ago  SIZE    sh(PID),st(PID)",
        ),
        ("+        \"--\",\n+   \"npx\",", "+        \"--\",\n+   \"npx\","),
    ] {
        assert_eq!(step("x", printed, &facts), format!("$ x\n{normal}\n"));
    }
    let wide = "x".repeat(81);
    assert_eq!(step("x", &wide, &facts), format!("$ x\n{wide}\n"));
}

#[test]
fn a_row_wider_than_the_terminal_does_not_fit() {
    assert!(fits(&"ö".repeat(80)) && !fits(&"x".repeat(81)));
}
