//! Every timeout and bound of the library, each with the reason for its value.

use std::time::Duration;

/// Time between two steps of the ending ladder. The TypeScript SDK waits 2 s after closing stdin before it sends SIGTERM
/// and 2 s more before SIGKILL; the same pace means that a server sees no difference.
pub const GRACE: Duration = Duration::from_secs(2);

/// How long top-down killing may take before the tree is frozen first. Trees of 500 ordinary processes are gone in 28 ms;
/// what is still there after 100 ms forks faster than it dies.
pub const TOP_DOWN: Duration = Duration::from_millis(100);

/// How long `cgroup.kill` may take before a leaf is searched for processes that it does not end. Trees of 50 processes are gone in
/// 2 ms, and should not pay for the search.
pub const HEADLESS: Duration = Duration::from_millis(10);

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

/// The least time from the start of a gateway's keeper to the start of the next one. A keeper that is killed again and again (by a limit
/// on processes or memory) costs one start a second, and not all of the machine.
pub const KEEPER_PAUSE: Duration = Duration::from_secs(1);

/// How long the supervisor waits beyond the ladder and [`GIVE_UP`] before it stops believing in the keeper, and how long a
/// keeper that has reported the end may take to leave. It takes a millisecond; the rest is for a machine that swaps.
pub const KEEPER_SLACK: Duration = Duration::from_secs(5);

/// What an event of a stream may have besides its message: its id, its type, and the names of the fields.
pub const EVENT_WORDS: usize = 64 * 1024;

/// Requests of one host that may be unanswered at the same time. Each needs a connection of its own; a host that asks for more
/// has its lines read when some are answered.
pub const IN_FLIGHT: usize = 64;

/// Connections of one host that are kept for the next request. After a burst of [`IN_FLIGHT`] the others are closed: nobody looks
/// after idle ones until they would be used.
pub const IDLE_CONNECTIONS: usize = 4;

/// Subscriptions of one host that may be open at the same time, besides [`IN_FLIGHT`].
pub const LISTENS: usize = 64;

/// What may wait to be sent upstream before the host is not read any more: one line of the greatest length, and so many lines.
pub const OUTBOX_BYTES: usize = LINE;
/// See [`OUTBOX_BYTES`].
pub const OUTBOX_LINES: usize = 1024;

/// What may wait to be written to the host before the upstream is not read any more; a longer line goes alone.
pub const VOICE: usize = 1024 * 1024;

/// How long the last lines may take to be written when a connection ends. The host has usually stopped reading.
pub const FLUSH: Duration = Duration::from_millis(500);

/// How long an upstream may take to accept a notification before the next line is sent all the same.
pub const ACCEPT: Duration = Duration::from_secs(10);

/// How long a stream is still read after its request was answered, or taken back. Servers should close it, and some never do.
pub const AFTER_ANSWER: Duration = Duration::from_secs(5);

/// How long the old transport may take to name its endpoint: it is the first thing on its stream.
pub const ENDPOINT: Duration = Duration::from_secs(10);

/// What is read of an answer that is no success: the error in it is passed on, a page for people is not.
pub const REFUSAL: usize = 1024 * 1024;

/// The first pause before a stream is asked for again, when the server does not say another, and the longest after failures.
pub const RECONNECT: Duration = Duration::from_secs(1);
/// See [`RECONNECT`].
pub const RECONNECT_LONGEST: Duration = Duration::from_secs(30);
/// The longest pause that a server may ask for: beyond that it means never.
pub const RETRY_LONGEST: Duration = Duration::from_secs(3600);

/// Most upstream sessions that one receipt names: a connection that lives for months may see many restarts.
pub const ENDS_NAMED: usize = 16;

/// How long the start of a tree may take before it is abandoned: containment is chosen and the server is executed.
/// Dominated by the user bus on a machine that swaps.
pub const START: Duration = Duration::from_secs(20);

/// All of the conversation with the systemd user manager. It takes 5 ms; with a hundred starts at once 2 s were not enough.
pub const BUS: Duration = Duration::from_secs(5);

/// How long the lock of a new run may be held by another process. A sweep that takes the young file for a dead one gives it back
/// in a millisecond; the rest is for a machine that swaps.
pub const NEW_LOCK: Duration = Duration::from_secs(5);

/// How often is looked where poll can't be used, because the limit on descriptors was lowered below what is polled.
pub const STARVED_LOOK: Duration = Duration::from_millis(20);

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

/// How long a connection to an upstream may take, name and TLS included. A far server takes half a second; what takes longer
/// than this is not there.
pub const CONNECT: Duration = Duration::from_secs(10);

/// How long an idle connection to an upstream is kept for the next request. Node and uvicorn close theirs after 5 s: a
/// request must not meet a connection that is being closed.
pub const POOL_IDLE: Duration = Duration::from_secs(4);

/// Most idle connections to one upstream that a gateway keeps. When a thousand clients are gone at once, as many DELETEs are sent on
/// as many connections: nobody needs those again. Who has more requests than this at any moment uses them, so they are not idle.
pub const POOL_MOST: usize = 64;

/// Most redirects that are followed in a row. Frameworks send `/mcp` to `/mcp/`; a second one is a mistake, a third a loop.
pub const REDIRECTS: usize = 3;

/// How long an upstream may take to answer DELETE. Go's client waits as long.
pub const DELETE_TRY: Duration = Duration::from_secs(5);

/// How often DELETE is sent, and the pause after the first try; every further one is twice as long. With all tries failing
/// at once that is 15 s: a server that restarts is back by then.
pub const DELETE_TRIES: u32 = 6;
/// See [`DELETE_TRIES`].
pub const DELETE_BACK_OFF: Duration = Duration::from_millis(500);

/// No further try of a DELETE begins after this: a server that lets every try run out would take a minute.
pub const DELETE_GIVE_UP: Duration = Duration::from_secs(30);

/// How long the answer to `initialize` is waited for after the client was told that it takes too long. What it opens must be
/// closed; a server that takes longer than this will not answer at all.
pub const LATE_ANSWER: Duration = Duration::from_secs(5 * 60);

/// Most bytes of the answer to `initialize` that are kept to find the protocol version in it. Servers with long instructions
/// need some 100 KiB.
pub const INITIALIZE_ANSWER: usize = 4 * 1024 * 1024;

/// How long a listener's stream may be silent before a comment is written: proxies cut after 30 to 60 s, and only a write
/// shows that the other side is gone. The TypeScript SDK's servers do it as often.
pub const STREAM_QUIET: Duration = Duration::from_secs(15);

/// How long a client's own DELETE waits for the upstream's answer; after that it is told that it will be done.
pub const CLIENT_DELETE: Duration = Duration::from_secs(6);

/// What an HTTP+SSE server may send before the address for messages, and how long that event may be. It is the first event of
/// all SDKs.
pub const SSE_ENDPOINT: usize = 64 * 1024;

/// Upstream sessions that a sweep ends at once. More would be a load on a server that has just lost its clients.
pub const SWEEP_AT_ONCE: usize = 64;

/// From this size on a gateway's book is rewritten when most of its lines are of sessions that are over. Writing it takes
/// less than a millisecond for every thousand open sessions.
pub const BOOK_REWRITE: u64 = 256 * 1024;

/// Largest book that is read: 10,000 sessions are 3 MiB, and half of the lines may be old.
pub const BOOK_MAX: u64 = 256 * 1024 * 1024;

/// What is read of the body of a 400, to see whether it speaks of the session. Such bodies have a hundred bytes.
pub const DELETE_BODY: usize = 64 * 1024;

/// How long a session without a known owner process may be silent. The Python SDK's default; long enough for a person's lunch
/// break in front of an open client, short enough that a day of abandoned clients does not pile up.
pub const IDLE: Duration = Duration::from_secs(30 * 60);

/// How long a session outlives the last process that used it. Wrappers (npx, a shell) hand a session from one process to the
/// next within milliseconds; a client that restarts itself takes seconds.
pub const LINGER: Duration = Duration::from_secs(5);

/// How long a server may take to answer `initialize`: the first `npx` or `uvx` of a server downloads it. rmcp waits as long.
pub const INIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between two pings to a client whose process is not known, where nothing else is configured. With
/// [`KEEP_ALIVE_FAILURES`] a client is silent for three to four minutes before its stream is closed: longer than a person looks at
/// a breakpoint, shorter than any idle time.
pub const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Pings in a row that a client may leave unanswered. One is a lost packet, two are a laptop that changes networks.
pub const KEEP_ALIVE_FAILURES: u32 = 3;

/// Most sessions of a gateway, as in the Python SDK. At some 8 KiB each that is 80 MiB; what asks for more is a leak.
pub const MAX_SESSIONS: usize = 10_000;

/// Largest body of a request, as in all SDKs.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// What a session keeps of its streams for `Last-Event-ID`. Some minutes of notifications; with a replay for every one of
/// [`MAX_SESSIONS`] full it would be 10 GiB, so it is bytes that were really sent and not a reservation.
pub const REPLAY: usize = 1024 * 1024;

/// How long a gateway that was told to stop waits for its sessions to end. Twice the ladder ([`GRACE`] and [`GRACE`] again)
/// and less than the 30 s of Kubernetes and the 90 s of systemd, after which we would be killed.
pub const DRAIN: Duration = Duration::from_secs(10);

/// How long the keeper of a killed gateway waits for the next gateway before it ends what is open upstream. systemd starts a unit
/// again after 100 ms if it is told nothing else.
pub const TAKEOVER: Duration = Duration::from_secs(2);

/// How long a gateway that starts waits for the next word of its predecessor's keeper. A keeper answers in milliseconds; one that is
/// stopped never does, and ends the sessions when it goes on.
pub const TAKEOVER_ANSWER: Duration = Duration::from_secs(1);

/// Longest duration in a configuration. The timer wheel holds 2^36 ms (2.2 years) and panics beyond.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// How long a client may take to send the head of a request, which includes the pause between two requests on one connection:
/// longer than the pools of common clients keep an idle connection (reqwest: 90 s), so that they and not we close it.
pub const HEADER_READ: Duration = Duration::from_secs(120);

/// Most headers of a request; hyper's own default, named here because it bounds memory.
pub const HEADERS: usize = 100;

/// Most bytes of a request's head, and the most that is read ahead on one connection.
pub const HEAD_BYTES: usize = 64 * 1024;

/// Pause after accepting failed for want of descriptors or memory: somebody has to leave first.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// After so long without such a failure the next one is worth a word again.
pub const ACCEPT_QUIET: Duration = Duration::from_secs(10);

/// A buffer from this size on is given back to the kernel as soon as it is freed. Messages are smaller as a rule, and making a
/// new mapping for each would cost more than it saves.
pub const LARGE_BUFFER: i32 = 1024 * 1024;

/// From so many connections and sessions on their memory is worth being given back when they are gone or others are in their place. Fewer take some 2 MiB.
pub const TIDE: usize = 128;

/// Connections that wait to be accepted: a burst of clients that start together.
pub const BACKLOG: u32 = 1024;

/// How long a connection may be silent before the kernel asks the peer, and between two questions.
pub const TCP_PROBE: Duration = Duration::from_secs(15);

/// Questions of the kernel that a peer may leave unanswered: with the pauses, a dead one is known within a minute.
pub const TCP_PROBES: u32 = 3;

/// How long data may stay unacknowledged before the kernel gives the peer up.
pub const TCP_UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// How long a changed configuration file must be quiet before it is read: editors write in several steps.
pub const RELOAD_QUIET: Duration = Duration::from_millis(100);

/// Most questions for a client's owner that one search answers. Each is a few bytes; the search itself costs the same for one.
pub const PEER_BATCH: usize = 4096;

/// How many processes are remembered as likely owners of the next connection. A machine has a handful of MCP clients at a
/// time; looking at one of them in vain takes some 0.1 ms.
pub const PEER_HINTS: usize = 32;

/// How long `initialize` waits for the search for its client's process, which mostly takes a few milliseconds and is over before
/// the server has answered. On a machine with ten thousand connections and no processor to spare it takes a second; a client that is
/// killed before it was found is known by its traffic alone, so that its session would stay for the idle time.
pub const PEER_SEARCH: Duration = Duration::from_secs(5);

/// Connections of a session whose process could not be found and that are asked for again when its known processes are gone. A client
/// that has more of them is one whose process can't be known.
pub const DOUBTFUL_CONNECTIONS: usize = 16;

/// Descriptors that are kept for the search for a client's process: a directory, a file and a pidfd at a time, and a pidfd for
/// each process that is found.
pub const PEER_RESERVE: usize = 16;

/// Descriptors that are kept for watching the processes that were found, one for each.
pub const WATCH_RESERVE: usize = 8;

/// Pause before a client's process is looked for again when no descriptor was free to look.
pub const PEER_RETRY: Duration = Duration::from_secs(1);

/// Pauses before a socket that no visible process holds is looked for again. A process that exits closes its sockets in
/// microseconds each, which is longer with thousands of them and no processor to spare. A client that is really hidden (in a
/// container with the host's network) waits so long for its `initialize`, once.
pub const PEER_CLOSING: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(40), Duration::from_millis(150)];

/// Largest buffer in a configuration: `maxBody` and `replay` are per request and per session, and nothing that is a gigabyte
/// long is a message.
pub const LARGEST_BUFFER: usize = 1024 * 1024 * 1024;

/// Longest line of a server's stdout, as in rmcp: the largest message of a server behind HTTP. A longer one is thrown away.
pub const LINE: usize = 16 * 1024 * 1024;

/// How long a POST waits at most for its answer before it becomes an event stream that can be resumed; at least half of that.
/// An answer within it costs one JSON body; a slower one is worth a stream, whose connection may be lost and found again.
pub const FIRST_MESSAGE: Duration = Duration::from_millis(50);

/// Pause between two comments on a silent event stream, as in the TypeScript and Python SDKs: below the idle time of any common
/// proxy, and how a dead connection is noticed.
pub const SSE_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What a client waits before it resumes a stream (`retry`). The buffer is in this very process: there is nothing to recover,
/// and a second keeps a client that is cut again and again from spinning.
pub const SSE_RETRY: Duration = Duration::from_secs(1);

/// Bytes of a server's messages that may wait for slow clients of a session before the server's stdout is no longer read. Four
/// pipes' worth: enough for a burst, little enough for ten thousand sessions.
pub const UNREAD_STREAMS: usize = 256 * 1024;

/// Bytes of a server's messages that may be in memory until connections have written them, and those of all servers whose clients
/// are of one origin, and those of all. Two of the longest messages, so that a slow download does not stop its session; 128 MiB and
/// 256 MiB in all, beyond which only servers with less than [`UNREAD_STREAMS`] in memory are read.
pub const HELD_PIPE: usize = 2 * LINE;
/// See [`HELD_PIPE`].
pub const HELD_ORIGIN: usize = HELD / 2;
/// See [`HELD_PIPE`].
pub const HELD: usize = 256 * 1024 * 1024;

/// Lines longer than [`UNREAD_STREAMS`] that are read at the same time, of all servers and of those of one origin. A line is in memory
/// before it is a message: with these it is 256 MiB at most, and 64 MiB for one origin.
pub const LONG_LINES: usize = 16;
/// See [`LONG_LINES`].
pub const LONG_LINES_ORIGIN: usize = 4;

/// How long a client may leave such messages where they are before its connection is cut, so that one slow reader does not stop
/// its session for ever. What it missed waits for it to resume.
pub const STALLED: Duration = Duration::from_secs(30);

/// Bytes that may wait for a server to read its stdin before further requests wait with their bodies in their own connections.
pub const UNWRITTEN: usize = 1024 * 1024;

/// Bytes that the requests of a session that were not answered may take: some 30,000 of them, or fewer with long ids. A client
/// that closes its connections leaves its requests in flight, so connections do not bound them.
pub const UNANSWERED: usize = 4 * 1024 * 1024;

/// After so long without a line that is no protocol, the next one is worth a word again.
pub const GARBAGE_QUIET: Duration = Duration::from_secs(10);

/// How long a server may take to answer a request that was cancelled. Servers answer such a request with an error or not at
/// all; after this it is answered in their place, so that nothing waits for ever.
pub const CANCELLED: Duration = Duration::from_secs(5);

/// How long the last words of a server are waited for when its tree is already gone: they are in the pipe, unless something
/// that could not be ended holds its other end.
pub const LAST_WORDS: Duration = Duration::from_secs(1);

/// An answer of an upstream that is not longer is awaited before its head goes to the client: head and body are one write then,
/// and one packet for most.
pub const SHORT_ANSWER: u64 = 16 * 1024;

/// Longest `initialize` that is kept for a revival. Clients send some hundred bytes; ten thousand sessions keep one each.
pub const REVIVAL: usize = 64 * 1024;

/// After so many sessions of the control API freed memory is given back to the kernel, which takes less than a millisecond.
pub const JOBS_GIVE_BACK: usize = 32;

/// Most threads for what may block: starting a server, searching /proc, reading a file. All of it is short, but a program on a
/// disk that does not answer takes one for as long as that lasts.
pub const THREADS: usize = 64;

/// How long a thread waits for the next such work.
pub const THREAD_IDLE: Duration = Duration::from_secs(1);

/// What is kept of the stderr of a server that `leash check` tests: its last lines, which mostly say why it left. They are quoted in a report.
pub const LAST_SAID: usize = 600;

/// Bytes that the bodies of all requests being served may take: 64 of the largest that are allowed by default. One origin may take a
/// half of it, and one client a quarter.
pub const BODIES: usize = 256 * 1024 * 1024;

/// How long a client may take to send a body. Four mebibytes at the speed of a bad telephone line.
pub const BODY_READ: Duration = Duration::from_secs(120);

/// The shortest pause before a stream is asked for again.
pub const RETRY_SHORTEST: Duration = Duration::from_millis(100);

/// How often a session that is being ended is looked at for members that joined meanwhile. A host that starts its server again
/// whenever it is gone would keep `leash end` busy for ever; one that does it twice or three times is not told from one that gave up.
pub const END_ROUNDS: usize = 32;

/// Longest path of a socket: what `sun_path` holds, less the byte that ends it.
pub const SOCKET_PATH: usize = 107;

/// How long a daemon may be silent on its control socket before it is asked whether it is alive, and may take to answer that. It
/// answers from memory; a machine that swaps needs seconds.
pub const CONTROL_SILENCE: Duration = Duration::from_secs(10);

/// Largest answer of the control API that its own client reads: ten thousand sessions with all that they hold.
pub const CONTROL_ANSWER: usize = 256 * 1024 * 1024;

/// How long a gateway that was started on demand stays when its starter is dead and no session is left. A worker that restarts
/// finds it; nobody else would.
pub const ON_DEMAND_LINGER: Duration = Duration::from_secs(5);

/// How long those who speak to the control API may take to read the end of their answers when everything has ended.
pub const CONTROL_LAST_WORDS: Duration = Duration::from_secs(1);

/// Most holdings that the receipt of a session of the control API names. A worker's session has a handful; one that lives for
/// months may see its servers restart, and each is some 300 bytes.
pub const JOB_HOLDINGS: usize = 1000;

/// How many sessions of the control API that are over are kept in memory, for those who ask what became of them. Older ones are
/// found by their receipts.
pub const ENDED_JOBS: usize = 100;

/// How long the end of a session of the control API waits for a server elsewhere that was asked to open a session and has not
/// answered. What it opens is deleted; of one that takes longer nobody will ever know the id.
pub const JOB_LATE_ANSWER: Duration = Duration::from_secs(5);

/// Events of the control API that wait for a reader before it is cut off.
pub const EVENT_QUEUE: usize = 256;

/// Most servers of one session of the control API.
pub const JOB_SERVERS: usize = 64;

/// Largest request of the control API: an environment has some 10 KiB, and a job has a handful of servers.
pub const CONTROL_BODY: usize = 4 * 1024 * 1024;
