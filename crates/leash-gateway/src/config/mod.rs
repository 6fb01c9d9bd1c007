//! The configuration of a gateway: reads text into [`Settings`], or returns every mistake at once with its position and
//! a hint.
//!
//! The format is that of every MCP client, `{"mcpServers": {NAME: {...}}}`, plus a `leash` object per server and at top
//! level; docs/reference/config.md names every key. [`read`] reads neither a file nor the environment: the caller
//! passes both in.

use std::ffi::OsStr;

mod budget;
mod commands;
mod expand;
mod gateway;
mod json;
mod jsonc;
mod keys;
mod mistake;
mod pointer;
mod request;
mod server;
mod settings;
mod single;
mod table;
mod terms;
#[cfg(test)]
mod tests;
mod values;

pub use budget::read_budget;
pub use commands::check_commands;
pub(crate) use commands::is_startable;
pub use keys::did_you_mean;
pub use mistake::{ConfigMistake, ConfigMistakes};
pub(crate) use request::{
    LEASE, LeaseRequest, NEW_SESSION, RequestError, RequestMistake, RequestedOwner, SessionRequest, read_request,
};
pub use settings::{
    FilePosition, KeepAlive, LocalUsers, OwnerPolicy, PORT, Secret, ServerCommand, ServerSettings, ServerTarget,
    SessionPolicy, Settings,
};
pub use single::{is_server_name, single};
pub(crate) use table::Table;

/// Reads a configuration. `file` is the file name in mistakes, `variable` looks up the environment.
///
/// ```
/// let text = r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "${PACKAGE}"], "leash": {"idle": "10m"}}}}"#;
/// let settings = leash_gateway::config::read(text, "leash.json", &|name| (name == "PACKAGE").then(|| "server".to_owned()));
/// assert!(settings.is_ok_and(|settings| settings.servers.contains_key("files")));
///
/// let mistakes = leash_gateway::config::read(r#"{"mcpServers": {}}"#, "leash.json", &|_| None).unwrap_err();
/// assert_eq!(mistakes.all()[0].to_string(), "leash.json:1:2: there are no servers");
/// ```
pub fn read(text: &str, file: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Settings, ConfigMistakes> {
    let (settings, found) = read_all(text, file, variable, &ReadContext { strict: true, ..ReadContext::default() });
    ConfigMistakes::none(found)?;
    Ok(settings)
}

/// Facts that do not come from the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadContext<'a> {
    /// The PATH in which programs are searched.
    pub path: Option<&'a OsStr>,
    /// True if the address or the token comes from elsewhere. Then the reader does not check whether the address needs
    /// a token; the caller does, with [`Settings::is_exposed`], when both are known.
    pub overridden: bool,
    /// True if every mistake refuses the whole file. False: a server whose program is missing is
    /// [unavailable](Settings::unavailable), and the others are served.
    pub strict: bool,
    /// True if the file is a client's own. Then any mistake in a server makes only this server unavailable, unless
    /// `strict` is set.
    pub of_client: bool,
}

/// The same, and also searches for every program as [`check_commands`] does: returns all mistakes at once.
pub fn read_here(
    text: &str,
    file: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    here: ReadContext<'_>,
) -> Result<Settings, ConfigMistakes> {
    let (mut settings, mut found) = read_all(text, file, variable, &here);
    let missing = commands::missing(&settings, here.path);
    let usable = settings.servers.len() > missing.len();
    if here.strict || !usable || !found.is_empty() {
        found.extend(missing.into_iter().map(|(_, mistake)| mistake));
        found.extend(std::mem::take(&mut settings.unavailable).into_values().flatten());
        ConfigMistakes::none(found)?;
        return Ok(settings);
    }
    settings.unavailable.extend(missing.into_iter().map(|(name, mistake)| (name, vec![mistake])));
    Ok(settings)
}

/// The settings as far as they could be read, and all mistakes that refuse the file.
fn read_all(
    text: &str,
    file: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    here: &ReadContext<'_>,
) -> (Settings, Vec<ConfigMistake>) {
    // Editors on Windows write a byte order mark at the start.
    let text = jsonc::strict(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut reader = json::ConfigReader {
        overridden: here.overridden,
        tolerant: here.of_client && !here.strict,
        ..json::ConfigReader::new(&text, file, variable)
    };
    let settings = reader.file();
    (settings, reader.found)
}
