//! `zoo host`: starts a server as a real MCP host does, and then follows commands, one per line: `pid`, `send TEXT`,
//! `close-stdin`, `exit`. It prints `pid N`, `out TEXT` for each line of the server, `closed` when the server's stdout
//! ended, and `exited CODE` or `killed SIGNAL` when the server ended.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::sys::{self, Answer};
use crate::write::write_all;
use crate::{number, value, wrong};

#[derive(Clone, Copy)]
enum Channel {
    /// As Python, Go and Rust hosts do.
    Pipe,
    /// As Node and Bun do.
    Socketpair,
    /// For a server that does not use its stdin.
    DevNull,
}

/// The parsed command line.
pub(crate) struct Order {
    channel: Channel,
    own_group: bool,
    read: bool,
    shrug: Vec<i32>,
    command: VecDeque<OsString>,
}

impl Order {
    pub(crate) fn parse(mut words: VecDeque<OsString>) -> io::Result<Self> {
        let mut order =
            Self { channel: Channel::Pipe, own_group: false, read: true, shrug: Vec::new(), command: VecDeque::new() };
        while let Some(word) = words.pop_front() {
            match word.to_str() {
                Some("--stdin") => order.channel = channel(&value(&mut words)?)?,
                Some("--own-group") => order.own_group = true,
                Some("--no-read") => order.read = false,
                Some("--shrug") => order.shrug.push(number(words.pop_front())?),
                Some("--") => {
                    order.command = words;
                    return Ok(order);
                }
                _ => break,
            }
        }
        Err(wrong("host needs -- CMD..."))
    }
}

fn channel(word: &OsString) -> io::Result<Channel> {
    match word.to_str() {
        Some("pipe") => Ok(Channel::Pipe),
        Some("socketpair") => Ok(Channel::Socketpair),
        Some("devnull") => Ok(Channel::DevNull),
        _ => Err(wrong("no such channel")),
    }
}

pub(crate) fn run(order: Order) -> io::Result<()> {
    for &signal in &order.shrug {
        sys::answer(signal, Answer::Shrug);
    }
    let mut host = Host::start(order)?;
    while host.step()? {}
    Ok(())
}

struct Host {
    server: Child,
    /// Readable when the server ended. `None` after the host has reported that.
    ended: Option<OwnedFd>,
    to_server: Option<OwnedFd>,
    /// `None` after the server closed it, or if this host does not read.
    from_server: Option<OwnedFd>,
    /// Kept open, never read.
    _unread: Option<OwnedFd>,
    heard: Lines,
    orders: Lines,
}

impl Host {
    fn start(order: Order) -> io::Result<Self> {
        let mut words = order.command.into_iter();
        let program = words.next().ok_or_else(|| wrong("host needs -- CMD..."))?;
        let mut command = Command::new(program);
        command.args(words);
        if order.own_group {
            command.process_group(0);
        }
        let (to_server, stdin) = open_stdin(order.channel)?;
        let (from_server, stdout) = open_stdout(order.channel)?;
        let server = command.stdin(stdin).stdout(stdout).spawn()?;
        // The `Command` holds copies of the server's ends until it is dropped.
        drop(command);
        let pid = Pid::from_raw(server.id() as i32).expect("a child has a number");
        let ended = Some(pidfd_open(pid, PidfdFlags::empty())?);
        let (from_server, unread) = match order.read {
            true => (Some(from_server), None),
            false => (None, Some(from_server)),
        };
        Ok(Self {
            server,
            ended,
            to_server,
            from_server,
            _unread: unread,
            heard: Lines::default(),
            orders: Lines::default(),
        })
    }

    /// Waits for one event and handles it. Returns false when the host should exit.
    fn step(&mut self) -> io::Result<bool> {
        let stdin = rustix::stdio::stdin();
        let mut fds = vec![PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        fds.extend(self.ended.iter().chain(&self.from_server).map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            other => other?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let ended = self.ended.is_some();
        // The output of the server is reported before its exit.
        if self.from_server.is_some() && ready[1 + usize::from(ended)] {
            self.listen()?;
        } else if ended && ready[1] {
            self.bury()?;
        }
        if ready[0] {
            return self.obey();
        }
        Ok(true)
    }

    fn listen(&mut self) -> io::Result<()> {
        let Some(from_server) = &self.from_server else {
            return Ok(());
        };
        match self.heard.read(from_server)? {
            Some(lines) => lines.iter().try_for_each(|line| say(&format!("out {line}"))),
            None => {
                self.from_server = None;
                say("closed")
            }
        }
    }

    fn bury(&mut self) -> io::Result<()> {
        self.ended = None;
        let status = self.server.wait()?;
        match (status.code(), status.signal()) {
            (Some(code), _) => say(&format!("exited {code}")),
            (None, signal) => say(&format!("killed {}", signal.unwrap_or_default())),
        }
    }

    fn obey(&mut self) -> io::Result<bool> {
        // The test has closed its end, so the host exits.
        let Some(orders) = self.orders.read(&rustix::stdio::stdin())? else {
            return Ok(false);
        };
        for order in orders {
            match order.split_once(' ').unwrap_or((&order, "")) {
                ("pid", _) => say(&format!("pid {}", self.server.id()))?,
                ("send", text) => self.send(text)?,
                ("close-stdin", _) => self.to_server = None,
                ("exit", _) => return Ok(false),
                _ => return Err(wrong("no such order")),
            }
        }
        Ok(true)
    }

    fn send(&self, text: &str) -> io::Result<()> {
        match &self.to_server {
            Some(to_server) => write_all(to_server, format!("{text}\n").as_bytes()),
            None => Err(wrong("stdin of the server is closed")),
        }
    }
}

fn open_stdin(channel: Channel) -> io::Result<(Option<OwnedFd>, Stdio)> {
    match channel {
        Channel::DevNull => Ok((None, Stdio::null())),
        Channel::Pipe => {
            let (read, write) = pipe()?;
            Ok((Some(write), read.into()))
        }
        Channel::Socketpair => {
            let (ours, theirs) = sockets()?;
            Ok((Some(ours), theirs.into()))
        }
    }
}

fn open_stdout(channel: Channel) -> io::Result<(OwnedFd, Stdio)> {
    let (ours, theirs) = match channel {
        Channel::Socketpair => sockets()?,
        Channel::Pipe | Channel::DevNull => pipe()?,
    };
    Ok((ours, theirs.into()))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

fn say(line: &str) -> io::Result<()> {
    write_all(&rustix::stdio::stdout(), format!("{line}\n").as_bytes())
}

/// Splits bytes into whole lines.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Reads once. Returns `None` at the end.
    fn read(&mut self, from: &impl AsFd) -> io::Result<Option<Vec<String>>> {
        let mut buffer = [0; 65536];
        let got = match rustix::io::read(from, &mut buffer) {
            Ok(0) | Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Ok(got) => got,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error.into()),
        };
        self.rest.extend_from_slice(&buffer[..got]);
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        Ok(Some(lines))
    }
}
