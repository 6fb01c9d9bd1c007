//! Programs that connect in somebody else's name. Their life says nothing of the client's, so they are nobody's owner.

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

/// What publishes the ports of containers and virtual machines.
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

/// Reverse proxies, and proxies for looking at traffic.
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

/// Plain plumbing.
const PLUMBING: &[&str] = &["socat", "rinetd", "redir", "xinetd", "systemd-socket-proxyd"];

/// Forwarders: clients somewhere else speak through them, many through one, and it lives on when one of them is gone.
/// The lists need not be complete: behind a forwarder that is missing here, sessions last as long as it does.
const FORWARDERS: [&[&str]; 4] = [TUNNELS, PUBLISHERS, PROXIES, PLUMBING];

/// Messengers: one process for one request, started again for the next by whoever the client is. A person who tries a
/// gateway with `curl` must not lose the session between two lines.
const MESSENGERS: &[&str] = &["curl", "wget", "wget2", "http", "https", "xh", "xhs", "nc", "ncat", "netcat"];

/// The kernel keeps this much of a program's name.
const COMM: usize = 15;

/// What a process is to the client that it connects for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// It passes on what others say: ssh, docker-proxy, nginx...
    Forwarder,
    /// It carries one request and is gone: curl, wget...
    Messenger,
}

impl StandIn {
    /// By the short name (`comm`) and the base name of the executable, where it is known. The arguments are not looked
    /// at: reading them may wait for a process that hangs in its memory.
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

/// Whether `comm` is `name` as the kernel keeps it: its first 15 bytes.
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
