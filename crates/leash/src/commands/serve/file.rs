//! The configuration file of a gateway: its own format, or that of an MCP client.

use std::path::{Path, PathBuf};
use std::{env, fs};

use leash_gateway::config::{self, ConfigMistake, ConfigMistakes, ReadContext, Settings};
use leash_orphans::clients::translate::{Translation, dollar, translate};
use leash_orphans::clients::{ConfigFile, recognise};

use super::{ServeRefusal, listen};
use crate::args::Serve;
use crate::output::message::counted;
use crate::places;

/// The file to read.
pub(super) fn find(given: Option<&Path>) -> Result<PathBuf, ServeRefusal> {
    let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    if let Some(file) = given {
        return Ok(absolute(file));
    }
    let own = places::config_dir().map(|dir| dir.join("leash.json"));
    let candidates = [Some(PathBuf::from(".mcp.json")), own];
    let found = candidates.iter().flatten().find(|file| file.exists()).map(|file| absolute(file));
    found.ok_or_else(|| {
        let text = "there is no configuration: neither ./.mcp.json nor $XDG_CONFIG_HOME/leash/leash.json";
        let hint = "name a file with --config, or one server: leash serve -- COMMAND";
        ServeRefusal::Text(text.to_owned(), hint.to_owned())
    })
}

/// The settings in a file, and notes for the user.
pub(super) fn read(args: &Serve, path: &Path) -> Result<(Settings, Vec<String>), ServeRefusal> {
    let text = fs::read_to_string(path).map_err(|error| {
        let text = format!("cannot read `{}`: {error}", path.display());
        ServeRefusal::Text(text, "name another file with --config".to_owned())
    })?;
    let search = env::var_os("PATH");
    let here = ReadContext {
        path: search.as_deref(),
        overridden: listen(args).is_some() || args.token_env.is_some(),
        strict: args.strict || args.check,
        of_client: false,
    };
    let Some((client, place)) = recognise(path, &text) else {
        let settings = config::read_here(&text, &path.display().to_string(), &|name| env::var(name).ok(), here)?;
        return Ok((settings, vec![format!("configuration: {}", path.display())]));
    };
    let file = ConfigFile { client, place, path: path.to_owned(), text };
    let mut notes = vec![format!("configuration: {} ({})", path.display(), client.name)];
    let settings = read_of_client(&file, here, &mut notes)?;
    Ok((settings, notes))
}

/// The settings in a client's file.
fn read_of_client(
    file: &ConfigFile,
    here: ReadContext<'_>,
    notes: &mut Vec<String>,
) -> Result<Settings, ConfigMistakes> {
    let name = file.path.display().to_string();
    let directory = env::current_dir().ok();
    let made = translate(file, directory.as_deref(), &config::is_server_name).map_err(|error| {
        let hint = Some("correct the file, or name another one with --config".to_owned());
        ConfigMistake { file: name.clone(), line: error.line, column: 1, what: error.what, hint }
    })?;
    notes.extend(made.renamed.iter().map(|(old, new)| format!("`{old}` is served as `{new}`")));
    if made.elsewhere > 0 {
        let servers = counted(made.elsewhere, "server");
        notes.push(format!(
            "{servers} of other projects left out: start leash in a project's directory to serve its own"
        ));
    }
    let variable = |name: &str| dollar(name).or_else(|| env::var(name).ok());
    let here = ReadContext { of_client: true, ..here };
    let (mut settings, mut found) = match config::read_here(&made.text, &name, &variable, here) {
        Ok(settings) => (settings, Vec::new()),
        Err(mistakes) => {
            (Settings::default(), mistakes.into_iter().map(|mistake| in_file(mistake, &made, file)).collect())
        }
    };
    for mistakes in settings.unavailable.values_mut() {
        *mistakes = std::mem::take(mistakes).into_iter().map(|mistake| in_file(mistake, &made, file)).collect();
    }
    for entry in &made.unknown {
        let mistake = at(&name, &file.text, entry.at, format!("server `{}`: {}", entry.name, entry.why));
        match here.strict || !found.is_empty() {
            true => found.push(mistake),
            false => _ = settings.unavailable.insert(entry.name.clone(), vec![mistake]),
        }
    }
    ConfigMistakes::none(found)?;
    Ok(settings)
}

/// A mistake in the translated text, at its place in the file.
fn in_file(mistake: ConfigMistake, made: &Translation, file: &ConfigFile) -> ConfigMistake {
    // The translated text has one line.
    let offset = made.text.char_indices().nth(mistake.column.saturating_sub(1)).map_or(0, |(offset, _)| offset);
    let place = at(&mistake.file, &file.text, made.source(offset), String::new());
    ConfigMistake { line: place.line, column: place.column, ..mistake }
}

/// A mistake at this offset of a text.
fn at(file: &str, text: &str, offset: usize, what: String) -> ConfigMistake {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    ConfigMistake { file: file.to_owned(), line, column, what, hint: None }
}
