//! A client of a gateway, as listings and receipts show it.

use std::{fmt, net::SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{escape, limits};

/// A client of a gateway. Its name and version are its own words: they are shown to people, and prove nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Client"))]
pub struct GatewayClient {
    /// The name that it gave in `initialize`: safe to print, and of at most 80 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version that it gave, of the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its process, if it is on this machine and was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The other end of its first connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<SocketAddr>,
}

impl GatewayClient {
    /// Sets the name and the version that the client gives itself.
    pub fn introduce(&mut self, name: Option<&str>, version: Option<&str>) {
        let said = |text: &str| escape::name(text.trim(), limits::SAID_NAME);
        self.name = name.map(said).filter(|name| !name.is_empty());
        self.version = version.map(said).filter(|version| !version.is_empty());
    }

    /// Its name for a sentence.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("client")
    }

    /// Everything that is known, for `-v`.
    pub fn details(&self) -> String {
        let version = self.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        let pid = self.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
        let address = self.address.map_or_else(String::new, |address| format!(", {address}"));
        format!("{}{version}{pid}{address}", self.name())
    }
}

/// `claude (26910)`; with the address if the process is not known.
impl fmt::Display for GatewayClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.address) {
            (Some(pid), _) => write!(f, "{} ({pid})", self.name()),
            (None, Some(address)) => write!(f, "{} ({address})", self.name()),
            (None, None) => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_shown_by_its_name_and_place() {
        let mut client =
            GatewayClient { pid: Some(26910), address: "127.0.0.1:9".parse().ok(), ..GatewayClient::default() };
        assert_eq!(client.to_string(), "client (26910)");
        client.introduce(Some("claude"), Some("2.1"));
        assert_eq!(
            (client.to_string(), client.details()),
            ("claude (26910)".to_owned(), "claude 2.1, pid 26910, 127.0.0.1:9".to_owned())
        );
        client.pid = None;
        assert_eq!(client.to_string(), "claude (127.0.0.1:9)");
    }

    #[test]
    fn words_of_a_client_are_bounded_and_safe() {
        let mut client = GatewayClient::default();
        client.introduce(Some(&"\u{1b}[2J\n".repeat(1000)), Some("  "));
        let name = client.name.as_deref().expect("a name");
        assert!(name.len() <= limits::SAID_NAME && name.starts_with(r"\u{1b}[2J\n"), "{name}");
        assert_eq!(client.version, None);
    }
}
