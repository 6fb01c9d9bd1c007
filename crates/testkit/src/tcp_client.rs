//! Drives a `zoo client`, which keeps TCP connections open.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::process::Handle;
use crate::wait::LIMIT;

/// A process with connections, and its children that inherited them. Dropping it ends all of them.
#[derive(Debug)]
pub struct Client {
    child: Child,
    /// Separate from `child`, whose `wait` would close it, which would end all processes.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The handles, the leader first.
    processes: Vec<Handle>,
}

impl Client {
    /// Starts `zoo client`, and waits until it is connected. The listener needs a backlog for all of its connections.
    ///
    /// # Panics
    /// If it cannot connect.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start the client");
        let orders = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let line = read_line(&mut answers);
        let pids = line.strip_prefix("pids ").unwrap_or_else(|| panic!("the client said {line:?}"));
        let handle = |word: &str| {
            let pid = word.parse().ok().and_then(Pid::from_raw).expect("a number");
            // The leader is our unreaped child, and so are its children to it: these pids cannot have been reused.
            Handle::open(pid, |_| true).expect("it lives")
        };
        let processes = pids.split_whitespace().map(handle).collect();
        Self { child, orders, answers, processes }
    }

    /// The pids of all its processes, the leader first.
    pub fn pids(&self) -> Vec<i32> {
        self.processes.iter().map(|process| process.pid().as_raw_nonzero().get()).collect()
    }

    /// Kills the leader, and waits until it is reaped: its pid is free.
    pub fn kill(&mut self) {
        self.processes[0].signal(Signal::KILL).expect("cannot kill the client");
        self.child.wait().expect("cannot wait for the client");
    }

    /// Makes the leader close its connections and continue to run.
    pub fn close(&mut self) {
        let orders = self.orders.as_mut().expect("it is a pipe");
        orders.write_all(b"close\n").expect("the client is gone");
        assert_eq!(read_line(&mut self.answers), "closed");
    }
}

fn read_line(answers: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    answers.read_line(&mut line).expect("cannot read from the client");
    line.trim_end().to_owned()
}

impl Drop for Client {
    fn drop(&mut self) {
        // All of them exit at the end of their input.
        drop(self.orders.take());
        let _ = self.child.wait();
        for process in &self.processes {
            if !process.wait_gone(LIMIT) {
                crate::note("a client does not leave");
                let _ = process.signal(Signal::KILL);
            }
        }
    }
}
