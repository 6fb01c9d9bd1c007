//! Orphans of other hosts.

use expect_test::expect;

use super::check;

#[test]
fn help_of_why() {
    check(
        &["why", "--help"],
        &expect![[r#"
            $ leash why --help
            Say who holds a server, how that is known, and what would end it

            PID may be any process of the server, or any process at all.

            Usage: leash why [OPTIONS] <PID>

            Arguments:
              <PID>
                      The process

            Options:
                  --project <DIR>
                      Also know the servers of the project in this directory; may be repeated [default: the
                      working directory]

                  --json
                      Print JSON

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
            End MCP servers that nobody holds any more, whoever started them

            Shows what would be ended, and the memory that would come back; nothing is touched without --yes. A
            server is an orphan when nobody outside of its own process tree has the other ends of its stdin and
            stdout, or a TCP connection to it. What could not be read counts as held. Right before the first
            signal each server is looked at again while it is held.

            The servers of others are in no containment of leash, so that they are gone is never proved: after
            the last signal all processes are looked at again, by session, process group, stdin, stdout, cgroup
            and descent, until nothing new appears. The exit code is 0 when no process of what was to be ended
            is found any more, else 1.

            Usage: leash reap [OPTIONS]

            Options:
                  --yes
                      End them

                  --likely <PID>
                      Also the server of this process, if it is an orphan by all that could be seen; may be
                      repeated

                  --stale
                      Also hosts that nobody can use any more, with all that they have started

                  --grace <DURATION>
                      Time between SIGTERM and SIGKILL; 0 kills at once

                      [default: 2s]

                  --settle <DURATION>
                      How long nobody must have spoken to a server whose parent lives: it may be about to end it
                      properly

                      [default: 10s]

                  --project <DIR>
                      Also know the servers of the project in this directory; may be repeated [default: the
                      working directory]

                  --json
                      Print JSON

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

            Only what two looks in a row have proved is ended, and only when it is old enough. The end of a host
            is noticed at once; otherwise the machine is looked at every --interval.

            Usage: leash watch [OPTIONS]

            Options:
                  --once
                      Look twice, end what is proved, and exit: for cron

                  --interval <DURATION>
                      How often to look when nothing happens

                      [default: 60s]

                  --min-age <DURATION>
                      Leave younger servers alone

                      [default: 60s]

                  --settle <DURATION>
                      How long nobody must have spoken to a server whose parent lives

                      [default: 10s]

                  --grace <DURATION>
                      Time between SIGTERM and SIGKILL; 0 kills at once

                      [default: 2s]

                  --max-memory <SIZE>
                      While all servers together use more than this, end the largest orphans first; nothing else
                      is ended for it

                  --install
                      Write and enable a systemd user unit that runs this

                  --uninstall
                      Remove it

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}
