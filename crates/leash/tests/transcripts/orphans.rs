//! Orphans of other hosts.

use expect_test::expect;

use super::check;

#[test]
fn help_of_why() {
    check(
        &["why", "--help"],
        &expect![[r#"
            $ leash why --help
            Show which process holds a server, the evidence, and what would end it

            PID may be any process of the server, or any process at all. SESSION is the id
            of a session with one server or of a run, or its beginning. NAME is the name of
            a server, under leash or not.

            Usage: leash why [OPTIONS] <PID|SESSION|NAME>

            Arguments:
              <PID|SESSION|NAME>
                      The process, the session or the server

            Options:
                  --project <DIR>
                      Also read the servers of the project in this directory; may be
                      repeated

                      leash finds the projects in which your processes work by itself. The
                      servers of a named project are certain also for processes that work
                      elsewhere.

                  --json
                      Print JSON

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

#[test]
fn help_of_reap() {
    check(
        &["reap", "--help"],
        &expect![[r#"
            $ leash reap --help
            End orphaned MCP servers, also those that other programs started

            Shows which servers would be ended, and the memory that this would free; no
            process is touched without --yes. A server is an orphan when no process outside
            of its own tree has the other ends of its stdin and stdout, or a TCP connection
            to it. A process that could not be read counts as a holder. Right before the
            first signal leash opens a pidfd of each process and judges the server again.

            These servers are in no containment of leash, so leash can't prove that nothing
            is left: after the last signal it searches all processes again, by session,
            process group, stdin, stdout, cgroup and descent, until nothing new appears. The
            exit code is 0 when leash finds no process of the ended servers any more, else
            1.

            Usage: leash reap [OPTIONS] [PID]...

            Arguments:
              [PID]...
                      Only the servers of these processes, also if they are likely orphans

            Options:
                  --yes
                      End them

                  --likely <PID>
                      Also end the server of this process if it is likely an orphan; may be
                      repeated

                  --stale
                      Also end stale hosts (terminal closed, or in swap for long), with
                      everything that they started

                  --grace <DURATION>
                      Time between SIGTERM and SIGKILL; 0 kills at once

                      [default: 2s]

                  --settle <DURATION>
                      How long the pipes of a server must be closed while its parent lives:
                      the parent may be about to end it properly

                      [default: 10s]

                  --project <DIR>
                      Also read the servers of the project in this directory; may be
                      repeated

                      leash finds the projects in which your processes work by itself. The
                      servers of a named project are certain also for processes that work
                      elsewhere.

                  --json
                      Print JSON

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

#[test]
fn help_of_watch() {
    check(
        &["watch", "--help"],
        &expect![[r#"
            $ leash watch --help
            End orphans as they appear

            leash ends a server only when two scans in a row have proved it an orphan, and
            only when it is old enough. The exit of a host starts a scan at once; otherwise
            leash scans every --interval.

            Usage: leash watch [OPTIONS]

            Options:
                  --once
                      Scan twice, end proved orphans, and exit: for cron; with --install,
                      for a timer of systemd

                  --interval <DURATION>
                      Time between scans when nothing happens

                      [default: 60s]

                  --min-age <DURATION>
                      Leave younger servers alone

                      [default: 60s]

                  --settle <DURATION>
                      How long the pipes of a server must be closed while its parent lives

                      [default: 10s]

                  --grace <DURATION>
                      Time between SIGTERM and SIGKILL; 0 kills at once

                      [default: 2s]

                  --max-memory <SIZE>
                      While all servers together use more than this, end the largest orphans
                      first; only orphans are ended

                  --pressure [<PERCENT>]
                      When memory is low, end orphans at once; when it is short, also idle
                      servers that may be stopped

                      Memory is low when less than a quarter of it is available. leash looks
                      once a second. Then it ends proved orphans of any age. Memory is short
                      when, in addition, some process had to wait for memory in PERCENT of
                      the last ten seconds (10 by default) and of the last second. Then, if
                      there are no orphans, leash ends one idle server started with `leash
                      run --pressure-stop`, the largest first, and looks again.

                  --install
                      Write and enable a systemd user unit that runs this; with --once, a
                      timer that does so every --interval

                  --uninstall
                      Stop and remove that unit

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}
