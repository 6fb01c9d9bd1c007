//! Parsers for values on the command line.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::time::Duration;

use leash_model::limits::LABEL_LENGTH;

use super::serve::IdleLimit;

/// A duration; the error shows the format.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    leash_model::duration::parse(text).map_err(|error| format!("{error}: write 500ms, 2s, 30m, 1h or 0"))
}

/// A duration, or `never`.
pub(super) fn duration_or_never(text: &str) -> Result<IdleLimit, String> {
    if text == "never" { Ok(IdleLimit(None)) } else { duration(text).map(|time| IdleLimit(Some(time))) }
}

/// A session's id.
pub(super) fn session(text: &str) -> Result<String, String> {
    leash_model::id::check_session(text).map(|()| text.to_owned())
}

/// A name for listings.
pub(super) fn short(text: &str) -> Result<String, String> {
    match text.len() {
        1..=LABEL_LENGTH => Ok(text.to_owned()),
        0 => Err("it is empty".to_owned()),
        _ => Err(format!("it is longer than {LABEL_LENGTH} bytes")),
    }
}

/// A label for listings.
pub(super) fn label(text: &str) -> Result<Pair, String> {
    let pair: Pair = text.parse()?;
    if text.len() > LABEL_LENGTH { Err(format!("it is longer than {LABEL_LENGTH} bytes")) } else { Ok(pair) }
}

/// An address to listen at. A name is resolved; IPv4 comes first, because most clients try it.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err("write an address and a port, as in 127.0.0.1:5327".to_owned());
    }
    let found = text.to_socket_addrs().map_err(|error| format!("it cannot be resolved: {error}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    best.copied().ok_or_else(|| "the name has no address".to_owned())
}

/// The command with which other programs start leash. leash recognises its own entries by this name.
pub(super) fn leash(text: &str) -> Result<String, String> {
    let path = std::path::Path::new(text);
    match (path.file_name(), path.components().count()) {
        (Some(name), 1) if name == "leash" => Ok(text.to_owned()),
        (Some(name), _) if name == "leash" && path.is_absolute() => Ok(text.to_owned()),
        _ => Err("write leash, or an absolute path that ends in /leash".to_owned()),
    }
}

/// `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl FromStr for Pair {
    type Err = String;
    fn from_str(text: &str) -> Result<Pair, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Pair { key: key.to_owned(), value: value.to_owned() }),
            _ => Err("write KEY=VALUE".to_owned()),
        }
    }
}

/// An owner as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerArg {
    Parent,
    Ancestor,
    Stdin,
    Tty,
    Pid(i32),
    None,
}

impl FromStr for OwnerArg {
    type Err = String;
    fn from_str(text: &str) -> Result<OwnerArg, String> {
        match text {
            "parent" => Ok(OwnerArg::Parent),
            "ancestor" => Ok(OwnerArg::Ancestor),
            "stdin" => Ok(OwnerArg::Stdin),
            "tty" => Ok(OwnerArg::Tty),
            "none" => Ok(OwnerArg::None),
            _ => match text.strip_prefix("pid:").map(str::parse::<i32>) {
                Some(Ok(pid)) if pid > 0 => Ok(OwnerArg::Pid(pid)),
                _ => Err("write parent, ancestor, stdin, tty, pid:N or none".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners() {
        assert_eq!("pid:42".parse(), Ok(OwnerArg::Pid(42)));
        assert_eq!("none".parse(), Ok(OwnerArg::None));
        for bad in ["", "pid:", "pid:0", "pid:-1", "pid:x", "42", "Parent"] {
            assert!(bad.parse::<OwnerArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn pairs() {
        assert_eq!("A=b=c".parse(), Ok(Pair { key: "A".to_owned(), value: "b=c".to_owned() }));
        assert_eq!("A=".parse(), Ok(Pair { key: "A".to_owned(), value: String::new() }));
        assert!("=b".parse::<Pair>().is_err());
        assert!("A".parse::<Pair>().is_err());
    }
}
