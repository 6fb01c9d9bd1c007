//! A machine full of servers: some whose hosts were killed, and many more that a process holds, that are not servers,
//! or that belong to another user. Two FIFOs show which processes live: one for those that must end and one for those
//! that must stay.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::census::Census;
use testkit::deps::Deps;
use testkit::leash::Answer;
use testkit::process::Process;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::hosts::{self, DETACHED, EVERYTHING, Host, SHELL, server, server_with};

/// The machine.
pub(crate) struct Zoo {
    /// The hosts that are killed when everything is complete.
    pub(crate) hosts: Vec<Host>,
    /// The hosts that live.
    pub(crate) others: Vec<Host>,
    pub(crate) doomed: Census,
    pub(crate) safe: Census,
    /// The number of trees that report their completion: those that must end, and those that must stay.
    awaited: [usize; 2],
    declared: Vec<Vec<String>>,
    pub(crate) scene: Scene,
}

impl Zoo {
    pub(crate) fn open(who: Who) -> Result<Zoo, String> {
        let scene = Scene::set(who)?;
        let fifo = |name: &str| Census::create(scene.dir().join(name));
        let (doomed, safe) = (fifo("doomed"), fifo("safe"));
        Ok(Zoo { hosts: Vec::new(), others: Vec::new(), doomed, safe, awaited: [0, 0], declared: Vec::new(), scene })
    }

    /// The command line of a tree in one of the two.
    pub(crate) fn tree(&mut self, doomed: bool, kind: &str, size: usize) -> Vec<String> {
        let census = if doomed { &self.doomed } else { &self.safe };
        let zoo = self.scene.zoo_path();
        let (zoo, census) = (zoo.display().to_string(), census.path().display().to_string());
        [&zoo, "tree", kind, "--size", &size.to_string(), "--census", &census].map(str::to_owned).to_vec()
    }

    /// The same, and adds it to the user's configuration.
    pub(crate) fn declared(&mut self, doomed: bool, kind: &str, size: usize) -> Vec<String> {
        let words = self.tree(doomed, kind, size);
        self.declare(&words);
        words
    }

    /// Puts a server into the user's configuration.
    pub(crate) fn declare(&mut self, words: &[String]) {
        if !self.declared.iter().any(|known| known == words) {
            self.declared.push(words.to_vec());
        }
        let entry = |(at, words): (usize, &Vec<String>)| {
            (format!("server-{at}"), json!({ "command": words[0], "args": words[1..] }))
        };
        let servers: serde_json::Map<String, Value> = self.declared.iter().enumerate().map(entry).collect();
        let path = self.scene.dir().join(".claude.json");
        fs::write(path, json!({ "mcpServers": servers }).to_string()).expect("cannot write the configuration");
    }

    /// Expects this many more trees to report their completion.
    pub(crate) fn expect(&mut self, doomed: bool, trees: usize) {
        self.awaited[usize::from(!doomed)] += trees;
    }

    /// A command of the user without output.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.scene.command(program);
        command.stderr(Stdio::null());
        command
    }

    pub(crate) fn python(&self, servers: &[Value]) -> Command {
        hosts::python(self.command("/usr/bin/python3"), servers)
    }

    fn node(&self, servers: &[Value]) -> Command {
        hosts::node(self.command("/usr/bin/node"), servers)
    }

    fn shell(&self, server: &[String]) -> Command {
        let mut command = self.command("/bin/bash");
        command.args(["-c", SHELL, "bash"]).args(server);
        command
    }

    /// Hosts that will be killed, and whose servers must end.
    fn doom(&mut self) {
        let mixed = self.declared(true, "mixed", 8);
        let helpers = self.declared(true, "setsid", 3);
        let daemons = self.declared(true, "daemon", 3);
        let stubborn = self.declared(true, "stubborn", 1);
        let wrapped = ["sh", "-c", &stubborn.join(" ")].map(str::to_owned);
        let servers = [server(&mixed), server(&helpers), server(&daemons), server(&wrapped)];
        let hosts = [self.python(&servers), self.node(&servers), self.shell(&mixed)];
        self.hosts.extend(hosts.map(Host::start));
        self.expect(true, 2 * servers.len() + 1);
    }

    /// Servers that a process holds.
    fn hold(&mut self) {
        let mixed = server(&self.declared(false, "mixed", 8));
        let stubborn = self.declared(false, "stubborn", 1);
        let left = self.declared(false, "ignores-eof", 1);
        // Reparented on purpose; their host lives and has the other ends.
        let detached = DETACHED.map(|script| {
            let shell = ["sh", "-c", script, "sh"].map(str::to_owned);
            server(&shell.into_iter().chain(left.clone()).collect::<Vec<_>>())
        });
        let plain = [mixed.clone(), server(&stubborn)];
        let daemon = hosts::daemon(self.command("/usr/bin/python3"), &self.safe, &plain);
        let hosts = [self.python(&plain), self.node(&plain), self.shell(&stubborn), self.python(&detached), daemon];
        self.others.extend(hosts.map(Host::start));
        self.expect(false, 2 + 2 + 1 + detached.len() + 2);
        // Its host is killed below, and another process has one or both of the ends.
        let holder = self.tree(false, "ignores-eof", 2);
        let lend = |ends: &[&str]| server_with(&stubborn, json!({ "lends": ends, "to": holder }));
        let lender = self.python(&[lend(&["stdin", "stdout"]), lend(&["stdin"]), lend(&["stdout"])]);
        self.hosts.push(Host::start(lender));
        self.expect(false, 6);
    }

    /// Processes that look like servers and are not.
    fn confuse(&mut self) {
        // Not declared: a user's own program, started from the shell of a host that is killed below.
        let own = self.tree(false, "stubborn", 2);
        let mut devs_host = self.python(&[server(&own)]);
        devs_host.env("CLAUDECODE", "1");
        // Decoys: no process holds them, and they have the name of a server.
        let zoo: OsString = self.scene.zoo_path().into();
        let mut decoy = self.command("/bin/bash");
        decoy.args(["-c", "coproc S { exec -a mcp-server-git \"$@\"; }; echo up; read -r line", "bash"]).arg(zoo);
        decoy.args(["tree", "ignores-eof", "--census"]).arg(self.safe.path());
        self.hosts.extend([devs_host, decoy].map(Host::start));
        self.expect(false, 2);
    }

    /// A server of the user that runs the tests, whose host is killed below.
    pub(crate) fn foreigner(&mut self, doomed: bool) {
        let words = self.declared(doomed, "stubborn", 1);
        let mut python = Command::new("/usr/bin/python3");
        python.stderr(Stdio::null());
        self.hosts.push(Host::start(hosts::python(python, &[server(&words)])));
        self.expect(doomed, 1);
    }

    /// A real server through a real `npx`, under hosts of both kinds that are killed and under one that lives.
    pub(crate) fn with_npx(&mut self) {
        let deps = match Deps::find() {
            Ok(deps) => deps,
            Err(why) => return testkit::note(&format!("without npx: {why}")),
        };
        // A test must not download a package that npm does not find there.
        self.scene.set_env("npm_config_offline", "true");
        self.scene.set_env("npm_config_update_notifier", "false");
        self.declare(&EVERYTHING.map(str::to_owned));
        let [doomed, safe] = [&self.doomed, &self.safe].map(|census| [hosts::everything(&deps, census)]);
        let hosts = [self.python(&doomed), self.node(&doomed)];
        self.hosts.extend(hosts.map(Host::start));
        self.others.push(Host::start(self.python(&safe)));
    }

    /// Starts everything, kills the hosts that are to be killed, and returns the processes that must stay.
    pub(crate) fn play(&mut self) -> BTreeSet<(i32, u64)> {
        self.fill();
        if rustix::process::geteuid().is_root() && self.scene.user().uid() != 0 {
            self.foreigner(false);
        }
        self.begin()
    }

    /// Starts everything of the user.
    pub(crate) fn fill(&mut self) {
        self.doom();
        self.hold();
        self.confuse();
    }

    /// Waits for everything that was started, kills the hosts that are to be killed, and returns the processes that
    /// must stay.
    pub(crate) fn begin(&mut self) -> BTreeSet<(i32, u64)> {
        self.hosts.iter_mut().chain(&mut self.others).for_each(Host::wait_up);
        let [doomed, safe] = self.awaited;
        self.doomed.wait_all_ready(doomed, LIMIT).expect("the orphans did not come up");
        self.safe.wait_all_ready(safe, LIMIT).expect("the others did not come up");
        std::mem::take(&mut self.hosts).into_iter().for_each(Host::kill);
        living(&self.safe)
    }

    pub(crate) fn reap(&self, words: &[&str]) -> Answer {
        self.scene.answer(["reap", "--grace", "200ms", "--json"].iter().chain(words))
    }

    /// The same, and names every process of a census as a likely orphan that may be ended.
    pub(crate) fn reap_named(&self, named: &Census, words: &[&str]) -> Answer {
        let pids: Vec<String> = living(named).iter().map(|(pid, _)| format!("--likely={pid}")).collect();
        self.reap(&pids.iter().map(String::as_str).chain(words.iter().copied()).collect::<Vec<_>>())
    }

    /// The home directory of the configuration, for a leash of another user.
    pub(crate) fn home(&self) -> PathBuf {
        self.scene.dir().to_owned()
    }
}

/// The processes that hold a FIFO now. Another test in this process may be about to start a process, which has a copy
/// of our own end until its exec.
pub(crate) fn living(census: &Census) -> BTreeSet<(i32, u64)> {
    let identity = |process: &Process| (process.pid.as_raw_nonzero().get(), process.start);
    let this = std::env::current_exe().expect("the test has a path");
    let is_other = |(pid, _): &(i32, u64)| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe != this);
    census.holders().iter().map(identity).filter(is_other).collect()
}
