use super::super::tests::{other, process, row, session};
use super::*;

/// The lines in short: a client with `>`, a row by its name, a process by its number.
fn shown(rows: &[FeedRow], view: &ListView) -> Vec<String> {
    let line = |line: TopLine<'_>| match line {
        TopLine::Client { name, servers, processes, memory } => format!("> {name} {servers} {processes} {memory}"),
        TopLine::Others => "> others".to_owned(),
        TopLine::Row { row, depth, processes } => format!("{}{} {processes}", "  ".repeat(depth), row.name),
        TopLine::Process { process, depth } => format!("{}{}", "  ".repeat(depth), process.pid),
    };
    lines(rows, view).into_iter().map(line).collect()
}

fn of_client(client: Option<&str>, started_ms: u64, row: FeedRow) -> FeedRow {
    FeedRow { client: client.map(str::to_owned), started_ms, ..row }
}

fn rows() -> Vec<FeedRow> {
    let member = |run: &str, memory: u64| FeedRow { session: Some("job".to_owned()), ..row(run, memory) };
    vec![
        of_client(Some("zed (1)"), 5, row("a", 10)),
        of_client(Some("claude (2)"), 3, session("job")),
        of_client(Some("claude (2)"), 3, member("b", 1)),
        of_client(Some("claude (2)"), 4, member("c", 2)),
        of_client(None, 1, row("d", 3)),
        of_client(Some("zed (1)"), 2, row("e", 5)),
        other(70, "old", "orphan"),
    ]
}

#[test]
fn clients_have_their_sessions_and_servers_below_them() {
    let expected = [
        "> no client 1 1 3",
        "  server-d 1",
        "> zed (1) 2 2 15",
        "  server-e 1",
        "  server-a 1",
        "> claude (2) 2 2 3",
        "  job 2",
        "    server-b 1",
        "    server-c 1",
        "> others",
        "  old 1",
    ];
    assert_eq!(shown(&rows(), &ListView::default()), expected);
}

#[test]
fn sort_orders_sessions_and_clients() {
    let order = |order: SortOrder| {
        let lines = shown(&rows(), &ListView { order, ..ListView::default() });
        let names = lines.iter().filter(|line| !line.starts_with('>') && !line.starts_with("    "));
        names.map(|line| line.split_whitespace().next().unwrap_or_default().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order(SortOrder::Age), "server-d server-e server-a job old");
    assert_eq!(order(SortOrder::Memory), "server-a server-e job server-d old");
    assert_eq!(order(SortOrder::Processes), "job server-a server-e server-d old");
    assert_eq!(order(SortOrder::Name), "job server-a server-e server-d old", "zed is shown where its first server is");
    let all = [SortOrder::Age, SortOrder::Memory, SortOrder::Processes, SortOrder::Name];
    assert_eq!(all.map(SortOrder::next), [all[1], all[2], all[3], all[0]]);
}

#[test]
fn filter_keeps_matching_rows_and_the_session_of_a_member() {
    let filtered = |filter: &str| {
        let lines = shown(&rows(), &ListView { filter: filter.to_owned(), ..ListView::default() });
        lines.iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(filtered("server-C"), "> claude (2) 1 1 2, job 1, server-c 1");
    assert_eq!(filtered("job"), "> claude (2) 2 2 3, job 2, server-b 1, server-c 1");
    assert_eq!(filtered("zed"), "> zed (1) 2 2 15, server-e 1, server-a 1");
    assert_eq!(filtered("orphan"), "> others, old 1");
    assert_eq!(filtered("server.js").matches("server-").count(), 5, "commands are searched, too");
    assert_eq!(filtered("nothing"), "");
}

#[test]
fn tree_shows_processes_below_their_parents() {
    let processes = vec![process(9, 8, "", 0), process(8, 7, "", 0), process(5, 1, "", 0), process(10, 8, "", 0)];
    let rows = [FeedRow { processes, ..row("a", 1) }];
    let view = ListView { tree: true, ..ListView::default() };
    let expected = ["> claude (100) 1 4 1", "  server-a 4", "    8", "      9", "      10", "    5"];
    assert_eq!(shown(&rows, &view), expected);
}
