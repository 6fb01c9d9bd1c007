//! The configuration of a gateway: text in, [`Settings`] out, or every mistake at once with its place and a hint.
//!
//! The shape is the one every MCP client has, `{"mcpServers": {NAME: {...}}}`, plus a `leash` object per server and at top level;
//! docs/reference/config.md names every key. Nothing in [`read`] reads a file or the environment: the caller passes both in.

use std::ffi::OsStr;

mod commands;
mod expand;
mod gateway;
mod json;
mod keys;
mod mistake;
mod request;
mod server;
mod settings;
mod single;
mod terms;
#[cfg(test)]
mod tests;
mod values;

pub use commands::check_commands;
pub use mistake::{Mistake, Mistakes};
pub(crate) use request::{Fault, Misread, OwnerWish, SessionRequest, lease_request, session_request};
pub use settings::{
    CommandLine, KeepAlive, LocalUsers, Origin, OwnerPolicy, PORT, Policy, Secret, Server, Settings, Target,
};
pub use single::single;

/// Reads a configuration. `file` is the name that mistakes are told with, `variable` looks up the environment.
///
/// ```
/// let text = r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "${PACKAGE}"], "leash": {"idle": "10m"}}}}"#;
/// let settings = leash_gateway::config::read(text, "leash.json", &|name| (name == "PACKAGE").then(|| "server".to_owned()));
/// assert!(settings.is_ok_and(|settings| settings.servers.contains_key("files")));
///
/// let mistakes = leash_gateway::config::read(r#"{"mcpServers": {}}"#, "leash.json", &|_| None).unwrap_err();
/// assert_eq!(mistakes.all()[0].to_string(), "leash.json:1:2: there are no servers");
/// ```
pub fn read(text: &str, file: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Settings, Mistakes> {
    let (settings, found) = look(text, file, variable, false);
    Mistakes::none(found)?;
    Ok(settings)
}

/// What is known besides the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here<'a> {
    /// Where programs are looked for.
    pub path: Option<&'a OsStr>,
    /// The address or the token comes from elsewhere: whether the address may be listened on without a token is not for the file
    /// to say, but for [`Settings::is_exposed`] when all is known.
    pub overridden: bool,
}

/// The same, and looks for every program as [`check_commands`] does: all that is wrong is told at once.
pub fn read_here(
    text: &str,
    file: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    here: Here<'_>,
) -> Result<Settings, Mistakes> {
    let (settings, mut found) = look(text, file, variable, here.overridden);
    found.extend(check_commands(&settings, here.path));
    Mistakes::none(found)?;
    Ok(settings)
}

/// What could be understood, and what is wrong.
fn look(
    text: &str,
    file: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    overridden: bool,
) -> (Settings, Vec<Mistake>) {
    // Editors of Windows put a byte order mark in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = json::Reader { text, file, variable, overridden, expands: true, found: Vec::new() };
    let settings = reader.file();
    (settings, reader.found)
}
