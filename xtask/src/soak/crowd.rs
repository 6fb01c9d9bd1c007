//! Clients that come, stay and go in every way: each is a process with some sessions.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use testkit::chaos::random::Random;
use testkit::scene::Scene;

use crate::step::{Failure, Outcome};

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// By SIGKILL.
    Crash,
    /// By its own exit, without a word.
    Exit,
    /// After it has ended its sessions.
    Delete,
}

impl Leave {
    /// Most clients never say good-bye.
    pub(crate) fn draw(random: &mut Random) -> Self {
        random.weigh(&[(2, Self::Crash), (1, Self::Exit), (1, Self::Delete)])
    }
}

/// A client with its sessions, which it uses once. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    orders: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

impl Client {
    /// Starts one with as many sessions.
    pub(crate) fn start(scene: &Scene, url: &str, sessions: usize) -> Outcome<Self> {
        let mut command = scene.zoo(["http-client", "obey"]);
        command.args(std::iter::repeat_n(url, sessions)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error: std::io::Error| Failure::new(format!("cannot start a client: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let orders = child.stdin.take();
        let says = child.stdout.take().ok_or_else(|| Failure::new("a client does not speak"))?;
        Ok(Self { child, orders, says: BufReader::new(says) })
    }

    /// Waits until all its sessions are open.
    pub(crate) fn wait(&mut self) -> Outcome {
        self.expect("ready", 1)
    }

    /// Makes a call in one session.
    pub(crate) fn call(&mut self) -> Outcome {
        self.order("call-one")?;
        self.expect("call-one 200", 1)
    }

    pub(crate) fn leave(mut self, how: Leave, sessions: usize) -> Outcome {
        match how {
            Leave::Crash => self.child.kill().map_err(|error| Failure::new(error.to_string()))?,
            Leave::Exit => self.orders = None,
            Leave::Delete => {
                self.order("delete")?;
                self.expect("delete 20", sessions)?;
                self.orders = None;
            }
        }
        self.child.wait().map(drop).map_err(|error| Failure::new(error.to_string()))
    }

    fn order(&mut self, order: &str) -> Outcome {
        let orders = self.orders.as_mut().ok_or_else(|| Failure::new("a client takes no orders"))?;
        writeln!(orders, "{order}").map_err(|error| Failure::new(format!("a client is gone: {error}")))
    }

    fn expect(&mut self, start: &str, times: usize) -> Outcome {
        for _ in 0..times {
            let mut line = String::new();
            self.says.read_line(&mut line).map_err(|error| Failure::new(error.to_string()))?;
            if !line.starts_with(start) {
                return Err(Failure::new(format!("a client said `{}`, not `{start}`", line.trim_end())));
            }
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
