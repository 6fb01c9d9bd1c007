//! Every timeout and bound of the library, each with the reason for its value.

use std::time::Duration;

/// Time between two steps of the ending ladder. The TypeScript SDK waits 2 s after closing stdin before it sends SIGTERM
/// and 2 s more before SIGKILL; the same pace means that a server sees no difference.
pub const GRACE: Duration = Duration::from_secs(2);

/// How long top-down killing may take before the tree is frozen first. Trees of 500 ordinary processes are gone in 28 ms;
/// what is still there after 100 ms forks faster than it dies.
pub const TOP_DOWN: Duration = Duration::from_millis(100);

/// How long to go on killing before the rest is reported as `left`. A fork bomb of 1000 took 12 s; a process in D state
/// (a dead network disk) can take for ever, and leash must not.
pub const GIVE_UP: Duration = Duration::from_secs(20);

/// When nothing that is left may be signalled at all (another uid), waiting out [`GIVE_UP`] is pointless; a moment is
/// given because such processes often leave by themselves once their parent is gone.
pub const GIVE_UP_FORBIDDEN: Duration = Duration::from_secs(2);

/// The longest pause between two rounds of killing. Death of a child wakes the killer at once (SIGCHLD); this only covers
/// what makes no signal, such as a process moved into the leaf from outside.
pub const KILL_ROUND: Duration = Duration::from_millis(5);

/// How long a supervisor waits for its keeper to take an order before it takes over. A living keeper answers in less than
/// a millisecond; one that is stopped (SIGSTOP, a debugger) never does.
pub const KEEPER_ANSWER: Duration = Duration::from_secs(1);

/// How long the supervisor waits beyond the ladder and [`GIVE_UP`] before it stops believing in the keeper, and how long a
/// keeper that has reported the end may take to leave. It takes a millisecond; the rest is for a machine that swaps.
pub const KEEPER_SLACK: Duration = Duration::from_secs(5);

/// How long the start of a tree may take before it is abandoned: containment is chosen and the server is executed.
/// Dominated by the user bus on a machine that swaps.
pub const START: Duration = Duration::from_secs(20);

/// All of the conversation with the systemd user manager. It takes 5 ms; with a hundred starts at once 2 s were not enough.
pub const BUS: Duration = Duration::from_secs(5);

/// Longest grace of a sweep, whatever the dead run had been given: a start waits for it.
pub const SWEEP_GRACE: Duration = GRACE;

/// The longest pause between two looks of a sweep. Deaths wake it; a look reads all of /proc.
pub const SWEEP_ROUND: Duration = Duration::from_millis(50);

/// How long a server may leave its input unread after the end of it was written, before the ladder goes on. `echo REQUEST |
/// leash run -- npx SERVER` has the server start after the pipe was closed; a download may be part of that.
pub const UNREAD: Duration = Duration::from_secs(60);

/// When the members of a young tree are written to the ledger, counted from its start. Most servers have all their
/// processes within a second (npx -> sh -> node); later the tree is looked at every [`SNAPSHOT`].
pub const FIRST_SNAPSHOTS: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// How often a settled tree is looked at. It costs some 50 us for a tree of five; only changes are written.
pub const SNAPSHOT: Duration = Duration::from_secs(5);

/// Most members written to the ledger. Enough for any real server; a fork bomb must not fill the runtime directory.
pub const RECORDED_MEMBERS: usize = 1024;

/// Receipts file size at which it is renamed to `.1` and begun anew: some 5,000 receipts.
pub const RECEIPTS_ROTATE: u64 = 4 * 1024 * 1024;

/// Largest ledger record that is read; a larger file is not one of ours.
pub const RECORD_MAX: u64 = 4 * 1024 * 1024;

/// Most processes that a receipt names as left. Together with the bounds on names and labels it keeps a receipt well below
/// what fits into one message between keeper and supervisor (some 200 KiB).
pub const LEFT_NAMED: usize = 64;

/// Most labels of a session, and the longest name, label or value: they are for people to read.
pub const LABELS: usize = 32;
/// See [`LABELS`].
pub const LABEL_LENGTH: usize = 256;

/// Most questions for a client's owner that one search answers. Each is a few bytes; the search itself costs the same for one.
#[cfg(feature = "http")]
pub const PEER_BATCH: usize = 4096;

/// How many processes are remembered as likely owners of the next connection. A machine has a handful of MCP clients at a
/// time; looking at one of them in vain takes some 0.1 ms.
#[cfg(feature = "http")]
pub const PEER_HINTS: usize = 32;
