//! docs/reference/commands.json says what commands print and return: every command prints exactly the documented fields,
//! and returns only documented exit codes.

mod answers;
mod exit_codes;
mod schema;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;
use testkit::leash::Answer;
use testkit::scene::Scene;

/// The reference, and what was checked against it.
struct Reference {
    document: Value,
    /// The forms with `--json` that were played.
    played: RefCell<BTreeSet<String>>,
}

impl Reference {
    fn read() -> Reference {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.json");
        let text = std::fs::read_to_string(path).expect("the reference can be read");
        Reference { document: serde_json::from_str(&text).expect("it is JSON"), played: RefCell::default() }
    }

    /// Every form with `--json`, and its schema.
    fn forms(&self) -> impl Iterator<Item = (&String, &Value)> {
        let commands = self.document["commands"].as_object().expect("an object").values();
        commands.flat_map(|command| command["json"].as_object().into_iter().flatten())
    }

    /// Checks that an exit code of a command is documented.
    fn check_code(&self, command: &str, answer: &Answer) {
        let codes = self.document["commands"][command]["exit_codes"].as_array().expect("an array");
        let is_listed = |code: &Value| match code["code"].as_str() {
            Some("128 + n") => answer.code > 128,
            Some("other") => true,
            code => code == Some(&answer.code.to_string()),
        };
        assert!(
            codes.iter().any(is_listed),
            "`leash {command}` returned an exit code that is not documented: {answer:?}"
        );
    }

    /// Runs a command with `--json`, and checks what it prints against its documented form.
    fn play<W: AsRef<OsStr>>(&self, scene: &Scene, form: &str, words: impl IntoIterator<Item = W>) -> Value {
        let answer = scene.answer(words);
        self.check_code(form.split(' ').next().unwrap_or_default(), &answer);
        self.check(form, answer.json())
    }

    /// Checks what a command printed against its documented form.
    fn check(&self, form: &str, value: Value) -> Value {
        let form = format!("leash {form} --json");
        let (_, schema) = self.forms().find(|(name, _)| **name == form).unwrap_or_else(|| panic!("no form `{form}`"));
        let mistakes = schema::mistakes(&value, schema, &self.document);
        assert!(mistakes.is_empty(), "`{form}` differs from the reference:\n{}\n{value:#}", mistakes.join("\n"));
        assert_eq!(value["version"], 1, "{form}");
        self.played.borrow_mut().insert(form);
        value
    }
}
