//! Clients that start, stay and exit in every way. Each is a process with some sessions.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use testkit::chaos::random::Random;
use testkit::scene::Scene;
use testkit::wait::Stopwatch;

use super::tally::Tally;
use crate::step::{Failure, Outcome};

/// The number of clients that start at the same time.
const AT_ONCE: usize = 8;

/// The way in which a client exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// By SIGKILL.
    Crash,
    /// It exits by itself, without DELETE.
    Exit,
    /// It ends its sessions before it exits.
    Delete,
}

impl Leave {
    /// Most clients never end their sessions.
    fn draw(random: &mut Random) -> Self {
        random.weigh(&[(2, Self::Crash), (1, Self::Exit), (1, Self::Delete)])
    }
}

/// A client with its sessions, which it uses once. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    orders: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
    sessions: usize,
    since: Stopwatch,
}

impl Client {
    /// Starts one with this many sessions.
    fn start(scene: &Scene, url: &str, sessions: usize) -> Outcome<Self> {
        let mut command = scene.zoo(["http-client", "obey"]);
        command.args(std::iter::repeat_n(url, sessions)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error: std::io::Error| Failure::new(format!("cannot start a client: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let orders = child.stdin.take();
        let says = child.stdout.take().ok_or_else(|| Failure::new("a client does not speak"))?;
        Ok(Self { child, orders, says: BufReader::new(says), sessions, since: Stopwatch::start() })
    }

    /// Waits until all its sessions are open.
    fn wait(&mut self, tally: &mut Tally) -> Outcome {
        self.expect("ready", 1)?;
        self.since = Stopwatch::start();
        tally.opened += self.sessions as u64;
        Ok(())
    }

    /// Makes a call in one session and opens its event stream. Some streams are cut in the middle, others stay.
    fn work(&mut self, random: &mut Random, tally: &mut Tally) -> Outcome {
        self.ask("call-one", "call 200", 1)?;
        self.ask("listen-one", "listen 200", 1)?;
        tally.streams += 1;
        if random.happens(50) {
            self.ask("cut-one", "cut 1", 1)?;
            tally.cut += 1;
        }
        Ok(())
    }

    fn leave(mut self, how: Leave, tally: &mut Tally) -> Outcome {
        let sessions = self.sessions as u64;
        match how {
            Leave::Crash => {
                self.child.kill().map_err(|error| Failure::new(error.to_string()))?;
                tally.crashed += sessions;
            }
            Leave::Exit => {
                self.orders = None;
                tally.exited += sessions;
            }
            Leave::Delete => {
                self.ask("delete", "delete 20", self.sessions)?;
                self.orders = None;
                tally.deleted += sessions;
            }
        }
        self.child.wait().map(drop).map_err(|error| Failure::new(error.to_string()))
    }

    /// Checks that the sessions of a living client have expired.
    fn outlive(mut self, tally: &mut Tally) -> Outcome {
        self.ask("call-one", "call 404", 1)?;
        tally.expired += self.sessions as u64;
        Ok(())
    }

    fn ask(&mut self, order: &str, answer: &str, times: usize) -> Outcome {
        let orders = self.orders.as_mut().ok_or_else(|| Failure::new("a client takes no orders"))?;
        writeln!(orders, "{order}").map_err(|error| Failure::new(format!("a client is gone: {error}")))?;
        self.expect(answer, times)
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

/// A group of clients of one server.
pub(crate) struct Crowd {
    pub(crate) url: String,
    /// The number of sessions of each client.
    pub(crate) each: usize,
    /// The number of clients that are replaced in a round.
    pub(crate) pace: usize,
    pub(crate) clients: Vec<Client>,
    pub(crate) next: usize,
}

impl Crowd {
    /// Opens this many sessions.
    pub(crate) fn gather(&mut self, scene: &Scene, sessions: usize, tally: &mut Tally) -> Outcome {
        let mut missing = sessions / self.each;
        while missing > 0 {
            let mut batch = self.begin(scene, missing.min(AT_ONCE), self.each, tally)?;
            missing -= batch.len();
            self.clients.append(&mut batch);
        }
        Ok(())
    }

    /// Starts the clients of the next round.
    pub(crate) fn invite(&self, scene: &Scene) -> Outcome<Vec<Client>> {
        self.start(scene, self.pace.min(self.movable()), self.each)
    }

    /// Ends the next clients that are not among the idle ones. New clients replace them and make their calls.
    pub(crate) fn churn(&mut self, coming: Vec<Client>, random: &mut Random, tally: &mut Tally) -> Outcome {
        let movable = self.movable();
        for mut client in coming {
            client.wait(tally)?;
            client.work(random, tally)?;
            let at = self.next % movable;
            self.next += 1;
            let old = std::mem::replace(&mut self.clients[at], client);
            old.leave(Leave::draw(random), tally)?;
        }
        Ok(())
    }

    /// Replaces a client whose sessions must have expired: one at a time, the oldest first.
    pub(crate) fn renew(&mut self, scene: &Scene, idle: Duration, tally: &mut Tally) -> Outcome {
        let at = self.next % self.clients.len();
        if self.clients[at].since.time() < idle {
            return Ok(());
        }
        self.next += 1;
        let mut fresh = self.begin(scene, 1, self.each, tally)?;
        let Some(client) = fresh.pop() else { return Ok(()) };
        std::mem::replace(&mut self.clients[at], client).outlive(tally)
    }

    /// Adds a client whose sessions never end.
    pub(crate) fn leak(&mut self, scene: &Scene, sessions: usize, tally: &mut Tally) -> Outcome {
        let mut leaking = self.begin(scene, 1, sessions, tally)?;
        self.clients.append(&mut leaking);
        Ok(())
    }

    /// The number of clients that may be replaced. A tenth stays for ever, and does nothing.
    fn movable(&self) -> usize {
        (self.clients.len() - self.clients.len() / 10).max(1)
    }

    fn begin(&self, scene: &Scene, clients: usize, each: usize, tally: &mut Tally) -> Outcome<Vec<Client>> {
        let mut batch = self.start(scene, clients, each)?;
        batch.iter_mut().try_for_each(|client| client.wait(tally))?;
        Ok(batch)
    }

    fn start(&self, scene: &Scene, clients: usize, each: usize) -> Outcome<Vec<Client>> {
        (0..clients).map(|_| Client::start(scene, &self.url, each)).collect()
    }
}
