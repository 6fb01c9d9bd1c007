//! For all layouts: an adopted server runs under leash, and a released one is as it was.

use std::path::PathBuf;

use proptest::prelude::*;

use super::backups::{Backup, BackupRecord};
use super::release::{ReleaseOutcome, undo};
use super::*;

const REQUEST: AdoptRequest<'_> =
    AdoptRequest { program: "/usr/bin/leash", shared_program: "leash", servers: &[], with_urls: true };

fn file(client: &str, text: &str) -> ConfigFile {
    let client = Client::find(client).expect("a known client");
    ConfigFile { client, place: &client.places[0], path: PathBuf::from("/f"), text: text.to_owned() }
}

fn backup(file: &ConfigFile, plan: &AdoptPlan) -> Backup {
    let record = BackupRecord {
        splices: plan.splices.clone(),
        adopted: plan.adopted.clone(),
        ..BackupRecord::new(file.client.id, 0, &file.path)
    };
    Backup { name: "1".to_owned(), record, before: file.text.clone() }
}

fn launches(file: &ConfigFile) -> Vec<(String, ServerLaunch)> {
    let server = |entry: ConfigEntry| match &entry.kind {
        EntryKind::Server { launch, .. } => Some((entry.name().to_owned(), launch.clone())),
        EntryKind::BuiltIn | EntryKind::Unknown(_) => None,
    };
    entries(file).unwrap_or_default().into_iter().filter_map(server).collect()
}

/// Adopts, and undoes it in all three ways. `extra` is appended to change the text.
fn check(client: &str, text: &str, extra: &str) -> Result<(), TestCaseError> {
    let before = file(client, text);
    let plan = plan(&before, &REQUEST).expect("a valid text");
    let adopted = file(client, &plan.after);
    prop_assert!(launches(&adopted).iter().all(|(_, launch)| launch.is_leashed()), "{}", plan.after);
    prop_assert_eq!(plan.adopted.len(), launches(&before).len(), "{:?}", plan.left);

    let mut backup = backup(&before, &plan);
    let all = |_: &str| true;
    prop_assert_eq!(&undo(&adopted, std::slice::from_ref(&backup), &all).text, text);

    let touched = file(client, &format!("{}{extra}", plan.after));
    prop_assert_eq!(undo(&touched, std::slice::from_ref(&backup), &all).text, format!("{text}{extra}"));

    // As if every entry had been laid out anew: only the words can be matched.
    let changes = backup.record.adopted.iter_mut().flat_map(|adopted| &mut adopted.changes);
    changes.for_each(|change| change.after.push_str("other"));
    let undone = undo(&touched, std::slice::from_ref(&backup), &all);
    let released = undone.outcomes.iter().flatten().all(|(adopted, outcome)| {
        // The URL alone does not show the old entry of an HTTP server.
        *outcome == ReleaseOutcome::Released
            || (adopted.prefix.is_none() && matches!(outcome, ReleaseOutcome::Refused(_)))
    });
    prop_assert!(released, "{:?}\n{}", undone.outcomes, plan.after);
    for ((name, now), (_, then)) in launches(&file(client, &undone.text)).iter().zip(launches(&before)) {
        prop_assert!(*now == then || matches!(then, ServerLaunch::Url { .. }), "{name}: {}", undone.text);
    }
    Ok(())
}

/// White space and comments, wherever JSONC allows them.
fn gap() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "",
        " ",
        "\n",
        "\n    ",
        "\r\n\t",
        " // it's \"c\"\n",
        "/* {x: [1]} */",
        "\n// a, b\n  ",
    ])
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["npx", "-y", "", "a b", "é", "\"q\"", "\\", "--", "leash", "{}", "// no", "x,y", "run"])
        .prop_map(str::to_owned)
}

#[derive(Clone, Debug)]
struct Server {
    command: String,
    args: Option<Vec<String>>,
    turned: bool,
    url: bool,
    gaps: Vec<&'static str>,
}

fn server() -> impl Strategy<Value = Server> {
    let args = prop::option::of(prop::collection::vec(word(), 0..4));
    let command = prop::sample::select(vec!["npx", "/a b/ü", "c:\\x", "\"q\""]).prop_map(str::to_owned);
    (command, args, any::<bool>(), prop::bool::weighted(0.2), prop::collection::vec(gap(), 32))
        .prop_map(|(command, args, turned, url, gaps)| Server { command, args, turned, url, gaps })
        // A server whose own words contain `leash run` counts as adopted.
        .prop_filter("on the leash already", |server| {
            !server
                .args
                .iter()
                .flatten()
                .collect::<Vec<_>>()
                .windows(2)
                .any(|pair| pair[0] == "leash" && pair[1] == "run")
        })
}

impl Server {
    fn json(&self, comma: bool) -> String {
        let mut gaps = self.gaps.iter().cycle();
        let mut gap = || *gaps.next().expect("an endless iterator");
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut members = match self.url {
            true => vec![format!("\"url\"{}:{}\"https://h/mcp\"", gap(), gap())],
            false => vec![format!("\"command\"{}:{}{}", gap(), gap(), quoted(&self.command))],
        };
        if let Some(args) = self.args.as_ref().filter(|_| !self.url) {
            let words: Vec<String> = args.iter().map(|word| format!("{}{}{}", gap(), quoted(word), gap())).collect();
            let last = if comma && !words.is_empty() { "," } else { "" };
            members.push(format!("\"args\":{}[{}{last}{}]", gap(), words.join(","), gap()));
        }
        members.push(format!("\"other\":{}[1, {{\"command\": \"no\"}}]", gap()));
        if self.turned {
            members.reverse();
        }
        let members: Vec<String> = members.iter().map(|member| format!("{}{member}{}", gap(), gap())).collect();
        format!("{{{}{}{}}}", members.join(","), if comma { "," } else { "" }, gap())
    }
}

proptest! {
    #[test]
    fn jsonc_in_any_layout_is_adopted_and_released(list in prop::collection::vec(server(), 0..5), comma: bool, outer in gap()) {
        let entries: Vec<String> =
            list.iter().enumerate().map(|(index, server)| format!("{outer}\"s{index}\":{}{outer}", server.json(comma))).collect();
        let text = format!("{outer}{{\"theme\": 1,{outer}\"mcpServers\": {{{}}}}}", entries.join(","));
        check("cursor", &text, "\n// more")?;
    }

    #[test]
    fn toml_in_any_layout_is_adopted_and_released(list in prop::collection::vec(server(), 0..5), crlf: bool) {
        let mut text = "top = 1 # c\n".to_owned();
        for (index, server) in list.iter().enumerate() {
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let args = server.args.as_ref().map(|args| {
                let words: Vec<String> = args.iter().map(|word| quoted(word)).collect();
                format!("args = [{}]", words.join(if server.turned { ",\n    " } else { "," }))
            });
            let command = format!("command = {}", quoted(&server.command));
            text += &match (server.url, args) {
                (true, _) => format!("[mcp_servers.s{index}]\nurl = \"https://h/mcp\" # c\n\n"),
                (false, Some(args)) if server.turned => format!("[mcp_servers.s{index}]\n{args}\n{command}\n[mcp_servers.s{index}.env]\nA = \"1\"\n"),
                (false, Some(args)) => format!("[mcp_servers.s{index}] # h\n  {command}   # c\n  {args} # d\n"),
                (false, None) if server.turned => format!("[mcp_servers.s{index}]\n\t{command}\n\n# end\n"),
                (false, None) => format!("  [mcp_servers.s{index}]\n  {command}\n  timeout = 3\n"),
            };
        }
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        check("codex", &text, "# more\n")?;
    }
}

#[test]
fn a_plan_with_an_unrecognised_result_is_dropped() {
    let before = file("cursor", r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    // leash would not recognise its own entry under this program name.
    let plan = plan(&before, &AdoptRequest { program: "/opt/other", ..REQUEST }).expect("a valid text");
    assert_eq!((plan.after.as_str(), plan.splices.len(), plan.adopted.len()), (before.text.as_str(), 0, 0));
    assert_eq!(plan.left.len(), 1);
}

#[test]
fn splices_apply_only_to_their_text() {
    let splice = |at, before: &str, after: &str| TextSplice { at, before: before.to_owned(), after: after.to_owned() };
    assert_eq!(apply("abc", &[splice(0, "a", "x"), splice(2, "c", "")]).as_deref(), Some("xb"));
    assert_eq!(apply("abc", &[splice(1, "a", "x")]), None);
    assert_eq!(apply("abc", &[splice(9, "", "x")]), None);
    assert_eq!(apply("é", &[splice(1, "", "x")]), None);
    assert_eq!(apply("abc", &[splice(2, "c", ""), splice(0, "a", "")]), None);
}
