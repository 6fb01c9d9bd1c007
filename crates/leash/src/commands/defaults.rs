//! Defaults for the options of `leash run`: from variables, else from the `run` object of leash.json. An option and its
//! default have one name: `--max-age`, LEASH_MAX_AGE, `maxAge`. (`--log` has LEASH_RUN_LOG.) A typed option beats a variable, a variable beats the file.

use std::error::Error as _;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args as _};
use leash_gateway::config::did_you_mean;
use leash_orphans::clients::Format;
use leash_orphans::clients::text::{Node, Value};

use crate::args::Run;
use crate::places;

/// Options that exclude each other: a default for one of them gives way to the other.
const RIVALS: [(&str, &str); 2] = [("contain", "require"), ("session", "session-env")];

/// A default that is in force.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunDefault {
    /// The option without its dashes.
    pub(super) option: String,
    /// Its values; more than one only if the option may be repeated, none for `--verbose`.
    pub(super) values: Vec<String>,
    pub(super) source: DefaultSource,
}

/// The place of a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DefaultSource {
    Variable(String),
    File { file: PathBuf, line: usize, key: String },
}

impl fmt::Display for DefaultSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefaultSource::Variable(name) => f.write_str(name),
            DefaultSource::File { file, line, key } => write!(f, "`{key}` in {}:{line}", file.display()),
        }
    }
}

/// A mistake in a default, and one thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DefaultMistake {
    pub(super) text: String,
    pub(super) hint: String,
}

impl DefaultMistake {
    fn at(source: &DefaultSource, text: impl fmt::Display) -> DefaultMistake {
        let hint = match source {
            DefaultSource::Variable(name) => {
                format!("correct or unset {name}; `leash doctor -v` shows the defaults in force")
            }
            DefaultSource::File { .. } => "correct the file; `leash doctor -v` shows the defaults in force".to_owned(),
        };
        DefaultMistake { text: format!("{source}: {text}"), hint }
    }
}

/// An option of `leash run` that can have a default.
struct RunOption {
    /// Its name in the parser.
    id: String,
    long: String,
    repeats: bool,
    is_flag: bool,
}

impl RunOption {
    fn all() -> Vec<RunOption> {
        let command = Run::augment_args(clap::Command::new("run"));
        let option = |arg: &clap::Arg| {
            let (repeats, is_flag) = (matches!(arg.get_action(), ArgAction::Append), !arg.get_action().takes_values());
            Some(RunOption { id: arg.get_id().to_string(), long: arg.get_long()?.to_owned(), repeats, is_flag })
        };
        command.get_arguments().filter_map(option).collect()
    }

    /// `maxAge`.
    fn key(&self) -> String {
        let mut words = self.long.split('-');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |key, word| key + &word[..1].to_uppercase() + &word[1..])
    }

    /// `LEASH_MAX_AGE`.
    fn variable(&self) -> String {
        // LEASH_LOG has always meant `-v`, for every command.
        if self.long == "log" {
            return "LEASH_RUN_LOG".to_owned();
        }
        format!("LEASH_{}", self.long.replace('-', "_").to_uppercase())
    }

    /// The default with these values; `None` if it changes nothing.
    fn default(&self, values: Vec<String>, source: DefaultSource) -> Result<Option<RunDefault>, DefaultMistake> {
        if values.is_empty() {
            return Ok(None);
        }
        if self.is_flag {
            return match values.first().map(String::as_str) {
                Some("1" | "true") => Ok(Some(RunDefault { option: self.long.clone(), values: Vec::new(), source })),
                Some("0" | "false") | None => Ok(None),
                Some(_) => Err(DefaultMistake::at(&source, "write true or false")),
            };
        }
        let default = RunDefault { option: self.long.clone(), values, source };
        let words = ["run".into()].into_iter().chain(default.words()).chain(["--".into(), "x".into()]);
        match Run::augment_args(clap::Command::new("run")).try_get_matches_from(words) {
            Ok(_) => Ok(Some(default)),
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                let why = error.source().map_or_else(|| first.to_owned(), ToString::to_string);
                Err(DefaultMistake::at(&default.source, why))
            }
        }
    }
}

impl RunDefault {
    /// The words of a command line that mean the same.
    fn words(&self) -> Vec<OsString> {
        if self.values.is_empty() {
            return vec![format!("--{}", self.option).into()];
        }
        self.values.iter().map(|value| format!("--{}={value}", self.option).into()).collect()
    }
}

/// The defaults that are in force.
pub(super) fn find() -> Result<Vec<RunDefault>, DefaultMistake> {
    let file = places::config_dir().map(|dir| dir.join("leash.json"));
    // Most users have none. That must not need a descriptor: the start says better what is wrong without any.
    let Some(file) = file.filter(|file| file.exists()) else { return combine(&|name| env::var_os(name), None) };
    match fs::read_to_string(&file) {
        Ok(text) => combine(&|name| env::var_os(name), Some((&file, &text))),
        Err(error) => {
            let hint = "leash.json has the defaults for `leash run`: make it readable, or move it away".to_owned();
            Err(DefaultMistake { text: format!("cannot read `{}`: {error}", file.display()), hint })
        }
    }
}

/// The defaults of variables and of a file with its text.
fn combine(
    variable: &dyn Fn(&str) -> Option<OsString>,
    file: Option<(&Path, &str)>,
) -> Result<Vec<RunDefault>, DefaultMistake> {
    let options = RunOption::all();
    let mut found = of_variables(&options, variable)?;
    check_rivals(&found)?;
    if let Some((file, text)) = file {
        let of_file = of_file(&options, file, text)?;
        check_rivals(&of_file)?;
        let is_set = |option: &str| found.iter().any(|default| default.option == option);
        let free =
            of_file.into_iter().filter(|default| !is_set(&default.option) && !rivals(&default.option).any(is_set));
        let mut free: Vec<RunDefault> = free.collect();
        found.append(&mut free);
    }
    Ok(found)
}

fn rivals(option: &str) -> impl Iterator<Item = &'static str> {
    let other = move |(one, two): (&'static str, &'static str)| match option {
        option if option == one => Some(two),
        option if option == two => Some(one),
        _ => None,
    };
    RIVALS.into_iter().filter_map(other)
}

fn check_rivals(defaults: &[RunDefault]) -> Result<(), DefaultMistake> {
    for default in defaults {
        let rival = rivals(&default.option).find_map(|rival| defaults.iter().find(|other| other.option == rival));
        if let Some(rival) = rival {
            return Err(DefaultMistake::at(&default.source, format!("it cannot be combined with {}", rival.source)));
        }
    }
    Ok(())
}

/// An empty variable counts as unset. The values of an option that may be repeated are separated by commas.
fn of_variables(
    options: &[RunOption],
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<RunDefault>, DefaultMistake> {
    let mut found = Vec::new();
    for option in options {
        let source = DefaultSource::Variable(option.variable());
        let Some(value) = variable(&option.variable()).filter(|value| !value.is_empty()) else { continue };
        let value = value.into_string().map_err(|_| DefaultMistake::at(&source, "it is not valid UTF-8"))?;
        let values = if option.repeats { value.split(',').map(str::to_owned).collect() } else { vec![value] };
        found.extend(option.default(values, source)?);
    }
    Ok(found)
}

fn of_file(options: &[RunOption], file: &Path, text: &str) -> Result<Vec<RunDefault>, DefaultMistake> {
    let hint = "correct the file; `leash run` reads the `run` object in it".to_owned();
    let root = Format::Json.parse(text).map_err(|error| DefaultMistake {
        text: format!("{}:{}: this is not JSON: {}", file.display(), error.line, error.what),
        hint: hint.clone(),
    })?;
    let Some(run) = root.get("run") else { return Ok(Vec::new()) };
    let line = |at: usize| text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1;
    let Some(members) = run.members() else {
        let text = format!("{}:{}: `run` must be an object", file.display(), line(run.span.start));
        return Err(DefaultMistake { text, hint });
    };
    let mut found: Vec<RunDefault> = Vec::new();
    for member in members {
        let source =
            DefaultSource::File { file: file.to_owned(), line: line(member.key_span.start), key: member.key.clone() };
        let Some(option) = options.iter().find(|option| option.key() == member.key) else {
            let keys: Vec<String> = options.iter().map(RunOption::key).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let hint = did_you_mean(&member.key, &keys).unwrap_or_else(|| format!("`run` has {}", keys.join(", ")));
            return Err(DefaultMistake { hint, ..DefaultMistake::at(&source, "it is no option of `leash run`") });
        };
        if found.iter().any(|default| default.option == option.long) {
            return Err(DefaultMistake::at(&source, "it is written twice"));
        }
        let values = values(option, &member.node, text).map_err(|why| DefaultMistake::at(&source, why))?;
        found.extend(option.default(values, source)?);
    }
    Ok(found)
}

/// The values of a key: one value; for an option that may be repeated also a list, or an object of KEY=VALUE pairs.
fn values(option: &RunOption, node: &Node, text: &str) -> Result<Vec<String>, &'static str> {
    let one = |node: &Node| match &node.value {
        Value::Text(value) => Some(value.clone()),
        Value::Bool(value) => Some(value.to_string()),
        // A number.
        Value::Other => Some(text[node.span.clone()].to_owned()),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    };
    let values = match &node.value {
        Value::Null => Some(Vec::new()),
        Value::List(nodes) if option.repeats => nodes.iter().map(one).collect(),
        Value::Map(members) if option.repeats => {
            members.iter().map(|member| Some(format!("{}={}", member.key, one(&member.node)?))).collect()
        }
        _ => one(node).map(|value| vec![value]),
    };
    values.ok_or(if option.repeats { "write a text or a list of texts" } else { "write a text" })
}

/// The command line with the defaults of the options that were not typed; `None` if there are none.
pub(super) fn complete(words: &[OsString], typed: &ArgMatches) -> Result<Option<Vec<OsString>>, DefaultMistake> {
    let defaults = find()?;
    let is_typed = |option: &RunOption| typed.value_source(&option.id) == Some(ValueSource::CommandLine);
    let typed: Vec<String> = RunOption::all().into_iter().filter(is_typed).map(|option| option.long).collect();
    let is_typed = |option: &str| typed.iter().any(|typed| typed == option);
    let applies = |default: &&RunDefault| !is_typed(&default.option) && !rivals(&default.option).any(is_typed);
    let added: Vec<OsString> = defaults.iter().filter(applies).flat_map(RunDefault::words).collect();
    // Before the word `run` there are only options of leash itself, and it is not a value of one.
    let run = words.iter().position(|word| word == "run").unwrap_or(0);
    let (before, after) = words.split_at(run + 1);
    Ok((!added.is_empty()).then(|| [before, &added, after].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined(variables: &[(&str, &str)], text: Option<&str>) -> Result<Vec<String>, String> {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        let found = combine(&value, text.map(|text| (Path::new("/leash.json"), text)));
        let shown =
            |default: RunDefault| format!("--{} {} <- {}", default.option, default.values.join(" "), default.source);
        let mistake = |mistake: DefaultMistake| format!("{} | {}", mistake.text, mistake.hint);
        found.map(|all| all.into_iter().map(shown).collect()).map_err(mistake)
    }

    #[test]
    fn every_option_has_a_variable_and_a_key() {
        let names: Vec<String> =
            RunOption::all().iter().map(|option| format!("{} {}", option.variable(), option.key())).collect();
        let expected = "LEASH_CONTAIN contain, LEASH_REQUIRE require, LEASH_GRACE grace, LEASH_OWNER owner, LEASH_MAX_AGE maxAge, \
            LEASH_SESSION session, LEASH_SESSION_ENV sessionEnv, LEASH_NAME name, LEASH_LABEL label, LEASH_SPARE spare, \
            LEASH_MEMORY memory, LEASH_PIDS pids, LEASH_CPU cpu, LEASH_SESSION_MEMORY sessionMemory, LEASH_SESSION_PIDS sessionPids, \
            LEASH_SESSION_CPU sessionCpu, LEASH_PRESSURE_STOP pressureStop, \
            LEASH_CWD cwd, LEASH_ENV env, LEASH_REPORT_FD reportFd, LEASH_RUN_LOG log, LEASH_VERBOSE verbose";
        assert_eq!(names.join(", "), expected);
    }

    #[test]
    fn a_variable_beats_the_file() {
        let file = r#"{
            // for all servers
            "run": {"grace": "5s", "maxAge": "1h", "spare": ["adb", "gpg-agent"],
                "label": {"team": "red"}, "pids": 500, "verbose": true, "require": "leaf"},
            "mcpServers": {},
        }"#;
        let variables =
            [("LEASH_GRACE", "0"), ("LEASH_OWNER", "stdin,tty"), ("LEASH_CONTAIN", "reaper"), ("LEASH_PIDS", "")];
        assert_eq!(
            combined(&variables, Some(file)).unwrap(),
            [
                "--contain reaper <- LEASH_CONTAIN",
                "--grace 0 <- LEASH_GRACE",
                "--owner stdin tty <- LEASH_OWNER",
                "--max-age 1h <- `maxAge` in /leash.json:3",
                "--spare adb gpg-agent <- `spare` in /leash.json:3",
                "--label team=red <- `label` in /leash.json:4",
                "--pids 500 <- `pids` in /leash.json:4",
                "--verbose  <- `verbose` in /leash.json:4",
            ]
        );
        assert_eq!(combined(&[], None).unwrap(), [""; 0]);
        assert_eq!(combined(&[("LEASH_VERBOSE", "0")], Some("{}")).unwrap(), [""; 0]);
        assert_eq!(combined(&[], Some(r#"{"run": {"verbose": false, "spare": [], "name": null}}"#)).unwrap(), [""; 0]);
    }

    #[test]
    fn mistakes_name_the_variable_or_the_key() {
        let check = |variables: &[(&str, &str)], text: Option<&str>, expected: &str| {
            let mistake = combined(variables, text).unwrap_err();
            assert!(mistake.starts_with(expected), "{mistake}");
        };
        check(&[("LEASH_GRACE", "2")], None, "LEASH_GRACE: `2` has no unit: write 500ms");
        check(&[("LEASH_PIDS", "0")], None, "LEASH_PIDS: 0 is not in 1..");
        check(&[("LEASH_LABEL", "a=1,b")], None, "LEASH_LABEL: write KEY=VALUE | correct or unset LEASH_LABEL");
        check(&[("LEASH_VERBOSE", "yes")], None, "LEASH_VERBOSE: write true or false");
        let both = [("LEASH_CONTAIN", "leaf"), ("LEASH_REQUIRE", "leaf")];
        check(&both, None, "LEASH_CONTAIN: it cannot be combined with LEASH_REQUIRE");
        check(&[], Some("{\n\"run\": {\"grace\": \"x\"}}"), "`grace` in /leash.json:2: `x` ");
        check(
            &[],
            Some(r#"{"run": {"grase": "1s"}}"#),
            "`grase` in /leash.json:1: it is no option of `leash run` | did you mean `grace`?",
        );
        check(
            &[],
            Some(r#"{"run": {"max_age": "1s"}}"#),
            "`max_age` in /leash.json:1: it is no option of `leash run` | did you mean `maxAge`?",
        );
        check(
            &[],
            Some(r#"{"run": {"colour": "1s"}}"#),
            "`colour` in /leash.json:1: it is no option of `leash run` | `run` has contain, ",
        );
        check(&[], Some(r#"{"run": {"grace": ["1s"]}}"#), "`grace` in /leash.json:1: write a text");
        check(&[], Some(r#"{"run": {"grace": "1s", "grace": "2s"}}"#), "`grace` in /leash.json:1: it is written twice");
        check(&[], Some(r#"{"run": 1}"#), "/leash.json:1: `run` must be an object");
        check(&[], Some("{"), "/leash.json:1: this is not JSON: ");
    }
}
