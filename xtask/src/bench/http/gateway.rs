//! A running gateway with a server behind it, or a server alone.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, Deadline};
use tokio::time::timeout;

use super::super::plot::Tone;
use super::super::proc::descendants;
use super::client::{Connection, Endpoint};
use super::load::Driver;
use super::peers::{self, Order, Peer};
use super::pipe::Pipe;
use crate::step::{Failure, Outcome, Workspace};

/// Far beyond the start time of the slowest peer on a busy machine.
const START: Duration = Duration::from_secs(60);

/// The timeout of one try to reach a gateway that is starting.
const TRY: Duration = Duration::from_secs(5);

/// The transport of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Stdio,
    Http,
}

/// The program between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    Nothing,
    Floor,
    Leash,
    Peer(Peer),
}

/// One way from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) front: Front,
    pub(super) behind: Behind,
}

impl Way {
    pub(super) fn name(self) -> String {
        let behind = match self.behind {
            Behind::Stdio => "stdio",
            Behind::Http => "HTTP",
        };
        match self.front {
            Front::Nothing => format!("direct, {behind}"),
            Front::Floor => format!("floor, {behind}"),
            Front::Leash => format!("leash serve, {behind}"),
            Front::Peer(peer) => format!("{}, {behind}", peer.name()),
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self.front {
            Front::Nothing | Front::Floor => Tone::Floor,
            Front::Leash => Tone::Leash,
            Front::Peer(_) => Tone::Peer,
        }
    }

    /// True for the ways that others are compared with. The others may be missing.
    pub(super) fn is_needed(self) -> bool {
        matches!(self.front, Front::Nothing | Front::Floor)
    }
}

/// The resources to start gateways with.
pub(super) struct Stage {
    pub(super) driver: Driver,
    peers: PathBuf,
    /// This program, which also plays the other roles.
    program: OsString,
}

impl Stage {
    pub(super) fn set(workspace: &Workspace) -> Outcome<Self> {
        let program = std::env::current_exe().map_err(|error| Failure::new(format!("who am I: {error}")))?;
        Ok(Self { driver: Driver::new()?, peers: peers::dir(workspace), program: program.into() })
    }

    /// Starts the server alone, on pipes.
    pub(super) fn pipe(&self) -> Outcome<Pipe> {
        let mut command = Command::new(&self.program);
        command.args(["play", "echo-stdio"]);
        Pipe::start(command)
    }

    /// Starts everything on `way`, and returns after a call was answered.
    pub(super) fn start(&self, way: Way) -> Outcome<Gateway> {
        self.start_in(scene()?, way)
    }

    /// The same with another `leash`.
    pub(super) fn start_build(&self, leash: &Path, behind: Behind) -> Outcome<Gateway> {
        let mut scene = scene()?;
        scene.set_leash(leash);
        self.start_in(scene, Way { front: Front::Leash, behind })
    }

    fn start_in(&self, scene: Scene, way: Way) -> Outcome<Gateway> {
        let upstream = match (way.behind, way.front) {
            (Behind::Stdio, _) | (_, Front::Nothing) => None,
            (Behind::Http, _) => {
                let at = free_address()?;
                let mut command = scene.command(&self.program);
                command.args(["play", "echo-http", &at.to_string()]);
                let server = Running::start(command, &scene, "server")?;
                self.wait_ready(server, &Endpoint::new(at, "/mcp", "echo")?, &scene).map(|server| Some((server, at)))?
            }
        };
        let at = free_address()?;
        let upstream_at = upstream.as_ref().map(|(_, at)| *at);
        let (command, endpoint) = self.command(way.front, &scene, at, upstream_at)?;
        let front = Running::start(command, &scene, "gateway")?;
        let front = self.wait_ready(front, &endpoint, &scene)?;
        Ok(Gateway { endpoint, front, upstream: upstream.map(|(server, _)| server), _scene: scene })
    }

    fn command(
        &self,
        front: Front,
        scene: &Scene,
        at: SocketAddr,
        upstream: Option<SocketAddr>,
    ) -> Outcome<(Command, Endpoint)> {
        let server = [self.program.clone(), "play".into(), "echo-stdio".into()];
        let url = upstream.map(|upstream| format!("http://{upstream}/mcp"));
        let address = at.to_string();
        match front {
            Front::Nothing => {
                let mut command = scene.command(&self.program);
                command.args(["play", "echo-http", &address]);
                Ok((command, Endpoint::new(at, "/mcp", "echo")?))
            }
            Front::Floor => {
                let mut command = scene.command(&self.program);
                match upstream {
                    Some(upstream) => command.args(["play", "floor-http", &address, &upstream.to_string()]),
                    None => command.args(["play", "floor-stdio", &address]).args(&server),
                };
                Ok((command, Endpoint::new(at, "/mcp", "echo")?))
            }
            Front::Leash => {
                let mut command = scene.leash(["serve", "--listen", &address, "--name", "bench"]);
                // One client opens all sessions, so the part that leash reserves for other clients is not needed.
                command.args(["--max-sessions-per-client", "10000"]);
                match &url {
                    Some(url) => command.args(["--url", url]),
                    None => command.arg("--").args(&server),
                };
                Ok((command, Endpoint::new(at, "/bench/mcp", "echo")?))
            }
            Front::Peer(peer) => {
                let order = Order { scene, deps: &self.peers, port: at.port(), server: &server, url: url.as_deref() };
                Ok((order.command(peer)?, Endpoint::new(at, peer.path(), peer.tool())?))
            }
        }
    }

    /// Tries until a call is answered, the process has exited or the time is over.
    fn wait_ready(&self, mut running: Running, endpoint: &Endpoint, scene: &Scene) -> Outcome<Running> {
        let deadline = Deadline::after(START);
        loop {
            let tried = self.driver.run(TRY, async {
                let probe = timeout(TRY, probe(endpoint)).await;
                probe.unwrap_or_else(|_| Err(Failure::new("no answer")))
            });
            let Err(why) = tried else {
                return Ok(running);
            };
            let ended = running.child.try_wait().map_err(|error| Failure::new(error.to_string()))?;
            match (ended, deadline.is_over()) {
                (Some(status), _) => return Err(running.complaint(scene, &format!("it ended with {status}"))),
                (None, true) => return Err(running.complaint(scene, &why.to_string())),
                (None, false) => wait::step(Duration::from_millis(20)),
            }
        }
    }
}

/// The surroundings of one gateway, for the user that runs the bench.
fn scene() -> Outcome<Scene> {
    let who = if rustix::process::geteuid().is_root() { Who::Root } else { Who::User };
    Scene::set(who).map_err(Failure::new)
}

/// Opens a session and makes one call.
async fn probe(endpoint: &Endpoint) -> Outcome {
    let mut connection = Connection::open(endpoint).await?;
    let session = connection.initialize(endpoint).await?;
    connection.call(endpoint, &session).await?;
    // The result is ignored: not every peer supports DELETE.
    let _ = connection.delete(endpoint, &session).await;
    Ok(())
}

/// A port that was free a moment ago: no peer can choose one itself and print it.
fn free_address() -> Outcome<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    listener
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failure::new(format!("there is no free port: {error}")))
}

/// The processes of one way. Dropping it ends them.
pub(super) struct Gateway {
    pub(super) endpoint: Endpoint,
    // Dropped in this order: the gateway, its upstream, and their files.
    front: Running,
    upstream: Option<Running>,
    _scene: Scene,
}

impl Gateway {
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.front.child)
    }

    /// The gateway, the servers, and all their other processes.
    pub(super) fn processes(&self) -> Vec<Pid> {
        let mut all = descendants(self.pid());
        all.push(self.pid());
        all.extend(self.upstream.iter().map(|upstream| Pid::from_child(&upstream.child)));
        all
    }
}

/// A process that is killed when it is dropped.
struct Running {
    child: Child,
    name: &'static str,
}

impl Running {
    fn start(mut command: Command, scene: &Scene, name: &'static str) -> Outcome<Self> {
        let path = scene.dir().join(name).with_extension("log");
        let log = File::create(&path).map_err(Failure::at(&path))?;
        let copy = log.try_clone().map_err(Failure::at(&path))?;
        let started = command.stdin(Stdio::null()).stdout(log).stderr(copy).spawn();
        let child = started.map_err(|error| Failure::new(format!("the {name} does not start: {error}")))?;
        Ok(Self { child, name })
    }

    /// A failure with the first line of the process's own log.
    fn complaint(&self, scene: &Scene, why: &str) -> Failure {
        let said = fs::read_to_string(scene.dir().join(self.name).with_extension("log")).unwrap_or_default();
        let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Failure::new(format!("the {} cannot be used: {why} ({})", self.name, line.trim()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is our unreaped child, so its pid was not reused.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
