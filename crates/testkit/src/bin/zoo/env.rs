//! `zoo env`: prints the environment that a server was started with as JSON, to compare a direct start with one through
//! leash.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{Resource, getgid, getgroups, getpid, getrlimit, getuid};
use serde_json::{Value, json};

use crate::sys;
use crate::write::write_all;

pub(crate) fn print() -> io::Result<()> {
    let env: serde_json::Map<String, Value> =
        std::env::vars_os().map(|(name, value)| (text(name.as_bytes()), json!(text(value.as_bytes())))).collect();
    let argv: Vec<String> = std::env::args_os().map(|word| text(word.as_bytes())).collect();
    let groups: Vec<u32> = getgroups()?.iter().map(|group| group.as_raw()).collect();
    let leads = leads()?;
    let report = json!({
        "env": env,
        "cwd": text(std::env::current_dir()?.as_os_str().as_bytes()),
        "argv": argv,
        "fds": open_files()?,
        "closed": sys::closed_at_start(),
        "blocked": sys::blocked_signals(),
        "ignored": sys::ignored_signals(),
        "umask": umask(),
        "uid": getuid().as_raw(),
        "gid": getgid().as_raw(),
        "groups": groups,
        "nofile": getrlimit(Resource::Nofile).current,
        "nice": rustix::process::getpriority_process(None)?,
        "pid": getpid().as_raw_nonzero().get(),
        "leads_group": leads[0],
        "leads_session": leads[1],
    });
    write_all(&rustix::stdio::stdout(), format!("{report}\n").as_bytes())
}

/// True if this process leads its process group, and true if it leads its session. Read from /proc: an id from outside
/// the PID namespace is 0 there, which a `Pid` cannot hold.
fn leads() -> io::Result<[bool; 2]> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    let mut numbers = fields.split(' ').skip(2).map(|field| field.parse() == Ok(getpid().as_raw_nonzero().get()));
    Ok([numbers.next() == Some(true), numbers.next() == Some(true)])
}

/// Number, target and flags of each open descriptor.
fn open_files() -> io::Result<Value> {
    let listing = fs::File::open("/proc/self/fd")?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let link = fs::read_link(format!("/proc/self/fd/{fd}"));
        let Ok(link) = link else { continue };
        // This process opened the two descriptors that list the directory; it did not inherit them.
        if fd == listing.as_raw_fd() || link.as_os_str().as_bytes().ends_with(b"/fd") {
            continue;
        }
        found.push(json!({
            "fd": fd,
            "link": text(link.as_os_str().as_bytes()),
            "flags": flags(fd),
        }));
    }
    found.sort_by_key(|file| file["fd"].as_i64());
    Ok(Value::Array(found))
}

/// The flags of the open file description, in octal as `/proc` has them.
fn flags(fd: i32) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let line = info.lines().find(|line| line.starts_with("flags:"))?;
    Some(line["flags:".len()..].trim().to_owned())
}

fn umask() -> u32 {
    let old = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(old);
    old.bits()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
