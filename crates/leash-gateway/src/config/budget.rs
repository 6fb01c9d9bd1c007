//! A budget for several trees together: all of leash, or the session of a request.

use schemars::{Schema, SchemaGenerator};

use super::json::{ConfigReader, Field};
use super::table::{Key, KeySchema, Table, key};
use super::{ConfigMistakes, jsonc, keys};
use leash_tree::contain::caps::Caps;

const BUDGET: Table<Caps> = Table {
    name: "Budget",
    about: "A budget for several trees together. It needs the containment `unit`.",
    keys: &[
        key!("memory", size => Some(memory), "Their memory: over it, the largest tree ends."),
        key!("pids", count => Some(pids), "The limit of their processes and threads, with one keeper for each tree."),
        key!("cpu", cpu => Some(cpu), "Their processor time: a percentage of one, or a weight."),
    ],
    ..Table::EMPTY
};

impl<'a> ConfigReader<'a> {
    pub(super) fn budget(&mut self, field: &Field<'a>) -> Option<Caps> {
        let limits = self.object(field.value, &field.to_string(), "`budget`")?;
        let mut budget = Caps::default();
        self.fields(&limits, &BUDGET, &mut budget, |name| keys::known_keys(name, &BUDGET.names()));
        Some(budget)
    }
}

impl KeySchema {
    pub(super) fn budget(generator: &mut SchemaGenerator) -> Schema {
        BUDGET.schema(generator)
    }
}

/// Reads only the `budget` of a configuration, which may have no servers. `file` is the file name in mistakes.
///
/// ```
/// let budget = leash_gateway::config::read_budget(r#"{"budget": {"memory": "4G"}}"#, "leash.json");
/// assert!(budget.is_ok_and(|budget| budget.memory == Some(4 << 30)));
/// ```
pub fn read_budget(text: &str, file: &str) -> Result<Caps, ConfigMistakes> {
    let text = jsonc::strict(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut reader = ConfigReader::new(&text, file, &|_| None);
    let top = reader.root().and_then(|root| reader.object(root, "the file", "the file"));
    let field = top.as_ref().and_then(|top| top.get("budget"));
    let budget = field.and_then(|field| reader.budget(field));
    ConfigMistakes::none(reader.found)?;
    Ok(budget.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_tree::contain::caps::CpuCap;

    #[test]
    fn a_budget_is_read_from_a_file_without_servers() {
        let read = |text: &str| read_budget(text, "leash.json").map_err(|mistakes| mistakes.all()[0].to_string());
        let all = Caps { memory: Some(4 << 30), pids: Some(500), cpu: Some(CpuCap::Quota(200)) };
        let text = "{\n// mine\n\"budget\": {\"memory\": \"4G\", \"pids\": 500, \"cpu\": \"200%\"}, \"run\": {}}";
        assert_eq!(read(text), Ok(all));
        assert_eq!(read(r#"{"mcpServers": {}}"#), Ok(Caps::default()));
        assert_eq!(read(r#"{"budget": null}"#), Ok(Caps::default()));
        for (text, mistake) in [
            (r#"{"budget": 4}"#, "leash.json:1:12: `budget` in the file must be an object, not a number"),
            (
                r#"{"budget": {"memory": "4X"}}"#,
                "leash.json:1:23: `memory` in `budget`: unknown unit `X`: use K, M, G or T",
            ),
            (r#"{"budget": {"memroy": "4G"}}"#, "leash.json:1:13: unknown key `memroy` in `budget`"),
        ] {
            assert_eq!(read(text), Err(mistake.to_owned()));
        }
    }
}
