//! The reference of exit codes and JSON, made from the table of exit codes and from the types that commands print:
//! `docs/reference/commands.json` for programs, `docs/reference/commands.md` for people.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use leash_check::CheckReport;
use leash_model::feed::FeedDocument;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::adopt::AdoptAnswer;
use super::doctor::DoctorAnswer;
use super::end::EndAnswer;
use super::history::HistoryAnswer;
use super::logs::LogLineAnswer;
use super::ps::PsAnswer;
use super::reap::{ReapAnswer, ReapPlan};
use super::release::ReleaseAnswer;
use super::status::StatusAnswer;
use super::upgrade::UpgradeAnswer;
use super::why::WhyAnswer;
use crate::args::Cli;
use crate::exit_code;
use crate::output::answer::VersionedAnswer;

/// The reference for programs: for each command its exit codes, and for each of its forms with `--json` the schema.
fn reference() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| settings.meta_schema = None);
    let mut generator = settings.into_generator();
    let mut commands = Map::new();
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let codes = exit_code::of_command(name).iter();
        let codes = codes.map(|(code, meaning)| json!({ "code": code.to_string(), "meaning": meaning }));
        let mut described = json!({
            "about": command.get_about().map(ToString::to_string),
            "exit_codes": codes.collect::<Vec<_>>(),
        });
        let forms = forms(name, &mut generator);
        if !forms.is_empty() {
            described["json"] = Value::Object(forms);
        }
        commands.insert(name.to_owned(), described);
    }
    json!({ "version": 1, "commands": commands, "$defs": generator.take_definitions(true) })
}

/// The command lines of a command that print JSON, each with its schema.
fn forms(command: &str, generator: &mut SchemaGenerator) -> Map<String, Value> {
    fn form<T: JsonSchema>(words: &str, generator: &mut SchemaGenerator) -> (String, Value) {
        (format!("leash {words} --json"), generator.subschema_for::<T>().to_value())
    }
    let forms = match command {
        "ps" => vec![
            form::<VersionedAnswer<PsAnswer<'_>>>("ps", generator),
            form::<VersionedAnswer<FeedDocument>>("ps --watch", generator),
        ],
        "why" => vec![form::<VersionedAnswer<WhyAnswer<'_>>>("why PID", generator)],
        "reap" => vec![
            form::<VersionedAnswer<ReapPlan<'_>>>("reap", generator),
            form::<VersionedAnswer<ReapAnswer<'_>>>("reap --yes", generator),
        ],
        "end" => vec![form::<VersionedAnswer<EndAnswer<'_>>>("end SESSION", generator)],
        "history" => vec![form::<VersionedAnswer<HistoryAnswer<'_>>>("history", generator)],
        "status" => vec![form::<VersionedAnswer<StatusAnswer<'_>>>("status", generator)],
        "logs" => vec![form::<VersionedAnswer<LogLineAnswer<'_>>>("logs", generator)],
        "adopt" => vec![form::<VersionedAnswer<AdoptAnswer<'_>>>("adopt", generator)],
        "release" => vec![form::<VersionedAnswer<ReleaseAnswer<'_>>>("release", generator)],
        "check" => vec![form::<CheckReport>("check", generator)],
        "doctor" => vec![form::<VersionedAnswer<DoctorAnswer<'_>>>("doctor", generator)],
        "upgrade" => vec![form::<VersionedAnswer<UpgradeAnswer<'_>>>("upgrade", generator)],
        _ => Vec::new(),
    };
    forms.into_iter().collect()
}

const INTRODUCTION: &str = "\
# Exit codes and JSON

This page is generated from the code; [commands.json](commands.json) has the same for programs, as JSON Schema.

`--json` prints one object on stdout (`ps --watch` one a line); messages are on stderr. Every object has a `version`. A new field does not change the
version, so ignore fields that you do not know. A field that disappears or changes its meaning raises the version. A field is always
there, unless its type says *optional*. Numbers that end in `_ms` are milliseconds, numbers that end in `_bytes` are bytes.

| exit code | meaning for every command |
|---|---|
| 0 | Success. |
| 1 | The command ran, but not every result is as it should be. |
| 2 | The command line is wrong. |
| 125 | leash itself failed. |
| 126, 127 | The command that leash should start cannot be executed, or was not found. |
| 128 + n | Signal n ended it. |
";

/// The page for people.
fn page(reference: &Value) -> String {
    let mut text = INTRODUCTION.to_owned();
    for (name, command) in fields(&reference["commands"]) {
        // Writing to a String can't fail.
        let _ = write!(text, "\n## leash {name}\n\n{}\n", words(&command["about"]));
        text.push_str("\n| exit code | meaning |\n|---|---|\n");
        for code in command["exit_codes"].as_array().into_iter().flatten() {
            let _ = writeln!(text, "| {} | {} |", words(&code["code"]), words(&code["meaning"]));
        }
        for (form, schema) in fields(&command["json"]) {
            let answer = schema["$ref"].as_str().and_then(|name| reference.pointer(name.trim_start_matches('#')));
            let _ = write!(text, "\n`{form}` prints:\n\n{}", table(answer.unwrap_or(schema)));
        }
    }
    text.push_str("\n## Types\n");
    let forms = fields(&reference["commands"]).flat_map(|(_, command)| fields(&command["json"]));
    let answers: Vec<&str> = forms.filter_map(|(_, schema)| schema["$ref"].as_str()?.rsplit('/').next()).collect();
    for (name, schema) in fields(&reference["$defs"]).filter(|(name, _)| !answers.contains(&name.as_str())) {
        let _ = write!(text, "\n### {name}\n\n{}\n\n{}", words(&schema["description"]), table(schema));
    }
    text
}

/// The entries of an object; none if it is another value.
fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A text in one line of a table.
fn words(text: &Value) -> String {
    text.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// The rows of a type: its fields, its values, or its kinds.
fn table(schema: &Value) -> String {
    let Some(variants) = schema["oneOf"].as_array() else {
        let row = |(name, field): (&String, &Value)| {
            format!("| `{name}` | {} | {} |\n", typed(schema, name, field), words(&field["description"]))
        };
        let rows: String = fields(&schema["properties"]).map(row).collect();
        let is_object = schema["type"] == "object";
        return if is_object { format!("{HEADER}{rows}") } else { format!("It is a {}.\n", kind(schema)) };
    };
    if variants.iter().all(|variant| variant["const"].is_string()) {
        let row =
            |variant: &Value| format!("| `{}` | {} |\n", words(&variant["const"]), words(&variant["description"]));
        return format!("| value | meaning |\n|---|---|\n{}", variants.iter().map(row).collect::<String>());
    }
    let row = |variant: &Value| {
        let tag = &variant["properties"]["kind"]["const"];
        let tag = tag.as_str().map_or_else(String::new, |tag| format!("`kind`: `{tag}`"));
        let others = variant.get("$ref").map(|_| format!("the fields of {}", kind(variant)));
        let own = fields(&variant["properties"]).filter(|(_, field)| field["const"].is_null());
        let own = own.map(|(name, field)| format!("`{name}`: {}", typed(variant, name, field)));
        let all: Vec<String> = Some(tag).filter(|tag| !tag.is_empty()).into_iter().chain(own).chain(others).collect();
        format!("| {} | {} |\n", all.join(", "), words(&variant["description"]))
    };
    format!("| fields | meaning |\n|---|---|\n{}", variants.iter().map(row).collect::<String>())
}

const HEADER: &str = "| field | type | meaning |\n|---|---|---|\n";

/// The type of a field.
fn typed(owner: &Value, name: &str, field: &Value) -> String {
    let required = owner["required"].as_array().is_some_and(|required| required.iter().any(|one| one == name));
    // A field that may be missing is never null.
    if required { kind(field) } else { format!("{}, *optional*", kind(field).trim_end_matches(" or null")) }
}

/// A type in words; a named type is a link.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(variants) = schema["anyOf"].as_array() {
        return variants.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let one = |word: &str| match word {
        "array" => format!("array of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", kind(&schema["additionalProperties"]))
        }
        word => word.to_owned(),
    };
    match &schema["type"] {
        Value::Array(words) => words.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or "),
        Value::String(word) => one(word),
        _ => "any".to_owned(),
    }
}

/// `UPDATE_EXPECT=1 cargo test -p mcp-leash reference` writes both files again.
#[test]
fn the_reference_equals_the_code() {
    let reference = reference();
    for (file, text) in [("commands.json", format!("{reference:#}\n")), ("commands.md", page(&reference))] {
        let path = format!("{}/../../docs/reference/{file}", env!("CARGO_MANIFEST_DIR"));
        expect_test::expect_file![path].assert_eq(&text);
    }
}

/// A field without a meaning is of no use, and a type without a row is a type that the page can't show.
#[test]
fn everything_has_a_meaning() {
    fn search(place: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, field) in fields(&schema["properties"]) {
            if field["const"].is_null() && words(&field["description"]).is_empty() {
                found.push(format!("{place}.{name}"));
            }
        }
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            if words(&variant["description"]).is_empty() {
                found.push(format!("{place}: {variant}"));
            }
            // The only field of `{"code": 1}` means what the variant means.
            if fields(&variant["properties"]).count() > 1 {
                search(place, variant, found);
            }
        }
    }
    let reference = reference();
    let mut found = Vec::new();
    for (name, schema) in fields(&reference["$defs"]) {
        search(name, schema, &mut found);
    }
    for (name, command) in fields(&reference["commands"]) {
        if command["exit_codes"].as_array().is_none_or(Vec::is_empty) {
            found.push(format!("leash {name} has no exit codes"));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// A command with the option `--json` is on the page.
#[test]
fn every_command_with_json_is_described() {
    let reference = reference();
    for command in Cli::command().get_subcommands() {
        let has_json = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
        assert_eq!(has_json, reference["commands"][command.get_name()]["json"].is_object(), "{}", command.get_name());
    }
}
