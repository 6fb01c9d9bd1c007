use super::super::lines::SortOrder;
use super::super::tests::{other, process, row, session};
use super::*;

fn look(rows: &[FeedRow]) -> Event {
    Event::Look(FeedLook { at_ms: 1_000, rows: rows.to_vec(), ..FeedLook::default() })
}

/// A state that has seen these rows.
fn state(rows: &[FeedRow]) -> TopState {
    let mut state = TopState::new(false);
    state.apply(look(rows));
    state
}

/// Presses keys: characters as they are, `^` is up, `v` is down, `<` is Esc, `>` is Enter, `!` is Backspace.
fn press(state: &mut TopState, keys: &str) -> Vec<Effect> {
    let key = |letter: char| match letter {
        '^' => TopKey::Up,
        'v' => TopKey::Down,
        '<' => TopKey::Escape,
        '>' => TopKey::Enter,
        '!' => TopKey::Backspace,
        other => TopKey::Char(other),
    };
    keys.chars().filter_map(|letter| state.apply(Event::Key(key(letter)))).collect()
}

fn end(run: &str) -> Effect {
    Effect::End { target: Target::Run(run.to_owned()), name: format!("server-{run} [session-{run}]") }
}

fn mode(state: &TopState) -> &'static str {
    match state.mode {
        Mode::List => "list",
        Mode::Filter { .. } => "filter",
        Mode::Help => "help",
        Mode::Details { .. } => "details",
        Mode::Confirm { .. } => "confirm",
    }
}

fn selected(state: &TopState) -> &str {
    state.selected.as_deref().unwrap_or("-")
}

#[test]
fn each_key_has_one_meaning() {
    let check = |keys: &str, expected_mode: &str, expected: &[Effect]| {
        let mut state = state(&[row("a", 1), row("b", 1), other(70, "old", "orphan")]);
        let effects = press(&mut state, keys);
        assert_eq!((mode(&state), &effects[..]), (expected_mode, expected), "{keys}");
    };
    let why = |run: &str| Effect::Explain { key: format!("run:{run}"), pid: 4000 };
    let root = other(70, "", "").root.expect("a process");
    let reap = || Effect::Reap { root, name: "old (pid 70)".to_owned() };
    check("q", "list", &[Effect::Quit]);
    check("?", "help", &[]);
    check("??", "list", &[]);
    check("?<", "list", &[]);
    check("?q", "help", &[Effect::Quit]);
    check("?e", "help", &[]);
    check(">", "details", &[why("a")]);
    let logs = Effect::Logs { key: "run:a".to_owned(), word: "a".to_owned() };
    check("l", "details", std::slice::from_ref(&logs));
    check("l<", "list", &[logs]);
    check("vvl", "list", &[]);
    check("v>", "details", &[why("b")]);
    check("><", "list", &[why("a")]);
    check(">ery>", "details", &[why("a")]);
    check(">q", "details", &[why("a"), Effect::Quit]);
    check("e", "confirm", &[]);
    check("ey", "list", &[end("a")]);
    check("eyy", "list", &[end("a")]);
    check("en", "list", &[]);
    check("e<", "list", &[]);
    check("e>er jk", "confirm", &[]);
    check("eq", "confirm", &[Effect::Quit]);
    check("jey", "list", &[end("b")]);
    check("jkey", "list", &[end("a")]);
    check("y", "list", &[]);
    check("n", "list", &[]);
    check("ry", "list", &[]);
    check("vvry", "list", &[reap()]);
    check("vvey", "list", &[]);
    check("vvrn", "list", &[]);
    check("/", "filter", &[]);
    check("/eyrq?/ts>", "list", &[]);
    check("/eyrq?/ts<", "list", &[]);
}

#[test]
fn typing_in_the_filter_only_changes_the_filter() {
    let mut state = state(&[row("a", 1), row("b", 1)]);
    let steps = [
        ("/ser", "ser", "filter"),
        ("!", "se", "filter"),
        ("^v", "se", "filter"),
        (">", "se", "list"),
        ("/x", "sex", "filter"),
        ("<", "se", "list"),
        ("<", "", "list"),
    ];
    for (keys, filter, expected) in steps {
        assert!(press(&mut state, keys).is_empty(), "{keys}");
        assert_eq!((&*state.view.filter, mode(&state)), (filter, expected), "{keys}");
    }
    press(&mut state, "ts");
    assert!(state.view.tree && state.view.order == SortOrder::Memory);
}

#[test]
fn pasted_text_is_text_for_the_filter_and_nothing_else() {
    let mut state = state(&[row("a", 1)]);
    assert_eq!(state.apply(Event::Paste("ey".to_owned())), None);
    assert_eq!((mode(&state), &*state.view.filter), ("list", ""));
    press(&mut state, "/");
    state.apply(Event::Paste("ey\n\u{1b}q".to_owned()));
    assert_eq!((mode(&state), &*state.view.filter), ("filter", "eyq"));
}

#[test]
fn interrupt_quits_from_everywhere() {
    for keys in ["", "/x", "?", ">", "e"] {
        let mut state = state(&[row("a", 1)]);
        press(&mut state, keys);
        assert_eq!(state.apply(Event::Key(TopKey::Interrupt)), Some(Effect::Quit), "{keys}");
    }
}

#[test]
fn selection_stays_with_its_row_or_at_its_place() {
    let (a, b, c) = (row("a", 1), row("b", 1), row("c", 1));
    let mut state = state(&[a.clone(), b.clone(), c.clone()]);
    assert_eq!(selected(&state), "run:a");
    press(&mut state, "^");
    assert_eq!(selected(&state), "run:a");
    press(&mut state, "v");
    state.apply(look(&[b.clone(), a.clone(), c.clone()]));
    assert_eq!(selected(&state), "run:b", "it moved, and the selection with it");
    state.apply(look(&[a.clone(), c.clone()]));
    assert_eq!(selected(&state), "run:a", "it is gone; this one is at its place");
    press(&mut state, "vvvv");
    assert_eq!(selected(&state), "run:c");
    state.apply(look(&[a]));
    assert_eq!(selected(&state), "run:a");
    state.apply(look(&[]));
    assert_eq!(selected(&state), "-");
    assert!(press(&mut state, ">ervk").is_empty(), "there is nothing to act on");
    assert_eq!(mode(&state), "list");
    for (key, expected) in [(TopKey::Last, "run:c"), (TopKey::First, "run:b"), (TopKey::PageDown, "run:c")] {
        state.apply(look(&[b.clone(), c.clone()]));
        state.apply(Event::Key(key));
        assert_eq!(selected(&state), expected, "{key:?}");
    }
}

#[test]
fn question_names_processes_sessions_and_memory() {
    let member = |run: &str| FeedRow { session: Some("job".to_owned()), ..row(run, 1024) };
    let mut many = member("b");
    many.processes = (1..=9).map(|pid| process(pid, 0, "node x", 1024)).collect();
    let mut state = state(&[session("job"), member("a"), many]);
    assert!(press(&mut state, "e").is_empty());
    let Mode::Confirm { question, .. } = &state.mode else { panic!("a question") };
    let mut expected = vec![
        "End the session job?",
        "",
        "It works for claude (100).",
        "It has 2 members.",
        "This ends 10 processes and frees 10.0 KiB:",
        "  4000 node server.js",
    ];
    let named: Vec<String> = (1..=7).map(|pid| format!("  {pid} node x")).collect();
    expected.extend(named.iter().map(|line| &**line));
    expected.push("  and 2 more");
    assert_eq!(*question, expected);
    let all = Effect::End { target: Target::Session("job".to_owned()), name: "job".to_owned() };
    assert_eq!(press(&mut state, "y"), [all]);
    assert_eq!(state.pending, 1);
    state.apply(Event::Done("job has ended".to_owned()));
    assert_eq!((state.pending, state.notice.as_deref()), (0, Some("job has ended")));
}

#[test]
fn question_closes_when_its_row_has_ended() {
    let mut state = state(&[row("a", 1), row("b", 1)]);
    press(&mut state, "e");
    state.apply(look(&[row("b", 1)]));
    assert_eq!((mode(&state), state.notice.as_deref()), ("list", Some("it has ended meanwhile")));
    assert!(press(&mut state, "y").is_empty());
}

#[test]
fn refusals_say_why() {
    let check = |read_only: bool, row: FeedRow, key: &str, expected: &str| {
        let mut state = TopState::new(read_only);
        state.apply(look(&[row]));
        assert!(press(&mut state, key).is_empty());
        assert_eq!((mode(&state), state.notice.as_deref()), ("list", Some(expected)));
    };
    check(true, row("a", 1), "e", "this is --read-only: nothing is ended");
    check(true, other(70, "x", "orphan"), "r", "this is --read-only: nothing is ended");
    check(false, other(70, "x", "orphan"), "e", "it is an orphan of another program: r ends it");
    check(false, other(70, "x", "live"), "e", "another program started it: leash does not end it");
    check(false, other(70, "x", "likely"), "r", "it is not proved to be an orphan: Enter shows why");
    check(false, row("a", 1), "r", "it is not proved to be an orphan: Enter shows why");
    let upstream = FeedRow { kind: RowKind::Upstream, remedy: RowRemedy::None, ..row("a", 1) };
    check(false, upstream, "e", "its gateway ends it");
}

#[test]
fn answer_of_why_is_shown_only_for_its_row() {
    let mut state = state(&[row("a", 1), row("b", 1)]);
    press(&mut state, ">");
    let explained = |key: &str| Event::Explained { key: key.to_owned(), lines: vec!["because".to_owned()] };
    state.apply(explained("run:b"));
    let last = |state: &TopState| match &state.mode {
        Mode::Details { lines, .. } => lines.last().cloned(),
        _ => None,
    };
    assert_eq!(last(&state).as_deref(), Some("asking leash why it is alive..."));
    state.apply(explained("run:a"));
    assert_eq!(last(&state).as_deref(), Some("because"));
    press(&mut state, "<");
    state.apply(explained("run:a"));
    assert_eq!(mode(&state), "list");
}

#[test]
fn changes_become_events() {
    let mut state = state(&[row("a", 1), row("b", 1)]);
    assert!(state.events.is_empty(), "the first look is no event");
    let ending = FeedRow { state: "ending".to_owned(), ..row("a", 1) };
    state.apply(look(&[ending, row("c", 1), other(70, "old", "orphan")]));
    let texts: Vec<&str> = state.events.iter().map(|event| &*event.text).collect();
    let expected = [
        "server-b is gone",
        "server-a [session-a]: running, now ending",
        "old (pid 70): orphan, not under leash",
        "server-c [session-c] began",
    ];
    assert_eq!(texts, expected);
    for _ in 0..EVENTS {
        state.apply(look(&[]));
        state.apply(look(&[row("a", 1)]));
    }
    assert_eq!(state.events.len(), EVENTS);
}
