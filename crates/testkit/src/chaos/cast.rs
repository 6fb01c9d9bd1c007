//! The processes of an episode: hosts and their command lines, the gateway, and bystanders.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource};
use serde_json::{Map, Value, json};

use super::action::{Action, Driver, Origin, Route, Scarce, Server, Start};
use super::actor::{Actor, UP};
use super::plan::Hold;
use super::world::{Unset, World};
use crate::cgroup::PidsBound;
use crate::client::{Mode, Order, Sdk, Target};
use crate::deps::Deps;
use crate::gateway::Gateway;
use crate::host::{Channel, Manner};
use crate::process::Handle;
use crate::scene::Scene;
use crate::sys::{self, Step};

/// The time that a gateway keeps a session after its client is gone.
const LINGER: &str = "100ms";

/// A name to spare, which no process has.
const SPARED: &str = "zoo-of-nobody";

impl World {
    /// The command of the host or client, with all its arguments.
    pub(crate) fn command(&mut self, start: &Start) -> Result<Command, String> {
        let url = match start.route {
            Route::Run => String::new(),
            Route::Connect => {
                let opener = self.opener(start).unwrap_or_default();
                self.upstreams.get(&start.origin).map(|upstream| upstream.url(&opener)).unwrap_or_default()
            }
            Route::ConnectServe | Route::ServeStdio => self.gateway()?.url(&start.server.to_string()),
            Route::ServeHttp => self.gateway()?.url(&start.origin.to_string()),
        };
        let grace = format!("{}ms", start.grace);
        let words = match start.route {
            Route::Run => {
                let server = self.server_words(start.server)?;
                let hold = self.plan.hold.to_string();
                let mut options = vec!["--contain", &hold, "--grace", &grace];
                if self.spares_a_name(start.server) {
                    options.extend(["--spare", SPARED]);
                }
                self.scene.run_words(options, &server)
            }
            Route::Connect | Route::ConnectServe => {
                vec![self.scene.leash_path().into(), "connect".into(), "--grace".into(), grace.into(), (&url).into()]
            }
            Route::ServeStdio | Route::ServeHttp => Vec::new(),
        };
        let mut command = match sdk(start.driver) {
            Some(sdk) => {
                let target = if words.is_empty() { Target::Http(url) } else { Target::Stdio(words) };
                let words = Order { sdk, mode: Mode::Legacy, acts: &["obey"], target }.words(self.deps()?);
                let mut command = self.scene.command(&words[0]);
                command.args(&words[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            None => self.raw(start, &url, &words)?,
        };
        if !start.driver.is_raw() || !start.server.is_of_the_zoo() {
            command.current_dir(self.deps()?.npm());
        }
        command.stderr(self.scene.stderr_file());
        Ok(command)
    }

    fn raw(&mut self, start: &Start, url: &str, words: &[OsString]) -> Result<Command, String> {
        let mut command = match words {
            [] => self.scene.zoo(["http-client", "obey", url]),
            _ => {
                let channel = if start.driver == Driver::Pipe { Channel::Pipe } else { Channel::Socketpair };
                let mut command = self.scene.zoo(Manner { channel, ..Manner::default() }.words());
                command.args(words);
                command
            }
        };
        let steps = match start.scarce {
            (Scarce::Nothing, _) => Vec::new(),
            (Scarce::Descriptors, most) => vec![Step::Limit(Resource::Nofile, most)],
            // RLIMIT_NPROC does not apply to root, and counts all processes of a user, so a cgroup is used.
            (Scarce::Processes, most) => {
                let bound = PidsBound::small(most)?;
                let join = bound.join().map_err(|error| error.to_string())?;
                self.bounds.push(bound);
                vec![join]
            }
        };
        sys::prepare(&mut command, steps);
        Ok(command)
    }

    /// The command line of a stdio server.
    fn server_words(&self, server: Server) -> Result<Vec<OsString>, String> {
        Ok(match server {
            Server::Everything => ["npx", "-y", "@modelcontextprotocol/server-everything"].map(OsString::from).into(),
            Server::Fixture => {
                let census = self.scene.dir().join("census").into_os_string();
                vec![self.scene.fixture_path().into(), "stdio".into(), "--census".into(), census]
            }
            Server::Python => {
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leash/tests/real_hosts/server.py");
                vec![self.deps()?.python().into(), script.into()]
            }
            Server::Foreign => {
                let first = self.namespace.as_ref().ok_or("there is no foreign namespace")?.first;
                self.scene.tree("foreign", ["--mcp", "--to", &first.as_raw_nonzero().to_string()])
            }
            Server::Chain | Server::Mixed => self.scene.tree(&server.to_string(), ["--mcp", "--size", "8"]),
            zoo => self.scene.tree(&zoo.to_string(), ["--mcp"]),
        })
    }

    fn deps(&self) -> Result<&Deps, String> {
        self.deps.as_ref().ok_or_else(|| "the SDKs are not installed".to_owned())
    }

    fn gateway(&self) -> Result<&Gateway, String> {
        self.serve.as_ref().ok_or_else(|| "there is no gateway".to_owned())
    }

    /// Starts `leash serve` in front of every server that the plan wants behind it, at the same address as before:
    /// existing clients find the new one.
    pub(crate) fn start_serve(&mut self) -> Result<(), String> {
        self.note_inherited();
        // A killed gateway leaves its sessions to the next one, which must have the same servers. After any other end
        // the next gateway gets new ones.
        let was_killed = self.openers.get(&self.gateway_name()).is_some_and(|wounds| wounds.leash);
        self.generation += 1;
        if !was_killed {
            self.epoch = self.generation;
        }
        self.wounds(&self.gateway_name()).takes_over = was_killed;
        let gateway = self.serve_at(&self.listen)?;
        self.listen = gateway.address().to_string();
        self.serve = Some(gateway);
        Ok(())
    }

    /// Starts the same gateway at another address.
    pub(crate) fn serve_at(&self, listen: &str) -> Result<Gateway, String> {
        let words = ["--config".into(), self.configure()?.into_os_string()];
        Gateway::attempt(&self.scene, listen, Vec::new(), words)
    }

    /// Writes the configuration of the gateway.
    pub(crate) fn configure(&self) -> Result<PathBuf, String> {
        let file = self.scene.dir().join("leash.json");
        let contain = self.plan.hold.to_string();
        let policy = json!({"linger": LINGER, "grace": format!("{}ms", self.plan.grace), "contain": contain});
        let text = json!({"mcpServers": self.servers()?, "leash": policy}).to_string();
        // Written with a rename: a gateway that watches the file must not read half of it.
        let fresh = self.scene.dir().join("leash.json.new");
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &file)).map_err(|error| error.to_string())?;
        Ok(file)
    }

    /// `sealed` and `unit` accept no name to spare.
    fn spares_a_name(&self, server: Server) -> bool {
        server.spares_a_name() && !matches!(self.plan.hold, Hold::Sealed | Hold::Unit)
    }

    fn servers(&self) -> Result<Map<String, Value>, String> {
        let mut servers = Map::new();
        for action in &self.plan.actions {
            let (Action::Start(Start { route, server, .. }) | Action::Visit(route, server, ..)) = action else {
                continue;
            };
            if !matches!(route, Route::ConnectServe | Route::ServeStdio) {
                continue;
            }
            let words = self.server_words(*server)?;
            let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            let mut entry = json!({"command": words[0], "args": words[1..]});
            if self.spares_a_name(*server) {
                entry["leash"] = json!({"spare": [SPARED]});
            }
            if !server.is_of_the_zoo() {
                entry["cwd"] = json!(self.deps()?.npm());
            }
            servers.insert(server.to_string(), entry);
        }
        for (origin, upstream) in &self.upstreams {
            let url = upstream.url(&self.epoch_name());
            servers.insert(origin.to_string(), json!({"type": "http", "url": url}));
        }
        Ok(servers)
    }
}

fn sdk(driver: Driver) -> Option<Sdk> {
    match driver {
        Driver::Pipe | Driver::Socketpair => None,
        Driver::Python1 => Some(Sdk::Python1),
        Driver::Python2 => Some(Sdk::Python2),
        Driver::TypeScript1 => Some(Sdk::TypeScript1),
        Driver::TypeScript2 => Some(Sdk::TypeScript2),
    }
}

/// A host with a server that no action touches.
pub(crate) fn resident(scene: &Scene, hold: Hold) -> Result<Actor, Unset> {
    let start = Start {
        actor: u32::MAX,
        driver: Driver::Pipe,
        route: Route::Run,
        server: Server::Setsid,
        origin: Origin::Honest,
        grace: 300,
        scarce: (Scarce::Nothing, 0),
        hurry: false,
    };
    // `group` only promises to end the processes that stay in the group.
    let kind = if hold == Hold::Group { "chain" } else { "setsid" };
    let census = scene.dir().join("census-of-the-resident");
    let mut server: Vec<OsString> =
        vec![scene.zoo_path().into(), "tree".into(), kind.into(), "--size".into(), "2".into()];
    server.extend(["--mcp".into(), "--census".into(), census.into_os_string()]);
    let words = scene.run_words(["--contain", &hold.to_string(), "--grace", "300ms"], &server);
    let mut command = scene.zoo(Manner::default().words());
    command.args(words).stderr(scene.stderr_file());
    let mut resident = Actor::begin(start, command)?;
    resident.wait_up(UP);
    resident.look();
    match resident.up {
        Some(true) => Ok(resident),
        Some(false) | None => Err(Unset::Leash(format!("not even the resident came up: {}", scene.stderr()))),
    }
}

/// Processes that have nothing to do with leash. One of them has leash's mark in its environment: a mark alone is no
/// reason to end a process.
pub(crate) fn bystanders(scene: &Scene) -> Result<Vec<(String, Child, Handle)>, String> {
    let all = [("in our session", false, false), ("in its own session", true, false), ("with a mark", true, true)];
    let start = |(name, is_apart, is_marked): (&str, bool, bool)| {
        let mut command = scene.zoo(["idle"]);
        sys::prepare(&mut command, if is_apart { vec![Step::OwnSession] } else { Vec::new() });
        if is_marked {
            command.env("LEASH_ID", "somebody-elses");
        }
        // It may outlive a run that is killed, and then must not hold that run's output open.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| error.to_string())?;
        let handle = Handle::open(Pid::from_child(&child), |_| true).ok_or("a bystander has no number")?;
        Ok((name.to_owned(), child, handle))
    };
    all.into_iter().map(start).collect()
}
