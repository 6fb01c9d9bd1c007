use expect_test::{Expect, expect};
use leash_model::feed::{FeedLook, RowRemedy};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::state::{Event, TopKey};
use super::super::tests::{other, process, row, session};
use super::*;

const LOOKS: ScreenLooks = ScreenLooks { in_colour: false, utf8: true };

fn rows() -> Vec<FeedRow> {
    let member = |run: &str, memory: u64| FeedRow { session: Some("review".to_owned()), ..row(run, memory) };
    let files = FeedRow {
        name: "files".to_owned(),
        session: Some("0123456789abcdefghjkmnpqrs".to_owned()),
        processes: vec![process(4001, 1, "node server.js", 80 << 20), process(4002, 4001, "rg --json", 4 << 20)],
        memory_bytes: Some(84 << 20),
        ..row("a", 0)
    };
    let web = FeedRow {
        name: "web".to_owned(),
        kind: RowKind::Upstream,
        containment: None,
        url: Some("https://example.com/mcp".to_owned()),
        processes: Vec::new(),
        memory_bytes: None,
        remedy: RowRemedy::None,
        ..member("c", 0)
    };
    let abandoned = "abandoned: the next `leash run` ends it".to_owned();
    vec![
        files,
        session("review"),
        FeedRow { name: "日本語-検索".to_owned(), in_flight: Some(2), ..member("b", 3 << 20) },
        web,
        FeedRow { name: "evil\u{1b}[2J\nname".to_owned(), client: None, state: abandoned, ..row("d", 1 << 20) },
        other(7001, "playwright", "orphan"),
        other(7002, "context7", "live"),
    ]
}

fn state() -> TopState {
    let mut state = TopState::new(false);
    for second in 1..=20 {
        let look = FeedLook { at_ms: second * 1000, rows: rows(), given_back_bytes: 3 << 30, ..FeedLook::default() };
        state.apply(Event::Look(look));
    }
    let mut changed = rows();
    changed[0].memory_bytes = Some(21 << 20);
    changed.remove(6);
    state.apply(Event::Look(FeedLook {
        at_ms: 21_000,
        rows: changed,
        given_back_bytes: 3 << 30,
        ..FeedLook::default()
    }));
    state
}

fn check(width: u16, height: u16, state: &TopState, now_ms: u64, expected: Expect) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, state, LOOKS, now_ms)).expect("it is drawn");
    let buffer = terminal.backend().buffer();
    assert!(buffer.content.iter().all(|cell| !cell.symbol().contains(char::is_control)), "names move no cursor");
    let text = terminal.backend().to_string();
    expected.assert_eq(&text.lines().map(|line| format!("{line}\n")).collect::<String>());
}

fn press(state: &mut TopState, keys: &[TopKey]) {
    keys.iter().for_each(|key| drop(state.apply(Event::Key(*key))));
}

#[test]
fn list_on_a_small_screen() {
    check(
        80,
        24,
        &state(),
        22_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 KiB | given back 3.0 GiB    "
            "NAME                  PROCS     MEMORY  60 S          AGE  OWNER       STATE    "
            "claude (100): 3 ser…      3   24.0 MiB                                          "
            "  files 01234567          2   21.0 MiB        ████  21.0s  claude(10…  running  "
            "  review                  1        0 B        ▁▁▁▁  21.0s  claude(10…  running  "
            "    日本語-検索           1    3.0 MiB        ████  21.0s  claude(10…  running  " Hidden by multi-width symbols: [(5, " "), (7, " "), (9, " "), (12, " "), (14, " ")]
            "    web                   -          -              21.0s  claude(10…  running  "
            "no client: 1 server       1    1.0 MiB                                          "
            "  evil\u{1b}[2J\nna…      1    1.0 MiB        ████  21.0s  claude(10…  abandoned"
            "other programs                                                                  "
            "  playwright 7001         1    2.0 KiB        ████  21.0s  cursor (2…  orphan   "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "-- events ----------------------------------------------------------------------"
            "  1.0s ago  context7 is gone                                                    "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "Enter why  l logs  / filter  t tree  s by age  e end  r reap  ? help  q quit    "
        "#]],
    );
}

#[test]
fn list_with_processes_on_a_large_screen() {
    let mut state = state();
    press(&mut state, &[TopKey::Char('t'), TopKey::Char('s')]);
    check(
        160,
        50,
        &state,
        22_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 KiB | given back 3.0 GiB                                                                                    "
            "NAME                             PROCS     MEMORY  60 S          AGE  CALLS  CONTAINMENT  OWNER              STATE      EVIDENCE                                "
            "claude (100): 3 servers              3   24.0 MiB                                                                                                               "
            "  files 01234567                     2   21.0 MiB        ████  21.0s  -      leaf         claude(100),stdin  running    leash supervises it                     "
            "    4001 node server.js                  80.0 MiB                                                                                                               "
            "      4002 rg --json                      4.0 MiB                                                                                                               "
            "  review                             1        0 B        ▁▁▁▁  21.0s  -      -            claude(100),stdin  running                                            "
            "    日本語-検索                      1    3.0 MiB        ████  21.0s  2      leaf         claude(100),stdin  running    leash supervises it                     " Hidden by multi-width symbols: [(5, " "), (7, " "), (9, " "), (12, " "), (14, " ")]
            "      4000 node server.js                 3.0 MiB                                                                                                               "
            "    web                              -          -              21.0s  -      upstream     claude(100),stdin  running    leash supervises it                     "
            "no client: 1 server                  1    1.0 MiB                                                                                                               "
            "  evil\u{1b}[2J\nname session-d      1    1.0 MiB        ████  21.0s  -      leaf         claude(100),stdin  abandoned  leash supervises it                     "
            "    4000 node server.js                   1.0 MiB                                                                                                               "
            "other programs                                                                                                                                                  "
            "  playwright 7001                    1    2.0 KiB        ████  21.0s  -      -            cursor (200)       orphan     the other end of its stdin does not exi…"
            "    7001 playwright                       2.0 KiB                                                                                                               "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "-- events ------------------------------------------------------------------------------------------------------------------------------------------------------"
            "  1.0s ago  context7 is gone                                                                                                                                    "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "Enter why  l logs  / filter  t tree  s by memory  e end  r reap  ? help  q quit                                                                                 "
        "#]],
    );
}

#[test]
fn old_rows_are_marked() {
    let mut state = state();
    state.read_only = true;
    check(
        80,
        10,
        &state,
        27_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 Ki read-only  OLD: 6.0s ago "
            "NAME                    PROCS     MEMORY  60 S          AGE  OWNER       STATE  "
            "claude (100): 3 serve…      3   24.0 MiB                                        "
            "  files 01234567            2   21.0 MiB        ████  26.0s  claude(10…  running"
            "  review                    1        0 B        ▁▁▁▁  26.0s  claude(10…  running"
            "    日本語-検索             1    3.0 MiB        ████  26.0s  claude(10…  running" Hidden by multi-width symbols: [(5, " "), (7, " "), (9, " "), (12, " "), (14, " ")]
            "-- events ----------------------------------------------------------------------"
            "  6.0s ago  context7 is gone                                                    "
            "                                                                                "
            "Enter why  l logs  / filter  t tree  s by age  ? help  q quit                   "
        "#]],
    );
}

#[test]
fn question_before_an_end() {
    let mut state = state();
    press(&mut state, &[TopKey::Char('e')]);
    check(
        80,
        24,
        &state,
        22_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 KiB | given back 3.0 GiB    "
            "NAME                  PROCS     MEMORY  60 S          AGE  OWNER       STATE    "
            "claude (100): 3 ser…      3   24.0 MiB                                          "
            "  files 01234567          2   21.0 MiB        ████  21.0s  claude(10…  running  "
            "  review                  1        0 B        ▁▁▁▁  21.0s  claude(10…  running  "
            "    日本語-検索           1    3.0 MiB        ████  21.0s  claude(10…  running  " Hidden by multi-width symbols: [(5, " "), (7, " "), (9, " "), (12, " "), (14, " ")]
            "    web                   -          -              21.0s  claude(10…  running  "
            "no client: 1 server       1    1.0 MiB                                          "
            "  ┌ Confirm ─────────────────────────────────────────────────────────────────┐ed"
            "ot│End the server files [01234567]?                                          │  "
            "  │                                                                          │  "
            "  │It works for claude (100).                                                │  "
            "  │This ends 2 processes and frees 84.0 MiB:                                 │  "
            "  │  4001 node server.js                                                     │  "
            "  │  4002 rg --json                                                          │  "
            "  └ y does it, n does not ───────────────────────────────────────────────────┘  "
            "-- events ----------------------------------------------------------------------"
            "  1.0s ago  context7 is gone                                                    "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "Enter why  l logs  / filter  t tree  s by age  e end  r reap  ? help  q quit    "
        "#]],
    );
}

#[test]
fn help_page() {
    let mut state = state();
    press(&mut state, &[TopKey::Char('?')]);
    check(
        80,
        24,
        &state,
        22_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 KiB | given back 3.0 GiB    "
            "NAME                  PROCS     MEMORY  60 S          AGE  OWNER       STATE    "
            "claude (100): 3 ser…      3   24.0 MiB                                          "
            "  files 01234567          2   21.0 MiB        ████  21.0s  claude(10…  running  "
            "  ┌ Keys ────────────────────────────────────────────────────────────────────┐  "
            "  │Up, Down, k, j    move; PageUp, PageDown, Home and End as well            │  "
            "  │Enter             show why the selected server is alive                   │  "
            "no│l                 show the last lines of its stderr, if leash keeps them  │  "
            "  │/                 filter: Enter keeps it, Esc does not                    │ed"
            "ot│Esc               close this, or clear the filter                         │  "
            "  │t                 show or hide the processes of each server               │  "
            "  │s                 sort by age, memory, processes or name                  │  "
            "  │e                 end the selected session or server, after a question    │  "
            "  │r                 reap the selected orphan, after a question              │  "
            "  │q, Ctrl-C         quit                                                    │  "
            "  │                                                                          │  "
            "--│60 S is the memory of the last minute. CALLS: all requests (those open).  │--"
            "  │Given back is the memory of all sessions that ended since boot.           │  "
            "  └ Esc closes ──────────────────────────────────────────────────────────────┘  "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "Enter why  l logs  / filter  t tree  s by age  e end  r reap  ? help  q quit    "
        "#]],
    );
}

#[test]
fn details_of_a_server() {
    let mut state = state();
    press(&mut state, &[TopKey::Enter]);
    check(
        160,
        50,
        &state,
        22_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 KiB | given back 3.0 GiB                                                                                    "
            "NAME                             PROCS     MEMORY  60 S          AGE  CALLS  CONTAINMENT  OWNER              STATE      EVIDENCE                                "
            "claude (100): 3 servers              3   24.0 MiB                                                                                                               "
            "  files 01234567                     2   21.0 MiB        ████  21.0s  -      leaf         claude(100),stdin  running    leash supervises it                     "
            "  review                             1        0 B        ▁▁▁▁  21.0s  -      -            claude(100),stdin  running                                            "
            "    日本語-検索                      1    3.0 MiB        ████  21.0s  2      leaf         claude(100),stdin  running    leash supervises it                     " Hidden by multi-width symbols: [(5, " "), (7, " "), (9, " "), (12, " "), (14, " ")]
            "    web                              -          -              21.0s  -      upstream     claude(100),stdin  running    leash supervises it                     "
            "no client: 1 server                  1    1.0 MiB                                                                                                               "
            "  evil\u{1b}[2J\nname session-d      1    1.0 MiB        ████  21.0s  -      leaf         claude(100),stdin  abandoned  leash supervises it                     "
            "other programs                                                                                                                                                  "
            "  playwright 7001                    1    2.0 KiB        ████  21.0s  -      -            cursor (200)       orphan     the other end of its stdin does not exi…"
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                              ┌ files [01234567] ────────────────────────────────────────────────────────────────────────────────┐                              "
            "                              │session: 0123456789abcdefghjkmnpqrs                                                               │                              "
            "                              │run: a                                                                                            │                              "
            "                              │client: claude (100)                                                                              │                              "
            "                              │owner: claude(100),stdin                                                                          │                              "
            "                              │containment: leaf                                                                                 │                              "
            "                              │state: running                                                                                    │                              "
            "                              │                                                                                                  │                              "
            "                              │asking leash why it is alive...                                                                   │                              "
            "                              └ Esc closes, arrows scroll ───────────────────────────────────────────────────────────────────────┘                              "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "-- events ------------------------------------------------------------------------------------------------------------------------------------------------------"
            "  1.0s ago  context7 is gone                                                                                                                                    "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "                                                                                                                                                                "
            "Enter why  l logs  / filter  t tree  s by age  e end  r reap  ? help  q quit                                                                                    "
        "#]],
    );
}

#[test]
fn filter_and_notice_are_in_the_last_line() {
    let mut state = state();
    press(&mut state, &[TopKey::Char('/'), TopKey::Char('z')]);
    check(
        80,
        8,
        &state,
        22_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 KiB | given back 3.0 GiB    "
            "NAME  PROCS     MEMORY  60 S    AGE  CALLS  CONTAINMENT  OWNER  STATE  EVIDENCE "
            "Nothing matches the filter. Esc clears it.                                      "
            "                                                                                "
            "-- events ----------------------------------------------------------------------"
            "  1.0s ago  context7 is gone                                                    "
            "                                                                                "
            "/z_  Enter keeps it, Esc does not                                               "
        "#]],
    );
    press(&mut state, &[TopKey::Escape, TopKey::Last, TopKey::Char('e')]);
    check(
        80,
        8,
        &state,
        22_000,
        expect![[r#"
            "3 trees, 4 procs, 25.0 MiB | 1 other, 1 orphan, 2.0 KiB | given back 3.0 GiB    "
            "NAME               PROCS     MEMORY  60 S          AGE  OWNER         STATE     "
            "other programs                                                                  "
            "  playwright 7001      1    2.0 KiB        ████  21.0s  cursor (200)  orphan    "
            "-- events ----------------------------------------------------------------------"
            "  1.0s ago  context7 is gone                                                    "
            "                                                                                "
            "it is an orphan of another program: r ends it                                   "
        "#]],
    );
}

#[test]
fn empty_and_tiny_screens() {
    check(
        80,
        8,
        &TopState::new(false),
        22_000,
        expect![[r#"
            "0 trees, 0 procs, 0 B | given back 0 B                                          "
            "NAME  PROCS     MEMORY  60 S    AGE  CALLS  CONTAINMENT  OWNER  STATE  EVIDENCE "
            "Looking...                                                                      "
            "                                                                                "
            "-- events ----------------------------------------------------------------------"
            "                                                                                "
            "                                                                                "
            "Enter why  l logs  / filter  t tree  s by age  e end  r reap  ? help  q quit    "
        "#]],
    );
    let mut state = TopState::new(false);
    state.apply(Event::Look(FeedLook { at_ms: 21_000, ..FeedLook::default() }));
    check(
        80,
        8,
        &state,
        22_000,
        expect![[r#"
            "0 trees, 0 procs, 0 B | given back 0 B                                          "
            "NAME  PROCS     MEMORY  60 S    AGE  CALLS  CONTAINMENT  OWNER  STATE  EVIDENCE "
            "No MCP server runs here. `leash adopt` puts the servers of your MCP clients on t"
            "                                                                                "
            "-- events ----------------------------------------------------------------------"
            "                                                                                "
            "                                                                                "
            "Enter why  l logs  / filter  t tree  s by age  e end  r reap  ? help  q quit    "
        "#]],
    );
    check(
        20,
        3,
        &state,
        22_000,
        expect![[r#"
        "too small           "
        "                    "
        "                    "
    "#]],
    );
}

#[test]
fn every_size_can_be_drawn() {
    let mut states = vec![state(), state(), state(), TopState::new(true)];
    press(&mut states[1], &[TopKey::Char('e')]);
    press(&mut states[2], &[TopKey::Enter]);
    for state in &states {
        for (width, height) in (1..60).flat_map(|width| (1..30).step_by(3).map(move |height| (width * 3, height))) {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| draw(frame, state, LOOKS, 22_000)).expect("it is drawn");
        }
    }
}

#[test]
fn colour_adds_and_never_informs() {
    let drawn = |looks: ScreenLooks| {
        let mut terminal = Terminal::new(TestBackend::new(160, 24)).expect("a terminal");
        terminal.draw(|frame| draw(frame, &state(), looks, 22_000)).expect("it is drawn");
        terminal.backend().buffer().clone()
    };
    let (plain, coloured) = (drawn(LOOKS), drawn(ScreenLooks { in_colour: true, ..LOOKS }));
    let is_plain =
        |buffer: &Buffer| buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset);
    assert!(is_plain(&plain) && !is_plain(&coloured));
    let text = |buffer: &Buffer| buffer.content.iter().map(|cell| cell.symbol().to_owned()).collect::<String>();
    assert_eq!(text(&plain), text(&coloured));
    let ascii = text(&drawn(ScreenLooks { utf8: false, ..LOOKS }));
    assert!(!ascii.contains(BLOCKS[7]) && ascii.contains(ASCII[7]));
}

#[test]
fn selected_line_is_near_the_middle() {
    for (selected, count, room, expected) in
        [(0, 5, 10, 0), (9, 30, 10, 4), (29, 30, 10, 20), (3, 30, 10, 0), (0, 0, 0, 0)]
    {
        assert_eq!(first_line(selected, count, room), expected, "{selected} {count} {room}");
    }
}
