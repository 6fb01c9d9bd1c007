//! What can happen in an episode, as values and as lines of a replay.

use std::fmt;
use std::str::FromStr;

/// An enum whose values have a word each in a replay.
macro_rules! worded {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All there are.
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
    /// Who drives.
    Driver {
        /// A host by hand with pipes, as of Python, Go and Rust.
        Pipe = "pipe",
        /// A host by hand with socketpairs, as of Node.
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
    /// Whether it is a program of the zoo, which speaks by hand.
    pub fn is_raw(self) -> bool {
        matches!(self, Self::Pipe | Self::Socketpair)
    }
}

worded! {
    /// The way from the host to what it uses.
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
        /// Leaves when it should.
        Polite = "polite",
        /// Ignores the end of its input.
        IgnoresEof = "ignores-eof",
        /// Ignores everything but SIGKILL.
        Stubborn = "stubborn",
        /// Has a helper in a session of its own.
        Setsid = "setsid",
        /// Has a helper that forked twice.
        Daemon = "daemon",
        /// Each the parent of the next.
        Chain = "chain",
        /// All of that.
        Mixed = "mixed",
        /// Its main thread has exited; another thread serves.
        Headless = "headless",
        /// Has a helper whose main thread has exited.
        HeadlessMember = "headless-member",
        /// Has a helper in a PID namespace that was there before, where the helper's orphans go to another process.
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
    /// Whether `leash serve` is on it.
    pub fn uses_serve(self) -> bool {
        matches!(self, Self::ConnectServe | Self::ServeStdio | Self::ServeHttp)
    }

    /// Whether an upstream server is at its end.
    pub fn has_upstream(self) -> bool {
        matches!(self, Self::Connect | Self::ServeHttp)
    }

    /// Whether the host speaks HTTP.
    pub fn is_http(self) -> bool {
        matches!(self, Self::ServeStdio | Self::ServeHttp)
    }
}

impl Server {
    /// Whether the zoo has it.
    pub fn is_of_the_zoo(self) -> bool {
        !matches!(self, Self::Fixture | Self::Python | Self::Everything)
    }

    /// Whether none of its processes leaves the group of the first.
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

    /// Whether it is started with a name to be spared that no process has: leash then looks at the names of all.
    pub fn spares_a_name(self) -> bool {
        matches!(self, Self::Headless | Self::HeadlessMember)
    }
}

worded! {
    /// An HTTP server.
    Origin {
        /// Does what is asked.
        Honest = "honest",
        /// Answers DELETE by 405.
        Keeper = "refuses-delete",
    }
}

worded! {
    /// A limit on what leash and its server may have.
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
        /// Who is between `leash serve` and a keeper.
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
        /// SIGSTOP, and SIGCONT when the episode comes to its end.
        Stop = "STOP",
        /// SIGCONT.
        Cont = "CONT",
    }
}

worded! {
    /// What becomes of the disk of the ledger.
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
        /// An actor's own record, which says that the run is over and its tree gone; its keeper is killed.
        Over = "over",
        /// The same with a keeper that lives.
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

/// Somebody who begins to use something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Whom others mean by this number.
    pub actor: u32,
    /// Who drives.
    pub driver: Driver,
    /// How it gets there.
    pub route: Route,
    /// What is at the end of `leash run`.
    pub server: Server,
    /// What is at the end of HTTP.
    pub origin: Origin,
    /// `--grace` in milliseconds.
    pub grace: u64,
    /// What it has little of, and how little.
    pub scarce: (Scarce, u64),
    /// Nobody waits until it is up.
    pub hurry: bool,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Somebody begins.
    Start(Start),
    /// An actor makes a call.
    Call(u32),
    /// An actor makes a call that is never answered, and goes on.
    Abandon(u32),
    /// An actor closes what it uses, and leaves.
    Close(u32),
    /// An actor ends its HTTP session.
    Delete(u32),
    /// `leash end` of an actor's session.
    End(u32),
    /// Processes get a signal, all in one moment.
    Strike(Blow, Vec<(u32, Part)>),
    /// A running process has no more than so much of something from now on.
    Squeeze((u32, Part), Scarce, u64),
    /// Something becomes of the disk of the ledger.
    Disk(Disk),
    /// A file is forged in the ledger; some are the record of an actor.
    Forge(u32, Forgery),
    /// Leash and keeper of an actor's tree are killed in one moment, and the next leash starts with so many descriptors, or without
    /// any cgroup in sight.
    Starve(u32, Option<u64>),
    /// A process of the same user traces the keeper of an actor's tree, stops it, and never waits for it.
    Trace(u32),
    /// Leash and keeper of an actor are stopped in one moment, and `leash end --force` ends its session.
    Force(u32),
    /// So many HTTP clients open a session and a stream, make a call, and are gone at once.
    Visit(Route, Server, Origin, u64),
    /// Every connection to an upstream server is cut.
    Cut(Origin),
    /// An upstream server crashes and is started again.
    RestartOrigin(Origin),
    /// An upstream server cannot be reached any more, and keeps what it has.
    Down(Origin),
    /// It can be reached again; if nobody says so, when everybody who could need it is gone.
    Up(Origin),
    /// `leash serve` gets a signal and is started again.
    RestartServe(Blow),
    /// `leash serve` reads a configuration with another grace, in milliseconds.
    Grace(u64),
    /// Time passes, in milliseconds.
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
    let (actor, part) = word.split_once(':').ok_or_else(|| format!("`{word}` is nobody's part"))?;
    Ok((number(actor)?, part.parse()?))
}

pub(crate) fn number<N: FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}
