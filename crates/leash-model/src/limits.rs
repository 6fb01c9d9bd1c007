//! Every timeout and bound of the library, each with the reason for its value.

use std::time::Duration;

/// Time between two steps of the ending ladder. The TypeScript SDK waits 2 s after closing stdin before it sends
/// SIGTERM and 2 s more before SIGKILL. With the same grace a server sees no difference.
pub const GRACE: Duration = Duration::from_secs(2);

/// The time for top-down killing before the killer freezes the tree first. Trees of 500 ordinary processes are gone in
/// 28 ms; a tree that is still there after 100 ms forks faster than it dies.
pub const TOP_DOWN: Duration = Duration::from_millis(100);

/// The time for `cgroup.kill` before the killer searches a leaf for processes that it does not end. Trees of 50
/// processes are gone in 2 ms, and should not pay for the search.
pub const HEADLESS: Duration = Duration::from_millis(10);

/// The time for killing before the receipt reports the rest as `left`. A fork bomb of 1000 took 12 s. A process in D
/// state (a dead network disk) can take for ever, and leash must not.
pub const GIVE_UP: Duration = Duration::from_secs(20);

/// The time for killing if leash may signal none of the processes that are left (another uid). Waiting for all of
/// [`GIVE_UP`] is pointless then. Such processes often exit by themselves once their parent is gone, so they get a
/// moment.
pub const GIVE_UP_FORBIDDEN: Duration = Duration::from_secs(2);

/// The longest pause between two rounds of killing. The death of a child wakes the killer at once (SIGCHLD). The pause
/// covers changes without a signal, such as a process moved into the leaf from outside.
pub const KILL_ROUND: Duration = Duration::from_millis(5);

/// The time that a supervisor waits for its keeper to confirm an order before it takes over. A living keeper answers in
/// less than a millisecond; one that is stopped (SIGSTOP, a debugger) never does.
pub const KEEPER_ANSWER: Duration = Duration::from_secs(1);

/// The pause of the keeper of upstream sessions after it has read messages. Some fifty messages of a busy gateway come
/// meanwhile, and its socket has room for more than a hundred.
pub const KEEPER_READS: Duration = Duration::from_millis(2);

/// The least time from the start of a gateway's keeper to the start of the next one. If a limit on processes or memory
/// kills the keeper again and again, that costs one start a second, and not the whole machine.
pub const KEEPER_PAUSE: Duration = Duration::from_secs(1);

/// The time that the supervisor waits beyond the ladder and [`GIVE_UP`] before it stops trusting the keeper. Also the
/// time that a keeper may take to exit after it has reported the end. It takes a millisecond; the rest is for a machine
/// that swaps.
pub const KEEPER_SLACK: Duration = Duration::from_secs(5);

/// The most bytes of one text of a failed start: the longest path that the kernel accepts. A message between processes of
/// leash has at most five such texts, so it fits into a socket's buffer (208 KiB) even if JSON must escape every byte.
pub const FAILURE_TEXT: usize = 4096;

/// The size of an event of a stream without its message: its id, its type, and the names of the fields.
pub const EVENT_OVERHEAD: usize = 64 * 1024;

/// Requests of one host that may be in flight at the same time. Each needs a connection of its own. The lines of a host
/// with more requests are read when some are answered.
pub const IN_FLIGHT: usize = 64;

/// Idle connections of one host that are kept for the next request. After a burst of [`IN_FLIGHT`] the others are
/// closed: no code checks idle connections until the next request uses them.
pub const IDLE_CONNECTIONS: usize = 4;

/// Subscriptions of one host that may be open at the same time, besides [`IN_FLIGHT`].
pub const SUBSCRIPTIONS: usize = 64;

/// The most bytes and lines that may wait to be sent upstream before leash stops reading the host: one line of the
/// greatest length, and [`OUTBOX_LINES`] lines.
pub const OUTBOX_BYTES: usize = LINE;
/// See [`OUTBOX_BYTES`].
pub const OUTBOX_LINES: usize = 1024;

/// The most bytes that may wait to be written to the host before leash stops reading the upstream. A longer line is
/// written alone.
pub const HOST_QUEUE: usize = 1024 * 1024;

/// The time to write the last lines when a connection ends. The host has usually stopped reading.
pub const FLUSH: Duration = Duration::from_millis(500);

/// The time that an upstream may take to accept a notification before leash sends the next line anyway.
pub const ACCEPT: Duration = Duration::from_secs(10);

/// The time that leash still reads a stream after its request was answered or cancelled. Servers should close it, and
/// some never do.
pub const AFTER_ANSWER: Duration = Duration::from_secs(5);

/// The time that the HTTP+SSE transport may take to name its endpoint: it is the first event on its stream.
pub const ENDPOINT: Duration = Duration::from_secs(10);

/// The most bytes read of an error response: leash passes on a JSON-RPC error in it, but not an HTML page.
pub const REFUSAL: usize = 1024 * 1024;

/// The first pause before a stream is requested again, if the server names no other.
pub const RECONNECT: Duration = Duration::from_secs(1);
/// The longest pause after failures; see [`RECONNECT`].
pub const RECONNECT_LONGEST: Duration = Duration::from_secs(30);
/// The longest pause that a server may ask for. A longer one means never.
pub const RETRY_LONGEST: Duration = Duration::from_secs(3600);

/// The most upstream sessions that one receipt names: a connection that lives for months may see many restarts.
pub const ENDS_NAMED: usize = 16;

/// The time for which a supervisor of many trees stays when it has none: the next tree starts faster then.
pub const SUPERVISOR_IDLE: Duration = Duration::from_secs(1);

/// The time after which a supervisor of many trees looks again, with the next start, for trees without a living leash.
pub const SWEEP_AGAIN: Duration = Duration::from_secs(10);

/// The time for the start of a tree, in which leash chooses the containment and executes the server. Most of it is the
/// user bus on a machine that swaps.
pub const START: Duration = Duration::from_secs(20);

/// The time for the whole conversation with the systemd user manager. It takes 5 ms; with a hundred starts at once 2 s
/// were not enough.
pub const BUS: Duration = Duration::from_secs(5);

/// The time for which another process may hold the lock of a new run. A sweep that takes the new file for a dead run's
/// gives it back in a millisecond; the rest is for a machine that swaps.
pub const NEW_LOCK: Duration = Duration::from_secs(5);

/// The interval between two looks if poll can't be used, because the limit on descriptors is lower than the number of
/// polled ones.
pub const STARVED_LOOK: Duration = Duration::from_millis(20);

/// The longest grace of a sweep, whatever grace the dead run had: a start of leash waits for it.
pub const SWEEP_GRACE: Duration = GRACE;

/// The longest pause between two looks of a sweep. Deaths end the pause early; a look reads all of /proc.
pub const SWEEP_ROUND: Duration = Duration::from_millis(50);

/// The time for which a server may leave its input unread after the end of stdin, before the ladder goes on. In `echo
/// REQUEST | leash run -- npx SERVER` the server starts after the pipe was closed, and may be downloaded first.
pub const UNREAD: Duration = Duration::from_secs(60);

/// The times, from its start, at which the members of a new tree are written to the ledger. Most servers have all their
/// processes within a second (npx -> sh -> node). Later leash looks at the tree every [`SNAPSHOT`].
pub const FIRST_SNAPSHOTS: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// The interval between two looks at an older tree. A look costs some 50 us for a tree of five; only changes are
/// written.
pub const SNAPSHOT: Duration = Duration::from_secs(5);

/// The most members written to the ledger. Enough for any real server; a fork bomb must not fill the runtime directory.
pub const RECORDED_MEMBERS: usize = 1024;

/// The size at which the receipts file is renamed to `.1` and a new one begins: some 5,000 receipts.
pub const RECEIPTS_ROTATE: u64 = 4 * 1024 * 1024;

/// The most bytes of the stderr of one run that leash keeps. The log is two files: the older half is dropped when the
/// newer one is full.
pub const LOG: u64 = 1024 * 1024;

/// The most bytes of all logs together. A few hundred servers may write to their logs between two looks at the sum; the
/// oldest logs are removed down to three quarters of it, so that it holds all the same.
pub const LOGS: u64 = 64 * 1024 * 1024;

/// The bytes that a log grows by before its writer looks at the sum of all logs.
pub const LOG_LOOK: u64 = 64 * 1024;

/// The time for which the keeper waits for a host that does not read the last of its server's stderr. A host that reads
/// takes it within a millisecond.
pub const LAST_STDERR: Duration = Duration::from_millis(500);

/// The largest ledger record that leash reads. A larger file is not one of ours.
pub const RECORD_MAX: u64 = 4 * 1024 * 1024;

/// The most processes that a receipt names as left. With the bounds on names and labels it keeps a receipt well below
/// the size of one message between keeper and supervisor (some 200 KiB).
pub const LEFT_NAMED: usize = 64;

/// The number of last problems that a gateway remembers for `leash status`: as many as fit on a screen.
pub const PROBLEMS: usize = 10;

/// The most labels of a session. They are for people to read.
pub const LABELS: usize = 32;
/// The longest name, label or value; see [`LABELS`].
pub const LABEL_LENGTH: usize = 256;

/// The time to connect to an upstream, with name lookup and TLS. A far server takes half a second. A server that takes
/// longer than this is not reachable.
pub const CONNECT: Duration = Duration::from_secs(10);

/// The time for which an idle connection to an upstream is kept for the next request. Node and uvicorn close theirs
/// after 5 s: a request must not use a connection that is being closed.
pub const POOL_IDLE: Duration = Duration::from_secs(4);

/// The most idle connections to one upstream that a gateway keeps. When a thousand clients are gone at once, the
/// gateway sends as many DELETEs on as many connections, and does not need those again. A gateway with more requests
/// than this at a time uses its connections, so they are not idle.
pub const POOL_MOST: usize = 64;

/// The most redirects in a row that leash follows. Frameworks redirect `/mcp` to `/mcp/`; a second redirect is a
/// mistake, a third a loop.
pub const REDIRECTS: usize = 3;

/// The time that an upstream may take to answer DELETE. Go's client waits as long.
pub const DELETE_TRY: Duration = Duration::from_secs(5);

/// The number of times that DELETE is sent. With all tries failing at once that takes 15 s: a server that restarts is
/// back by then.
pub const DELETE_TRIES: u32 = 6;
/// The pause after the first try; each further pause is twice as long. See [`DELETE_TRIES`].
pub const DELETE_BACK_OFF: Duration = Duration::from_millis(500);

/// No further try of a DELETE begins after this time: with a server that lets every try time out, all tries would take
/// a minute.
pub const DELETE_GIVE_UP: Duration = Duration::from_secs(30);

/// The time for which leash waits for the answer to `initialize` after it told the client that it takes too long. leash
/// must close the session that the answer opens. A server that takes longer than this will not answer at all.
pub const LATE_ANSWER: Duration = Duration::from_secs(5 * 60);

/// The most bytes of the answer to `initialize` that are kept to find the protocol version in it. Servers with long
/// instructions need some 100 KiB.
pub const INITIALIZE_ANSWER: usize = 4 * 1024 * 1024;

/// The time for which a listener's stream may be silent before leash writes a comment. Proxies cut silent streams after
/// 30 to 60 s, and only a write shows that the other side is gone. The TypeScript SDK's servers do it as often.
pub const STREAM_QUIET: Duration = Duration::from_secs(15);

/// The time for which a client's own DELETE waits for the upstream's answer. After that leash tells the client that it
/// will end the session.
pub const CLIENT_DELETE: Duration = Duration::from_secs(6);

/// The most bytes that an HTTP+SSE server may send before the endpoint for messages, and the longest such event. It is
/// the first event of all SDKs.
pub const SSE_ENDPOINT: usize = 64 * 1024;

/// The number of upstream sessions that a sweep ends at the same time. More would be a load on a server that has just
/// lost its clients.
pub const SWEEP_AT_ONCE: usize = 64;

/// The size from which on a gateway's book is rewritten if most of its lines are of sessions that are over. Writing it
/// takes less than a millisecond for every thousand open sessions.
pub const BOOK_REWRITE: u64 = 256 * 1024;

/// The largest book that leash reads: 10,000 sessions are 3 MiB, and half of the lines may be old.
pub const BOOK_MAX: u64 = 256 * 1024 * 1024;

/// The most bytes read of the body of a 400, to see whether it mentions the session. Such bodies have a hundred bytes.
pub const DELETE_BODY: usize = 64 * 1024;

/// The time for which a session without a known owner process may be idle. It is the Python SDK's default: long enough
/// for a lunch break of a user with an open client, short enough that a day's abandoned clients do not accumulate.
pub const IDLE: Duration = Duration::from_secs(30 * 60);

/// The time for which a living client process may leave a session without a request and without a connection. Longer
/// than a night: a user finds the sessions of the evening in the morning.
pub const ABANDONED: Duration = Duration::from_secs(12 * 60 * 60);

/// The time for which a session outlives its last client process. Wrappers (npx, a shell) hand a session from one
/// process to the next within milliseconds; a client that restarts itself takes seconds.
pub const LINGER: Duration = Duration::from_secs(5);

/// The time that a server may take to answer `initialize`: the first `npx` or `uvx` of a server downloads it. rmcp
/// waits as long.
pub const INIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The default pause between two pings to a client whose process is not known. With [`KEEP_ALIVE_FAILURES`] a client is
/// silent for three to four minutes before leash closes its stream: longer than most stops at a breakpoint, shorter
/// than any idle time.
pub const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The number of pings in a row that a client may leave unanswered. One is a lost packet, two are a laptop that changes
/// networks.
pub const KEEP_ALIVE_FAILURES: u32 = 3;

/// The most sessions of a gateway, as in the Python SDK. At some 8 KiB each that is 80 MiB. A client that needs more
/// has a leak.
pub const MAX_SESSIONS: usize = 10_000;

/// The largest body of a request, as in all SDKs.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// The bytes of its streams that a session keeps for `Last-Event-ID`: some minutes of notifications. If every one of
/// [`MAX_SESSIONS`] had a full buffer it would be 10 GiB, so only bytes that were really sent take memory.
pub const REPLAY: usize = 1024 * 1024;

/// The time for which a gateway that was told to stop waits for its sessions to end. Twice the ladder ([`GRACE`] and
/// [`GRACE`] again), and less than the 30 s of Kubernetes and the 90 s of systemd, after which they would kill us.
pub const DRAIN: Duration = Duration::from_secs(10);

/// The time for which the keeper of a killed gateway waits for the next gateway before it ends the open upstream
/// sessions. By default systemd restarts a unit after 100 ms.
pub const TAKEOVER: Duration = Duration::from_secs(2);

/// The time for which a starting gateway waits for the next message of its predecessor's keeper. A keeper answers in
/// milliseconds. A stopped one never does, and ends the sessions when it runs again.
pub const TAKEOVER_ANSWER: Duration = Duration::from_secs(1);

/// The longest duration in a configuration. The timer wheel holds 2^36 ms (2.2 years) and panics beyond.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The time after which an unused connection gives up its buffers for requests and responses, two times 8 KiB. A client
/// that makes one call after the other keeps them. To make them again takes some microseconds.
pub const CONNECTION_RESTS: Duration = Duration::from_millis(100);

/// The time that a client may take to send the head of a request, with the pause between two requests on one
/// connection. It is longer than the pools of common clients keep an idle connection (reqwest: 90 s), so that they
/// close it and not we.
pub const HEADER_READ: Duration = Duration::from_secs(120);

/// The most headers of a request; hyper's own default, named here because it bounds memory.
pub const HEADERS: usize = 100;

/// The most bytes of a request's head, and the most that leash reads ahead on one connection.
pub const HEAD_BYTES: usize = 64 * 1024;

/// The pause after accepting failed because no descriptor or memory was free: some connection has to end first.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// After this time without such a failure the next one is logged again.
pub const ACCEPT_QUIET: Duration = Duration::from_secs(10);

/// The size from which on a freed buffer is given back to the kernel at once. Messages are usually smaller, and a new
/// mapping for each would cost more than it saves.
pub const LARGE_BUFFER: i32 = 1024 * 1024;

/// The number of connections and sessions from which on their memory is given back after they are gone or replaced.
/// Fewer take some 2 MiB.
pub const HEAP_TRIM: usize = 128;

/// The number of connections that may wait to be accepted: a burst of clients that start together.
pub const BACKLOG: u32 = 1024;

/// The time for which a connection may be silent before the kernel probes the peer, and the pause between two probes.
pub const TCP_PROBE: Duration = Duration::from_secs(15);

/// The number of probes that a peer may leave unanswered: with the pauses, the kernel detects a dead peer within a
/// minute.
pub const TCP_PROBES: u32 = 3;

/// The time for which data may stay unacknowledged before the kernel closes the connection.
pub const TCP_UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The time for which a changed configuration file must stay unchanged before it is read: editors write in several
/// steps.
pub const RELOAD_QUIET: Duration = Duration::from_millis(100);

/// The most requests for a client's owner that one search answers. Each is a few bytes, and a search costs the same for
/// one as for many.
pub const PEER_BATCH: usize = 4096;

/// The number of processes that are remembered as likely owners of the next connection. A machine has a handful of MCP
/// clients at a time; a look at one that is not the owner takes some 0.1 ms.
pub const PEER_HINTS: usize = 32;

/// The time for which `initialize` waits for the search for its client's process. The search usually takes a few
/// milliseconds and is over before the server has answered. On a machine with ten thousand connections and no free
/// processor it takes a second. If a client is killed before leash found its process, only its traffic is known, so its
/// session would stay for the idle time.
pub const PEER_SEARCH: Duration = Duration::from_secs(5);

/// The most connections of a session without a known process that are searched again when its known processes are gone.
/// A client with more of them is one whose process can't be known.
pub const DOUBTFUL_CONNECTIONS: usize = 16;

/// The pause before a search confirms the owners that were remembered for a connection. A session that ends before
/// needs no search. If a client forked after the last search, and its child began a session on the inherited connection,
/// then leash knows only the parent until the pause is over or the parent exits.
pub const PEER_CONFIRM: Duration = Duration::from_millis(100);

/// Descriptors reserved for the search for a client's process: a directory, a file and a pidfd at a time, and a pidfd
/// for each process that is found.
pub const PEER_RESERVE: usize = 16;

/// Descriptors reserved for watching the processes that were found, one for each.
pub const WATCH_RESERVE: usize = 8;

/// The pause before a client's process is searched again if no descriptor was free.
pub const PEER_RETRY: Duration = Duration::from_secs(1);

/// The pauses before a socket that no visible process holds is searched again. An exiting process closes its sockets in
/// microseconds each, which adds up with thousands of them and no free processor. The `initialize` of a client that is
/// really hidden (in a container with the host's network) waits this long, once.
pub const PEER_CLOSING: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(40), Duration::from_millis(150)];

/// The largest buffer in a configuration: `maxBody` and `replay` are per request and per session, and no message is a
/// gigabyte long.
pub const LARGEST_BUFFER: usize = 1024 * 1024 * 1024;

/// The longest line of a server's stdout, as in rmcp, which is also the largest message of a server behind HTTP. A
/// longer line is dropped.
pub const LINE: usize = 16 * 1024 * 1024;

/// The longest time for which a POST waits for its response before it becomes an event stream that can be resumed; the
/// shortest is half of that. A response within it costs one JSON body. A slower one gets a stream, which a client can
/// resume after it lost the connection.
pub const FIRST_MESSAGE: Duration = Duration::from_millis(50);

/// The pause between two comments on a silent event stream, as in the TypeScript and Python SDKs. It is below the idle
/// timeout of any common proxy, and the comments show leash a dead connection.
pub const SSE_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The pause before a client resumes a stream (`retry`). The buffer is in this very process, so there is nothing to
/// recover. A second keeps a client that is cut off again and again from spinning.
pub const SSE_RETRY: Duration = Duration::from_secs(1);

/// Bytes of a server's messages that may wait for slow clients of a session before leash stops reading the server's
/// stdout. The size of four pipes: enough for a burst, little enough for ten thousand sessions.
pub const UNREAD_STREAMS: usize = 256 * 1024;

/// Bytes of one server's messages that may be in memory until connections have written them. Two of the longest
/// messages, so that a slow download does not stop its session. All servers together may have [`HELD`], and those whose
/// clients are of one origin [`HELD_ORIGIN`]. Beyond that leash reads only servers with less than [`UNREAD_STREAMS`] in
/// memory.
pub const HELD_PIPE: usize = 2 * LINE;
/// The same for all servers whose clients are of one origin; see [`HELD_PIPE`].
pub const HELD_ORIGIN: usize = HELD / 2;
/// The same for all servers; see [`HELD_PIPE`].
pub const HELD: usize = 256 * 1024 * 1024;

/// Lines longer than [`UNREAD_STREAMS`] that are read at the same time, of all servers. A line is in memory before it
/// is a message: with this bound it is 256 MiB at most, and 64 MiB for one origin.
pub const LONG_LINES: usize = 16;
/// The same for the servers of one origin; see [`LONG_LINES`].
pub const LONG_LINES_ORIGIN: usize = 4;

/// The time for which a client may leave such messages unread before leash closes its connection, so that one slow
/// reader does not stop its session for ever. The messages wait until the client resumes.
pub const STALLED: Duration = Duration::from_secs(30);

/// Bytes that may wait for a server to read its stdin. Beyond that, further requests wait in their own connections with
/// their bodies.
pub const UNWRITTEN: usize = 1024 * 1024;

/// Bytes that the unanswered requests of a session may take: some 30,000 of them, or fewer with long ids. A client that
/// closes its connections leaves its requests in flight, so connections do not bound them.
pub const UNANSWERED: usize = 4 * 1024 * 1024;

/// After this time without a line that is not JSON-RPC, the next one is logged again.
pub const GARBAGE_QUIET: Duration = Duration::from_secs(10);

/// The time that a server may take to answer a cancelled request. Servers answer such a request with an error or not at
/// all. After this time leash answers in their place, so that no client waits for ever.
pub const CANCELLED: Duration = Duration::from_secs(5);

/// The time for which leash waits for the last output of a server whose tree is already gone. The output is in the
/// pipe, unless a process that could not be ended holds its other end.
pub const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// The longest upstream response that leash reads completely before it sends the head to the client. Head and body are
/// then one write, and usually one packet.
pub const SHORT_ANSWER: u64 = 16 * 1024;

/// The longest `initialize` that is kept for a revival. Clients send some hundred bytes; ten thousand sessions keep one
/// each.
pub const REVIVAL: usize = 64 * 1024;

/// After this number of ended sessions of the control API, freed memory is given back to the kernel, which takes less
/// than a millisecond.
pub const JOBS_PER_TRIM: usize = 32;

/// The most threads for blocking work: starting a server, searching /proc, reading a file. All of it is short, but a
/// program on a disk that does not answer blocks a thread for as long as that lasts.
pub const THREADS: usize = 64;

/// The time for which a thread waits for further blocking work before it exits.
pub const THREAD_IDLE: Duration = Duration::from_secs(1);

/// The bytes that `leash check` keeps of the stderr of the server under test: its last lines, which usually say why it
/// exited. The report quotes them.
pub const STDERR_TAIL: usize = 600;

/// Bytes that the bodies of all requests being served may take: 64 of the largest that are allowed by default. One
/// origin may take half of it, and one client a quarter.
pub const BODIES: usize = 256 * 1024 * 1024;

/// The time that a client may take to send a body. Four mebibytes over a bad telephone line.
pub const BODY_READ: Duration = Duration::from_secs(120);

/// The shortest pause before a stream is requested again.
pub const RETRY_SHORTEST: Duration = Duration::from_millis(100);

/// The most rounds in which `leash end` looks for members that joined a session during its end. A host that restarts
/// its server whenever it is gone would keep `leash end` busy for ever. A host that stops after two or three restarts
/// needs only a few rounds.
pub const END_ROUNDS: usize = 32;

/// The longest path of a socket: the size of `sun_path`, less the byte that ends it.
pub const SOCKET_PATH: usize = 107;

/// The time for which a daemon may be silent on its control socket before the client asks whether it is alive, and the
/// time for that answer. The daemon answers from memory; a machine that swaps needs seconds.
pub const CONTROL_SILENCE: Duration = Duration::from_secs(10);

/// The largest response of the control API that leash's own client reads: ten thousand sessions with all that they
/// hold.
pub const CONTROL_ANSWER: usize = 256 * 1024 * 1024;

/// The time for which a gateway that was started on demand stays when its starter is dead and no session is left. A
/// worker that restarts finds it; no other client would.
pub const ON_DEMAND_LINGER: Duration = Duration::from_secs(5);

/// The time that clients of the control API may take to read the end of their responses after everything has ended.
pub const CONTROL_LAST_READ: Duration = Duration::from_secs(1);

/// The most holdings that the receipt of a session of the control API names. A worker's session has a handful. One that
/// lives for months may see its servers restart, and each holding is some 300 bytes.
pub const JOB_HOLDINGS: usize = 1000;

/// The number of ended sessions of the control API that are kept in memory, for clients that ask for their receipts.
/// Older ones are found in the receipts file.
pub const ENDED_JOBS: usize = 100;

/// The time for which the end of a session of the control API waits for an upstream that was asked to open a session
/// and has not answered. leash deletes the session that the answer opens. If the answer takes longer, leash never
/// learns its id.
pub const JOB_LATE_ANSWER: Duration = Duration::from_secs(5);

/// The number of events of the control API that wait for a reader before leash closes its connection.
pub const EVENT_QUEUE: usize = 256;

/// The most servers of one session of the control API.
pub const JOB_SERVERS: usize = 64;

/// The largest request of the control API: an environment has some 10 KiB, and a job has a handful of servers.
pub const CONTROL_BODY: usize = 4 * 1024 * 1024;

/// The bytes of a name that another program chose (a client's, a host in a request) that a message repeats: longer than
/// any real name, and short enough for a line.
pub const SAID_NAME: usize = 80;

/// The number of servers that an answer for an unknown server names.
pub const NAMED_SERVERS: usize = 20;

/// The most bytes of a line of a server's stderr that the gateway prints at once; a longer line comes in pieces. With
/// the server's name and a newline it fits into one write to a pipe (4096 bytes), which no other write divides.
pub const STDERR_PIECE: usize = 4000;

/// The pause before the gateway tries again to print a line to a stderr that takes nothing.
pub const STDERR_RETRY: Duration = Duration::from_millis(20);

/// The number of last lines of a server's stderr that the gateway keeps for the error of a client, and the bytes of each:
/// enough for the message above a stack trace.
pub const STDERR_LINES: usize = 10;
/// See [`STDERR_LINES`].
pub const STDERR_LINE: usize = 300;

/// The time for which the error for a server that exited waits for its exit code: the rest of its tree may end slowly.
pub const EXIT_FACTS: Duration = Duration::from_millis(500);

/// The time for which the kernel may slow down a tree near its memory budget before leash ends the tree.
pub const OVER_BUDGET: Duration = Duration::from_secs(5);

/// The interval at which a keeper looks at a budget of several trees that stays exceeded: the largest tree is ending, and
/// another one may become the largest.
pub const BUDGET_LOOK: Duration = Duration::from_millis(500);

/// The percentage of time in which some process waits for memory from which memory counts as short.
/// systemd-oomd, which kills programs in use, waits for 60 over 30 seconds. leash ends only what no process uses, so it
/// acts early.
pub const PRESSURE: u8 = 10;

/// The percentage of available memory from which memory is neither low nor short, whatever the pressure: one tree near its
/// own budget waits for memory, too. Below it, orphans are ended: on a machine with 2 GB, a host with ten servers of
/// 40 MiB starts with the last quarter of the memory, and the kernel begins to kill a few seconds later.
pub const ENOUGH_AVAILABLE: u8 = 25;

/// The interval between two readings of the pressure. A reading takes some 30 us, and the kernel's averages change every
/// two seconds.
pub const PRESSURE_LOOK: Duration = Duration::from_secs(1);

/// The readings in a row at which memory must be short before a gateway stops one of its trees. `leash watch` ends orphans
/// at the first one, and they are needed less.
pub const PRESSURE_LOOKS: u32 = 3;

/// The time for which leash does not search again after it found nothing to end under pressure: a search reads /proc, and
/// that is slow on a machine without memory.
pub const PRESSURE_PAUSE: Duration = Duration::from_secs(10);

/// The time for which a one-time link to the page works: long enough to open a browser.
pub const PAGE_LINK: Duration = Duration::from_secs(60);

/// The most one-time links that work at the same time.
pub const PAGE_LINKS: usize = 16;

/// The time for which the cookie of the page works after its last use: a working day.
pub const PAGE_COOKIE: Duration = Duration::from_secs(12 * 60 * 60);

/// The most cookies of the page that work at the same time.
pub const PAGE_COOKIES: usize = 32;

/// The most event streams of the page at the same time. A browser opens one for each tab.
pub const PAGE_STREAMS: usize = 16;

/// The most events that wait for a slow browser. With more, it gets a new snapshot instead.
pub const PAGE_QUEUE: usize = 4;

/// The most requests of the page that read /proc or end something at the same time.
pub const PAGE_WORK: usize = 16;

/// The largest body of a request of the page: it has one key of a row.
pub const PAGE_BODY: usize = 4096;

/// The samples of the page's charts: ten minutes, one sample a second.
pub const PAGE_SAMPLES: usize = 600;

/// The receipts that the page shows.
pub const PAGE_RECEIPTS: usize = 200;
