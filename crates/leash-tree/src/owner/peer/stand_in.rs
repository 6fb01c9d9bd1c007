//! Programs that connect for another client. Their end does not mean the end of the client, so leash never takes them
//! as owners.

/// Tunnels. The process that connects for a forwarded port is `sshd` (`sshd-session` since OpenSSH 9.8) or `ssh`.
const TUNNELS: &[&str] = &[
    "ssh",
    "sshd",
    "sshd-session",
    "cloudflared",
    "ngrok",
    "tailscaled",
    "wireproxy",
    "frpc",
    "frps",
    "chisel",
    "gost",
    "bore",
    "kubectl",
    "tor",
    "stunnel",
    "stunnel4",
];

/// Programs that publish the ports of containers and virtual machines.
const PUBLISHERS: &[&str] = &[
    "docker-proxy",
    "rootlesskit",
    "rootlesskit-docker-proxy",
    "rootlessport",
    "slirp4netns",
    "pasta",
    "pasta.avx2",
    "passt",
    "passt.avx2",
    "gvproxy",
    "vpnkit",
    "com.docker.backend",
    "qemu-system-x86_64",
    "qemu-system-aarch64",
];

/// Reverse proxies, and proxies that inspect traffic.
const PROXIES: &[&str] = &[
    "nginx",
    "haproxy",
    "envoy",
    "traefik",
    "caddy",
    "apache2",
    "httpd",
    "lighttpd",
    "varnishd",
    "squid",
    "linkerd2-proxy",
    "mitmproxy",
    "mitmdump",
    "mitmweb",
];

/// Programs that relay a connection.
const RELAYS: &[&str] = &["socat", "rinetd", "redir", "xinetd", "systemd-socket-proxyd"];

/// Forwarders: many clients elsewhere connect through one of them, and it lives on when one of them is gone. The lists
/// need not be complete: behind a forwarder that is missing here, sessions last as long as the forwarder.
const FORWARDERS: [&[&str]; 4] = [TUNNELS, PUBLISHERS, PROXIES, RELAYS];

/// Messengers: one process for one request; the client starts another for the next. A person who tries a gateway with
/// `curl` must not lose the session between two commands.
const MESSENGERS: &[&str] = &["curl", "wget", "wget2", "http", "https", "xh", "xhs", "nc", "ncat", "netcat"];

/// The kernel keeps this many bytes of a program's name.
const COMM: usize = 15;

/// The role of a process that connects for another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// It passes on the requests of other clients: ssh, docker-proxy, nginx...
    Forwarder,
    /// It sends one request and exits: curl, wget...
    Messenger,
}

impl StandIn {
    /// Decides by the short name (`comm`) and, if known, the base name of the executable. It does not read the
    /// arguments: reading them may wait for a process that hangs in its memory.
    pub fn of(comm: &str, exe: Option<&str>) -> Option<StandIn> {
        let is = |list: &[&str]| list.iter().any(|name| exe == Some(*name) || is_comm(comm, name));
        if FORWARDERS.into_iter().any(is) {
            Some(StandIn::Forwarder)
        } else if is(MESSENGERS) {
            Some(StandIn::Messenger)
        } else {
            None
        }
    }
}

/// True if `comm` is `name` as the kernel keeps it: its first 15 bytes.
fn is_comm(comm: &str, name: &str) -> bool {
    comm == name || (name.len() > COMM && name.get(..COMM) == Some(comm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(comm: &str, exe: Option<&str>, expected: Option<StandIn>) {
        assert_eq!(StandIn::of(comm, exe), expected, "{comm} {exe:?}");
    }

    #[test]
    fn forwarders_by_either_name() {
        check("sshd", None, Some(StandIn::Forwarder));
        check("nginx", Some("nginx"), Some(StandIn::Forwarder));
        // A name that the kernel cut off, and one that the process changed.
        check("systemd-socket-", None, Some(StandIn::Forwarder));
        check("worker-3", Some("envoy"), Some(StandIn::Forwarder));
    }

    #[test]
    fn messengers() {
        check("curl", Some("curl"), Some(StandIn::Messenger));
        // HTTPie is a script: its executable is Python.
        check("http", Some("python3.13"), Some(StandIn::Messenger));
    }

    #[test]
    fn clients_are_none_of_these() {
        check("node", Some("node"), None);
        check("claude", Some("node"), None);
        check("python3", Some("python3.13"), None);
        check("leash", Some("leash"), None);
        check("systemd-socket", None, None);
        check("", None, None);
    }
}
