//! The tables of docs/explain/proof.md: one for each kind, a row for each rule, a column for each counterpart.

use serde_json::Value;

use super::Checked;

/// The kinds, in their order, and their titles.
const KINDS: [(&str, &str); 3] = [("stdio", "stdio servers"), ("http", "HTTP servers"), ("host", "hosts")];

pub(super) fn markdown(date: &str, checked: &[Checked]) -> String {
    let mut text = format!(
        "`cargo xtask counterparts`, {date}. pass: as it should be; **FAIL**: a finding; warn: a finding that the specification allows; -: could not be found out.\n"
    );
    for (kind, title) in KINDS {
        let of_kind: Vec<&Checked> = checked.iter().filter(|one| one.report["kind"] == kind).collect();
        if !of_kind.is_empty() {
            text.push_str(&format!("\n### {title}\n\n{}{}", table(&of_kind), findings(&of_kind)));
        }
    }
    text
}

fn rows(report: &Value) -> &[Value] {
    report["checks"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn table(checked: &[&Checked]) -> String {
    let mut ids: Vec<&str> = Vec::new();
    for row in checked.iter().flat_map(|one| rows(&one.report)) {
        let id = row["id"].as_str().unwrap_or_default();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let heads = checked.iter().map(|one| cell(&format!("{} {}", one.name, one.version)));
    let mut text =
        format!("| check | {} |\n|---|{}\n", heads.collect::<Vec<_>>().join(" | "), "---|".repeat(checked.len()));
    for id in ids {
        let words = checked.iter().map(|one| {
            let found = rows(&one.report).iter().find(|row| row["id"] == id);
            found.map_or("-", |row| word(&row["status"]))
        });
        text.push_str(&format!("| `{id}` | {} |\n", words.collect::<Vec<_>>().join(" | ")));
    }
    text
}

fn word(status: &Value) -> &'static str {
    match status.as_str() {
        Some("pass") => "pass",
        Some("fail") => "**FAIL**",
        Some("warn") => "warn",
        _ => "-",
    }
}

/// The explanations of all rules that did not pass; equal texts are printed once.
fn findings(checked: &[&Checked]) -> String {
    let mut text = String::from("\n");
    for one in checked {
        let mut told: Vec<(String, Vec<&str>)> = Vec::new();
        for row in rows(&one.report).iter().filter(|row| row["status"] == "fail" || row["status"] == "warn") {
            let (id, detail) = (row["id"].as_str().unwrap_or_default(), row["detail"].as_str().unwrap_or_default());
            match told.iter_mut().find(|(known, _)| known == detail) {
                Some((_, ids)) => ids.push(id),
                None => told.push((detail.to_owned(), vec![id])),
            }
        }
        let told: Vec<String> =
            told.iter().map(|(detail, ids)| format!("`{}`: {}", ids.join("`, `"), cell(detail))).collect();
        let told = if told.is_empty() { "nothing was found".to_owned() } else { told.join("; ") };
        text.push_str(&format!("- {} {}: {told}\n", one.name, one.version));
    }
    text
}

/// A line break or a bar would end the cell.
fn cell(text: &str) -> String {
    text.replace(['\n', '|'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_for_each_rule_and_a_column_for_each_counterpart() {
        let row = |id: &str, status: &str, detail: &str| json!({ "id": id, "status": status, "detail": detail });
        let good =
            json!({ "kind": "http", "checks": [row("http.session", "pass", "x"), row("http.origin", "pass", "403")] });
        let bad = json!({ "kind": "http", "checks": [
            row("http.session", "fail", "no|one"), row("http.origin", "fail", "no|one"), row("http.delete", "warn", "405"),
        ] });
        let of = |name, report| Checked { name, version: "1.0".to_owned(), report };
        let text = markdown("2026-01-01", &[of("good", good), of("bad", bad)]);
        assert!(text.contains("| check | good 1.0 | bad 1.0 |\n|---|---|---|\n"), "{text}");
        assert!(text.contains("| `http.session` | pass | **FAIL** |\n"), "{text}");
        assert!(text.contains("| `http.delete` | - | warn |\n"), "{text}");
        assert!(text.contains("- good 1.0: nothing was found\n"), "{text}");
        assert!(text.contains("- bad 1.0: `http.session`, `http.origin`: no one; `http.delete`: 405\n"), "{text}");
        assert!(!text.contains("stdio servers"), "{text}");
    }
}
