//! `zoo client`: opens TCP connections and keeps them open. It prints `pids LEADER CHILD...` when all are connected. At
//! `close` on its stdin the leader closes its connections and prints `closed`. All processes exit at the end of their
//! input.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::sys::{Fork, bind_to_device, exit_now, fork};
use crate::write::write_all;
use crate::{number, value, wrong};

/// The parsed command line.
pub(crate) struct Order {
    to: SocketAddr,
    connections: usize,
    /// The number of children that inherit the connections.
    fork: usize,
    name: Option<OsString>,
    device: Option<OsString>,
}

impl Order {
    pub(crate) fn parse(mut words: VecDeque<OsString>) -> io::Result<Self> {
        let mut order = Self { to: number(words.pop_front())?, connections: 1, fork: 0, name: None, device: None };
        while let Some(word) = words.pop_front() {
            match word.to_str() {
                Some("--connections") => order.connections = number(words.pop_front())?,
                Some("--fork") => order.fork = number(words.pop_front())?,
                Some("--name") => order.name = Some(value(&mut words)?),
                Some("--device") => order.device = Some(value(&mut words)?),
                _ => return Err(wrong("no such option of client")),
            }
        }
        Ok(order)
    }
}

pub(crate) fn run(order: &Order) -> io::Result<()> {
    if let Some(name) = &order.name {
        let name = std::ffi::CString::new(name.as_encoded_bytes())?;
        rustix::thread::set_name(&name)?;
    }
    let connections = (0..order.connections).map(|_| open(order)).collect::<io::Result<Vec<OwnedFd>>>()?;
    let mut pids = format!("pids {}", std::process::id());
    for _ in 0..order.fork {
        match fork()? {
            Fork::Child => hold(),
            Fork::Parent(child) => pids.push_str(&format!(" {}", child.as_raw_nonzero())),
        }
    }
    say(&pids)?;
    obey(connections)
}

fn open(order: &Order) -> io::Result<OwnedFd> {
    let family = if order.to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if let Some(device) = &order.device {
        bind_to_device(&socket, &device.to_string_lossy())?;
    }
    connect(&socket, &order.to)?;
    Ok(socket)
}

/// The main function of a child: it keeps the inherited connections and only waits for the end of input, which the
/// leader reads.
fn hold() -> ! {
    let stdin = rustix::stdio::stdin();
    loop {
        let mut fds = [PollFd::from_borrowed_fd(stdin, PollFlags::empty())];
        if !matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {
            exit_now(0);
        }
    }
}

fn obey(mut connections: Vec<OwnedFd>) -> io::Result<()> {
    for order in io::stdin().lock().lines() {
        match order?.as_str() {
            "close" => {
                connections.clear();
                say("closed")?;
            }
            _ => return Err(wrong("no such order")),
        }
    }
    Ok(())
}

fn say(line: &str) -> io::Result<()> {
    write_all(&rustix::stdio::stdout(), format!("{line}\n").as_bytes())
}
