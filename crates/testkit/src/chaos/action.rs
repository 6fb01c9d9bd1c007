//! The actions of an episode, as values and as lines of a replay.

use std::fmt;
use std::str::FromStr;

/// An enum whose variants each have a word in a replay.
macro_rules! worded {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $word,)* })
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(format!("`{word}` is no {}", stringify!($name).to_lowercase())),
                }
            }
        }
    };
}
pub(crate) use worded;

worded! {
    /// The program that plays the host or client.
    Driver {
        /// A host of the zoo with pipes, as Python, Go and Rust hosts use.
        Pipe = "pipe",
        /// A host of the zoo with socketpairs, as Node hosts use.
        Socketpair = "socketpair",
        /// The Python SDK, 1.x.
        Python1 = "python-1",
        /// The Python SDK, 2.x.
        Python2 = "python-2",
        /// The TypeScript SDK, 1.x.
        TypeScript1 = "typescript-1",
        /// The TypeScript SDK, 2.x.
        TypeScript2 = "typescript-2",
    }
}

impl Driver {
    /// True if it is a program of the zoo, which speaks the protocol without an SDK.
    pub fn is_raw(self) -> bool {
        matches!(self, Self::Pipe | Self::Socketpair)
    }
}

worded! {
    /// The path from the host to the server that it uses.
    Route {
        /// `leash run` in front of a stdio server.
        Run = "run",
        /// `leash connect` to an upstream server.
        Connect = "connect",
        /// `leash connect` to a stdio server behind `leash serve`.
        ConnectServe = "connect-serve",
        /// HTTP to a stdio server behind `leash serve`.
        ServeStdio = "serve-stdio",
        /// HTTP to an upstream server behind `leash serve`.
        ServeHttp = "serve-http",
    }
}

worded! {
    /// A stdio server.
    Server {
        /// Exits when it should.
        Polite = "polite",
        /// Ignores the end of its input.
        IgnoresEof = "ignores-eof",
        /// Ignores everything but SIGKILL.
        Stubborn = "stubborn",
        /// Has a helper in a session of its own.
        Setsid = "setsid",
        /// Has a helper that forked twice.
        Daemon = "daemon",
        /// Each process is the parent of the next.
        Chain = "chain",
        /// A mixture of the kinds above.
        Mixed = "mixed",
        /// Its main thread has exited; another thread serves.
        Headless = "headless",
        /// Has a helper whose main thread has exited.
        HeadlessMember = "headless-member",
        /// Has a helper in a PID namespace that existed before; the helper's orphans go to another process there.
        Foreign = "foreign",
        /// The Rust SDK.
        Fixture = "fixture",
        /// The Python SDK, with a helper.
        Python = "python-sdk",
        /// `npx` -> `sh` -> `node`.
        Everything = "everything",
    }
}

impl Route {
    /// True if the route goes through `leash serve`.
    pub fn uses_serve(self) -> bool {
        matches!(self, Self::ConnectServe | Self::ServeStdio | Self::ServeHttp)
    }

    /// True if the route ends at an upstream server.
    pub fn has_upstream(self) -> bool {
        matches!(self, Self::Connect | Self::ServeHttp)
    }

    /// True if the host speaks HTTP.
    pub fn is_http(self) -> bool {
        matches!(self, Self::ServeStdio | Self::ServeHttp)
    }
}

impl Server {
    /// True if it is a tree of the zoo.
    pub fn is_of_the_zoo(self) -> bool {
        !matches!(self, Self::Fixture | Self::Python | Self::Everything)
    }

    /// True if all of its processes stay in the group of the first.
    pub fn stays_in_its_group(self) -> bool {
        matches!(
            self,
            Self::Polite
                | Self::IgnoresEof
                | Self::Stubborn
                | Self::Chain
                | Self::Headless
                | Self::HeadlessMember
                | Self::Fixture
        )
    }

    /// True if it is started with a name to spare that no process has. leash then reads the names of all processes.
    pub fn spares_a_name(self) -> bool {
        matches!(self, Self::Headless | Self::HeadlessMember)
    }
}

worded! {
    /// An HTTP server.
    Origin {
        /// Does what the client asks for.
        Honest = "honest",
        /// Answers DELETE with 405.
        Keeper = "refuses-delete",
    }
}

worded! {
    /// A resource limit for leash and its server.
    Scarce {
        /// No limit.
        Nothing = "nothing",
        /// Few descriptors.
        Descriptors = "descriptors",
        /// Few processes.
        Processes = "processes",
    }
}

worded! {
    /// A process of an actor.
    Part {
        /// The host or client.
        Host = "host",
        /// leash: `run`, `connect`, or the `serve` that it uses.
        Leash = "leash",
        /// The supervisor between `leash serve` and a keeper.
        Supervisor = "supervisor",
        /// Its keeper.
        Keeper = "keeper",
        /// The server's first process.
        Leader = "leader",
        /// Any process of the server.
        Member = "member",
    }
}

worded! {
    /// A signal.
    Blow {
        /// SIGTERM.
        Term = "TERM",
        /// SIGINT.
        Int = "INT",
        /// SIGHUP.
        Hup = "HUP",
        /// SIGKILL.
        Kill = "KILL",
        /// SIGSTOP. SIGCONT follows at the end of the episode.
        Stop = "STOP",
        /// SIGCONT.
        Cont = "CONT",
    }
}

worded! {
    /// A change of the disk of the ledger.
    Disk {
        /// It is full.
        Full = "full",
        /// It has room again.
        Free = "free",
        /// It is read-only.
        ReadOnly = "read-only",
        /// It can be written again.
        Writable = "writable",
    }
}

worded! {
    /// A file in the ledger that leash did not write.
    Forgery {
        /// An actor's own record, changed to say that the run is over and its tree gone. Its keeper is killed.
        Over = "over",
        /// The same, but the keeper lives.
        OverKept = "over-kept",
        /// A record of random bytes.
        Noise = "noise",
        /// A FIFO in the place of a record.
        Fifo = "fifo",
        /// A FIFO in the place of a lock.
        FifoLock = "fifo-lock",
        /// A directory in the place of a record.
        Directory = "directory",
        /// A record that names an innocent process with another start time.
        WrongStart = "wrong-start",
        /// A record that names an innocent process with its start time, and the pidfd inode of another one.
        WrongInode = "wrong-inode",
    }
}

/// The start of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The number by which other actions refer to it.
    pub actor: u32,
    /// The program that plays it.
    pub driver: Driver,
    /// Its route to the server.
    pub route: Route,
    /// The stdio server at the end of the route.
    pub server: Server,
    /// The upstream server at the end of the route.
    pub origin: Origin,
    /// `--grace` in milliseconds.
    pub grace: u64,
    /// The scarce resource, and its limit.
    pub scarce: (Scarce, u64),
    /// The episode does not wait until it is up.
    pub hurry: bool,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// An actor starts.
    Start(Start),
    /// An actor makes a call.
    Call(u32),
    /// An actor makes a call that is never answered, and continues.
    Abandon(u32),
    /// An actor closes its session, and exits.
    Close(u32),
    /// An actor ends its HTTP session.
    Delete(u32),
    /// `leash end` of an actor's session.
    End(u32),
    /// Several processes get a signal at the same moment.
    Strike(Blow, Vec<(u32, Part)>),
    /// A running process gets this limit on a resource.
    Squeeze((u32, Part), Scarce, u64),
    /// The disk of the ledger changes.
    Disk(Disk),
    /// A file is forged in the ledger. Some forgeries use the record of an actor.
    Forge(u32, Forgery),
    /// Leash and keeper of an actor's tree are killed at the same moment. The next leash starts with this limit on
    /// descriptors, or with no cgroup in sight.
    Starve(u32, Option<u64>),
    /// A process of the same user traces the keeper of an actor's tree, stops it, and never waits for it.
    Trace(u32),
    /// Leash and keeper of an actor are stopped at the same moment, and `leash end --force` ends its session.
    Force(u32),
    /// This many HTTP clients open a session and a stream, make a call, and exit at once.
    Visit(Route, Server, Origin, u64),
    /// Every connection to an upstream server is cut.
    Cut(Origin),
    /// An upstream server crashes and is started again.
    RestartOrigin(Origin),
    /// An upstream server becomes unreachable, and keeps its sessions.
    Down(Origin),
    /// It becomes reachable again. Without this action, that happens when all owners that could need it are gone.
    Up(Origin),
    /// `leash serve` gets a signal and is started again.
    RestartServe(Blow),
    /// `leash serve` reloads its configuration with another grace, in milliseconds.
    Grace(u64),
    /// A pause, in milliseconds.
    Pause(u64),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(start) => write!(
                f,
                "start {} {} {} {} {} grace={} {}={} {}",
                start.actor,
                start.driver,
                start.route,
                start.server,
                start.origin,
                start.grace,
                start.scarce.0,
                start.scarce.1,
                if start.hurry { "hurry" } else { "wait" },
            ),
            Self::Call(actor) => write!(f, "call {actor}"),
            Self::Abandon(actor) => write!(f, "abandon {actor}"),
            Self::Close(actor) => write!(f, "close {actor}"),
            Self::Delete(actor) => write!(f, "delete {actor}"),
            Self::End(actor) => write!(f, "end {actor}"),
            Self::Strike(blow, parts) => {
                write!(f, "strike {blow}")?;
                parts.iter().try_for_each(|(actor, part)| write!(f, " {actor}:{part}"))
            }
            Self::Squeeze((actor, part), scarce, most) => write!(f, "squeeze {actor}:{part} {scarce}={most}"),
            Self::Disk(disk) => write!(f, "disk {disk}"),
            Self::Forge(actor, forgery) => write!(f, "forge {actor} {forgery}"),
            Self::Starve(actor, Some(most)) => write!(f, "starve {actor} descriptors={most}"),
            Self::Starve(actor, None) => write!(f, "starve {actor} cgroups"),
            Self::Trace(actor) => write!(f, "trace {actor}"),
            Self::Force(actor) => write!(f, "force {actor}"),
            Self::Visit(route, server, origin, clients) => write!(f, "visit {route} {server} {origin} {clients}"),
            Self::Cut(origin) => write!(f, "cut {origin}"),
            Self::RestartOrigin(origin) => write!(f, "restart-origin {origin}"),
            Self::Down(origin) => write!(f, "down {origin}"),
            Self::Up(origin) => write!(f, "up {origin}"),
            Self::RestartServe(blow) => write!(f, "restart-serve {blow}"),
            Self::Grace(time) => write!(f, "grace {time}"),
            Self::Pause(time) => write!(f, "pause {time}"),
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["start", ref rest @ ..] => start(rest).map(Self::Start),
            ["call", actor] => number(actor).map(Self::Call),
            ["abandon", actor] => number(actor).map(Self::Abandon),
            ["close", actor] => number(actor).map(Self::Close),
            ["delete", actor] => number(actor).map(Self::Delete),
            ["end", actor] => number(actor).map(Self::End),
            ["strike", blow, ref parts @ ..] => {
                Ok(Self::Strike(blow.parse()?, parts.iter().map(|word| part(word)).collect::<Result<_, _>>()?))
            }
            ["squeeze", whom, limit] => {
                let (scarce, most) = scarcity(limit)?;
                Ok(Self::Squeeze(part(whom)?, scarce, most))
            }
            ["disk", disk] => disk.parse().map(Self::Disk),
            ["forge", actor, forgery] => Ok(Self::Forge(number(actor)?, forgery.parse()?)),
            ["starve", actor, "cgroups"] => Ok(Self::Starve(number(actor)?, None)),
            ["starve", actor, limit] => match scarcity(limit)? {
                (Scarce::Descriptors, most) => Ok(Self::Starve(number(actor)?, Some(most))),
                _ => Err(format!("nothing that can happen: `{line}`")),
            },
            ["trace", actor] => number(actor).map(Self::Trace),
            ["force", actor] => number(actor).map(Self::Force),
            ["visit", route, server, origin, clients] => {
                Ok(Self::Visit(route.parse()?, server.parse()?, origin.parse()?, number(clients)?))
            }
            ["cut", origin] => origin.parse().map(Self::Cut),
            ["restart-origin", origin] => origin.parse().map(Self::RestartOrigin),
            ["down", origin] => origin.parse().map(Self::Down),
            ["up", origin] => origin.parse().map(Self::Up),
            ["restart-serve", blow] => blow.parse().map(Self::RestartServe),
            ["grace", time] => number(time).map(Self::Grace),
            ["pause", time] => number(time).map(Self::Pause),
            _ => Err(format!("nothing that can happen: `{line}`")),
        }
    }
}

fn start(words: &[&str]) -> Result<Start, String> {
    let [actor, driver, route, server, origin, grace, scarce, wait] = words else {
        return Err(format!("start needs eight words: `{}`", words.join(" ")));
    };
    let grace = grace.strip_prefix("grace=").ok_or("start lacks grace=")?;
    Ok(Start {
        actor: number(actor)?,
        driver: driver.parse()?,
        route: route.parse()?,
        server: server.parse()?,
        origin: origin.parse()?,
        grace: number(grace)?,
        scarce: scarcity(scarce)?,
        hurry: *wait == "hurry",
    })
}

fn scarcity(word: &str) -> Result<(Scarce, u64), String> {
    let (scarce, most) = word.split_once('=').ok_or_else(|| format!("`{word}` does not say what is scarce"))?;
    Ok((scarce.parse()?, number(most)?))
}

fn part(word: &str) -> Result<(u32, Part), String> {
    let (actor, part) = word.split_once(':').ok_or_else(|| format!("`{word}` is not ACTOR:PART"))?;
    Ok((number(actor)?, part.parse()?))
}

pub(crate) fn number<N: FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}
