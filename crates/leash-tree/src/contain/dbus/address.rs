//! The addresses at which the user manager may listen.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The address of the user bus, from the environment of the program that asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserBus {
    /// `$DBUS_SESSION_BUS_ADDRESS`
    pub(crate) address: Option<String>,
    /// `$XDG_RUNTIME_DIR`
    pub(crate) runtime_dir: Option<PathBuf>,
}

/// One address to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusAddress {
    /// The socket.
    pub(crate) socket: BusSocket,
    /// The kind of process that listens there.
    pub(crate) listener: Listener,
}

/// A unix socket, in the file system or in the abstract name space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BusSocket {
    /// A socket file.
    Path(PathBuf),
    /// A name without a file. It vanishes with the process that listens.
    Abstract(Vec<u8>),
}

/// The kind of process that listens on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// A message bus. The manager is one of many services on it and is called by its name.
    Bus,
    /// The manager itself: there is no bus, so no `Hello` and no destination.
    Manager,
}

impl UserBus {
    /// The addresses to try, best first: those of the session bus, the bus in the runtime directory, the manager's
    /// private socket.
    ///
    /// The runtime directory is tried even if a session bus is named: that bus may be gone (a terminal multiplexer
    /// keeps old environments) or may have no manager (`dbus-run-session`).
    pub(crate) fn candidates(&self) -> Vec<BusAddress> {
        let runtime_dir = self.runtime_dir.as_deref().filter(|dir| dir.is_absolute());
        let list = self.address.as_deref().unwrap_or_default().as_bytes();
        let mut candidates = Vec::new();
        for entry in list.split(|byte| *byte == b';') {
            candidates.extend(parse_entry(entry, runtime_dir).map(bus_at));
        }
        if let Some(dir) = runtime_dir {
            let bus = bus_at(BusSocket::Path(dir.join("bus")));
            if !candidates.contains(&bus) {
                candidates.push(bus);
            }
            let private = BusSocket::Path(dir.join("systemd/private"));
            candidates.push(BusAddress { socket: private, listener: Listener::Manager });
        }
        candidates
    }
}

fn bus_at(socket: BusSocket) -> BusAddress {
    BusAddress { socket, listener: Listener::Bus }
}

/// Reads one `transport:key=value,key=value`. Transports that are not unix sockets (`tcp`, `unixexec`, `autolaunch`)
/// never lead to a user manager of this machine. They are skipped, as malformed entries are.
fn parse_entry(entry: &[u8], runtime_dir: Option<&Path>) -> Option<BusSocket> {
    let options = entry.strip_prefix(b"unix:")?;
    options.split(|byte| *byte == b',').find_map(|option| {
        let separator = option.iter().position(|byte| *byte == b'=')?;
        let value = unescape(&option[separator + 1..])?;
        match &option[..separator] {
            b"path" => Some(BusSocket::Path(OsString::from_vec(value).into())),
            b"abstract" => Some(BusSocket::Abstract(value)),
            b"runtime" if value == b"yes" => Some(BusSocket::Path(runtime_dir?.join("bus"))),
            // `guid` names the expected bus, but the owner of the socket is a better check.
            _ => None,
        }
    })
}

/// Decodes `%2d` and the like; `None` if the two digits are missing.
fn unescape(value: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value.iter();
    while let Some(byte) = rest.next() {
        if *byte == b'%' {
            plain.push(hex_digit(*rest.next()?)? << 4 | hex_digit(*rest.next()?)?);
        } else {
            plain.push(*byte);
        }
    }
    Some(plain)
}

fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            BusSocket::Path(path) => write!(f, "{}", path.display()),
            BusSocket::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: Option<&str>, runtime_dir: Option<&str>, expected: &[&str]) {
        let bus = UserBus { address: address.map(str::to_owned), runtime_dir: runtime_dir.map(PathBuf::from) };
        let found: Vec<String> = bus.candidates().iter().map(BusAddress::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn no_candidates_without_an_environment() {
        check(None, None, &[]);
        check(Some(""), None, &[]);
        check(None, Some("relative"), &[]);
    }

    #[test]
    fn the_runtime_directory_is_enough() {
        check(None, Some("/run/user/7"), &["/run/user/7/bus", "/run/user/7/systemd/private"]);
    }

    #[test]
    fn the_usual_address_is_tried_once() {
        let expected = ["/run/user/7/bus", "/run/user/7/systemd/private"];
        check(Some("unix:path=/run/user/7/bus"), Some("/run/user/7"), &expected);
        check(Some("unix:runtime=yes"), Some("/run/user/7"), &expected);
    }

    #[test]
    fn a_list_is_tried_in_order() {
        let list = "tcp:host=h,port=1;unix:guid=00,path=/a%20b%2fc;unix:abstract=/tmp/dbus-x,guid=00;autolaunch:";
        check(Some(list), None, &["/a b/c", "@/tmp/dbus-x"]);
    }

    #[test]
    fn malformed_addresses_are_skipped() {
        check(Some("unix:path=/a%2;unix:path=%zz;unix:path;unix:;;:,;=unix:path=/x"), None, &[]);
        check(Some("unix:tmpdir=/tmp;unix:path=/ok"), None, &["/ok"]);
    }
}
