//! A machine full of servers: some whose hosts were killed, and many more that somebody holds, that are no servers, or that
//! belong to somebody else. Who lives is told by two FIFOs, one for those who must go and one for those who must stay.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::census::Census;
use testkit::leash::Answer;
use testkit::process::Process;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

const PYTHON: &str = "
import json, subprocess, sys
kept = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for words in json.loads(sys.argv[1])]
print('up', flush=True)
sys.stdin.read()
";

const NODE: &str = "
const { spawn } = require('child_process');
const kept = JSON.parse(process.argv[1]).map((words) => spawn(words[0], words.slice(1), { stdio: ['pipe', 'pipe', 'ignore'] }));
console.log('up');
process.stdin.resume();
process.stdin.on('end', () => process.exit());
";

/// A shell has one server, whose both ends it keeps.
const SHELL: &str = "coproc SERVER { exec \"$@\"; }; echo up; while read -r line; do :; done";

/// Starts a server and leaves: it is nobody's child, and speaks with whoever held the shell's channels.
const DETACH: &str = "setsid \"$@\" <&0 & exit 0";

/// A host, and what it has started. It is killed when dropped.
pub(crate) struct Host(Child);

impl Host {
    fn start(mut command: Command) -> Host {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("cannot start the host");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the host says something");
        assert_eq!(line, "up\n");
        Host(child)
    }

    fn kill(mut self) {
        self.0.kill().expect("cannot kill the host");
        self.0.wait().expect("cannot wait for the host");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The machine.
pub(crate) struct Zoo {
    hosts: Vec<Host>,
    others: Vec<Host>,
    pub(crate) doomed: Census,
    pub(crate) safe: Census,
    declared: Vec<Vec<String>>,
    pub(crate) scene: Scene,
}

impl Zoo {
    pub(crate) fn open(who: Who) -> Result<Zoo, String> {
        let scene = Scene::set(who)?;
        let fifo = |name: &str| Census::create(scene.dir().join(name));
        let (doomed, safe) = (fifo("doomed"), fifo("safe"));
        Ok(Zoo { hosts: Vec::new(), others: Vec::new(), doomed, safe, declared: Vec::new(), scene })
    }

    /// The words of a tree in one of the two.
    fn tree(&self, census: &Census, kind: &str, size: usize) -> Vec<String> {
        let zoo = self.scene.zoo_path();
        let (zoo, census) = (zoo.display().to_string(), census.path().display().to_string());
        [&zoo, "tree", kind, "--size", &size.to_string(), "--census", &census].map(str::to_owned).to_vec()
    }

    /// The same, and the user's configuration has it.
    fn declared(&mut self, doomed: bool, kind: &str, size: usize) -> Vec<String> {
        let words = self.tree(if doomed { &self.doomed } else { &self.safe }, kind, size);
        if !self.declared.contains(&words) {
            self.declared.push(words.clone());
        }
        words
    }

    fn write_config(&self) {
        let entry = |(at, words): (usize, &Vec<String>)| {
            (format!("server-{at}"), json!({ "command": words[0], "args": words[1..] }))
        };
        let servers: serde_json::Map<String, Value> = self.declared.iter().enumerate().map(entry).collect();
        let path = self.scene.dir().join(".claude.json");
        fs::write(path, json!({ "mcpServers": servers }).to_string()).expect("cannot write the configuration");
    }

    fn python(&self, servers: &[Vec<String>]) -> Command {
        let mut command = self.scene.command("/usr/bin/python3");
        command.args(["-c", PYTHON]).arg(json!(servers).to_string());
        command
    }

    fn node(&self, servers: &[Vec<String>]) -> Command {
        let mut command = self.scene.command("/usr/bin/node");
        command.args(["-e", NODE]).arg(json!(servers).to_string());
        command
    }

    fn shell(&self, server: &[String]) -> Command {
        let mut command = self.scene.command("/bin/bash");
        command.args(["-c", SHELL, "bash"]).args(server);
        command
    }

    /// Hosts that will be killed, and whose servers must go. Returns how many trees there are.
    fn doom(&mut self) -> usize {
        let mixed = self.declared(true, "mixed", 8);
        let helpers = self.declared(true, "setsid", 3);
        let daemons = self.declared(true, "daemon", 3);
        let stubborn = self.declared(true, "stubborn", 1);
        let wrapped = vec!["sh".to_owned(), "-c".to_owned(), stubborn.join(" ")];
        let servers = [mixed.clone(), helpers, daemons, wrapped];
        let hosts = [self.python(&servers), self.node(&servers), self.shell(&mixed)];
        self.hosts.extend(hosts.map(Host::start));
        2 * servers.len() + 1
    }

    /// Everybody else. Returns how many trees there are.
    fn populate(&mut self) -> usize {
        let mixed = self.declared(false, "mixed", 8);
        let stubborn = self.declared(false, "stubborn", 1);
        let detached: Vec<String> = ["sh", "-c", DETACH, "sh"]
            .map(str::to_owned)
            .into_iter()
            .chain(self.declared(false, "ignores-eof", 1))
            .collect();
        // Not declared: somebody's own program, started from a host's shell, whose host is killed below.
        let own = self.tree(&self.safe, "stubborn", 2);
        let mut daemon = self.python(&[stubborn.clone(), mixed.clone()]);
        daemon.process_group(0);
        let mut devs_host = self.python(std::slice::from_ref(&own));
        devs_host.env("CLAUDECODE", "1");
        let hosts = [
            self.python(&[mixed.clone(), stubborn.clone()]),
            self.node(&[mixed.clone(), stubborn.clone()]),
            self.shell(&stubborn),
            self.python(&[detached]),
            daemon,
        ];
        self.others.extend(hosts.map(Host::start));
        self.hosts.push(Host::start(devs_host));
        // Decoys: nobody holds them, and they have the name.
        let zoo: OsString = self.scene.zoo_path().into();
        let mut decoy = self.scene.command("/bin/bash");
        decoy.args(["-c", "coproc S { exec -a mcp-server-git \"$@\"; }; echo up; read -r line", "bash"]).arg(zoo);
        decoy.args(&self.tree(&self.safe, "ignores-eof", 1)[1..3]).args(["--census"]).arg(self.safe.path());
        self.hosts.push(Host::start(decoy));
        // 2 + 2 + 1 + 1 + 2 of the hosts, the developer's, the decoy.
        8 + 1 + 1
    }

    /// The same server of another user, whose host is gone.
    fn foreigner(&mut self) -> usize {
        let words = self.declared(false, "stubborn", 1);
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", PYTHON]).arg(json!([words]).to_string());
        self.hosts.push(Host::start(command));
        1
    }

    /// Starts everything, kills the hosts that are to be killed, and says who is to stay.
    pub(crate) fn play(&mut self) -> BTreeSet<(i32, u64)> {
        let doomed = self.doom();
        let mut safe = self.populate();
        if rustix::process::geteuid().is_root() && self.scene.user().uid() != 0 {
            safe += self.foreigner();
        }
        self.write_config();
        self.doomed.wait_all_ready(doomed, LIMIT).expect("the orphans did not come up");
        self.safe.wait_all_ready(safe, LIMIT).expect("the others did not come up");
        std::mem::take(&mut self.hosts).into_iter().for_each(Host::kill);
        living(&self.safe)
    }

    pub(crate) fn reap(&self, words: &[&str]) -> Answer {
        self.scene.answer(["reap", "--grace", "200ms", "--json"].iter().chain(words))
    }

    /// The configuration's home, for a leash that another user starts.
    pub(crate) fn home(&self) -> PathBuf {
        self.scene.dir().to_owned()
    }
}

/// Which programs of the zoo hold a FIFO now. Another test in this process may be about to start something, with a copy of our own end.
pub(crate) fn living(census: &Census) -> BTreeSet<(i32, u64)> {
    let identity = |process: &Process| (process.pid.as_raw_nonzero().get(), process.start);
    let is_zoo = |(pid, _): &(i32, u64)| {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        exe.file_name().is_some_and(|name| name.to_string_lossy().contains("zoo"))
    };
    census.holders().iter().map(identity).filter(is_zoo).collect()
}
