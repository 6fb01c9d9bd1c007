//! Help pages, and the output for missing and unknown commands.

use expect_test::expect;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::check;

#[test]
fn help() {
    check(
        &["--help"],
        &expect![[r#"
            $ leash --help
            Nothing outlives its owner: the lifecycle guarantee for MCP servers and sessions

            Usage: leash [OPTIONS] <COMMAND>

            Commands:
              run          Run a stdio server; its whole process tree dies with its owner
              connect      Give a stdio host an HTTP server; the session there is always
                           ended
              attach       Give a stdio host one server of a session that was made through
                           the control API
              guard        Hold the HTTP sessions of a program, and end them when the
                           program is gone
              serve        Serve MCP servers over HTTP; no session outlives its client
              ps           List the living MCP servers, under leash or not, and what keeps
                           each of them alive [aliases: ls, list]
              top          Watch sessions and servers live, and end them: a screen for the
                           terminal
              status       Show the gateway: its servers with their URLs, its clients, and
                           what went wrong last
              why          Show which process holds a server, the evidence, and what would
                           end it
              reap         End orphaned MCP servers, also those that other programs started
              watch        End orphans as they appear
              end          End sessions now, wait until they are gone, and print their
                           receipts [aliases: stop, kill]
              logs         Show what servers wrote to stderr, each line with its time and
                           the server's name
              history      Show what leash ended, why and how
              adopt        Put the servers of MCP clients on the leash, in their own
                           configurations
              release      Undo what `leash adopt` did
              check        Test a server or a host for leaks: what does it leave behind?
              doctor       Show which containments work on this machine, and why the others
                           do not
              upgrade      Show how leash was installed, and the command that upgrades it
              demo         See it work: a host is killed, with and without leash
              completions  Print a completion script for a shell
              man          Print the manual page (roff), or write all pages to a directory
              help         Print this message or the help of the given subcommand(s)

            Options:
                  --color <WHEN>  Use colours: auto (on a terminal), always or never
                                  [default: auto]
              -h, --help          Print help
              -V, --version       Print version

            Exit codes and JSON of every command:
            https://github.com/mcp-leash/leash/blob/main/docs/reference/commands.md
            [0]
        "#]],
    );
}

#[test]
fn help_of_run() {
    check(
        &["run", "--help"],
        &expect![[r#"
            $ leash run --help
            Run a stdio server; its whole process tree dies with its owner

            The server gets the host's own stdin, stdout and stderr: leash touches no byte.
            When the owner is gone (the host closed stdin, exited, crashed or was killed;
            the terminal was closed; leash was told to end or was killed), leash ends every
            process that the server started: end of input, wait, SIGTERM to all, wait,
            SIGKILL to all, and a proof that nothing is left.

            Variables and leash.json give defaults for the options: --max-age is
            LEASH_MAX_AGE, or "maxAge" of the "run" object in
            $XDG_CONFIG_HOME/leash/leash.json. `leash doctor -v` shows those in force.

            The exit code is the server's own, or 128 + n after signal n; 125 leash failed,
            126 cannot execute, 127 not found.

            Usage: leash run [OPTIONS] <COMMAND>...

            Arguments:
              <COMMAND>...
                      The server and its arguments; options of leash come before it

            Options:
                  --contain <NAME>
                      Use exactly this containment: sealed, unit, leaf, reaper or group
                      [default: the best that works]

                  --require <NAME>
                      Refuse to start with less than this containment

                  --grace <DURATION>
                      Time between the steps of an end (end of input, SIGTERM, SIGKILL); 0
                      kills at once

                      [default: 2s]

                  --owner <OWNER>
                      The owners of the server: parent, ancestor, stdin, tty, pid:N or none;
                      may be repeated

                      The default is the parent, the nearest ancestor that is not a wrapper
                      (sh -c, npx, env...), the other end of stdin, and the terminal if the
                      parent is in its session. Owners given here replace parent, ancestor
                      and terminal; stdin stays watched, because its end is how MCP ends a
                      server. `none` watches nothing: the session ends when the server does,
                      by `leash end`, or by a signal.

                  --max-age <DURATION>
                      End the server when it has lived this long

                  --session <ID>
                      Join the session with this id [default: a session of its own]

                      `leash end ID` ends all members of a session, wherever they were
                      started. {VARIABLE} and {VARIABLE:-default} are replaced by the
                      environment, so that one line of configuration names every host
                      session: --session '{CLAUDE_CODE_SESSION_ID}'.

                  --session-env <VARIABLE>
                      Join the session that this variable names; unset, it is a session of
                      its own

                  --name <NAME>
                      A name for listings [default: that of the package, script, module,
                      image or program]

                  --label <KEY=VALUE>
                      A label for listings and receipts; may be repeated

                  --spare <NAME>
                      Leave programs of this name alive (adb, gpg-agent...); may be repeated

                  --memory <SIZE>
                      Most memory for the whole tree, such as 512M or 2G; needs a cgroup
                      with the memory controller

                  --pids <COUNT>
                      Most processes and threads in the tree; needs a cgroup with the pids
                      controller

                  --cpu <SHARE>
                      Processor time for the whole tree: 50% of one processor, or a weight
                      such as 20 (others have 100); needs a cgroup with the cpu controller

                  --session-memory <SIZE>
                      Most memory for all trees of the session together; over it, the
                      largest tree ends. Needs a systemd user manager

                      The budget counts every tree of the session that is started with a
                      --session-memory, --session-pids or --session-cpu; the last start sets
                      the limits. A budget for all of leash is `budget` in leash.json.

                  --session-pids <COUNT>
                      Most processes and threads of the session, with one keeper for each
                      tree; as --session-memory

                  --session-cpu <SHARE>
                      Processor time of the session, written as for --cpu; as
                      --session-memory

                  --pressure-stop <DURATION>
                      Let `leash watch --pressure` end the server when memory is short and
                      it has been idle this long

                      Idle means that no process of the server used processor time, read or
                      wrote a byte. A call that only waits looks the same, so leave this out
                      for servers with such calls.

                  --cwd <DIR>
                      Start the server in this directory

                  --env <KEY=VALUE>
                      Set a variable in the server's environment; may be repeated

                  --report-fd <NUMBER>
                      Write one line of JSON to this descriptor, a pipe, when the server has
                      started, and one with the receipt at the end

                      For programs that start leash. The lines are {"started": {"name",
                      "pid", "containment"}} or {"failed": {"message", "hint", "why"}}, and
                      {"ended": RECEIPT}. The server does not inherit the descriptor.

                  --log
                      Keep a copy of the server's stderr for `leash logs`; the host gets
                      every byte all the same

                      The server's stderr is then a pipe of leash and not the host's own.
                      The server waits for a host that does not read, as it would without
                      leash; it does not notice a full disk or a killed leash. The default
                      is LEASH_RUN_LOG, because LEASH_LOG means -v.

              -v, --verbose
                      Say on stderr what happens

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

#[test]
fn help_of_ps() {
    check(
        &["ps", "--help"],
        &expect![[r#"
            $ leash ps --help
            List the living MCP servers, under leash or not, and what keeps each of them
            alive

            Usage: leash ps [OPTIONS] [SESSION]

            Arguments:
              [SESSION]  Only this session, by its id or run; an id that leash made may be
                         shortened to a unique beginning

            Options:
                  --leashed       Only the sessions of leash, not the servers that other
                                  programs started
                  --tree          Draw each session's process tree
                  --json          Print JSON
                  --watch         Stay, and show every change; with --json one document a
                                  line: a snapshot, then the changes
              -v, --verbose       Also show what each containment does not cover, and why
                                  leash uses no better one
                  --color <WHEN>  Use colours: auto (on a terminal), always or never
                                  [default: auto]
              -h, --help          Print help
            [0]
        "#]],
    );
}

#[test]
fn help_of_end() {
    check(
        &["end", "--help"],
        &expect![[r#"
            $ leash end --help
            End sessions now, wait until they are gone, and print their receipts

            All members of a session end at the same time, wherever they were started:
            servers under `leash run`, connections of `leash connect`, and what a `leash
            serve` of the same user holds for it. A member that joins meanwhile is ended,
            too. There is one receipt for each session. Sessions of other users are neither
            seen nor ended.

            The exit code is 0 when everything is proved to be gone, 1 when something is
            left or a session is not known. It is also 0 when --match, --all or --hook find
            nothing to end.

            Usage: leash end [OPTIONS] <SESSION|--match <LABEL=VALUE>|--all|--hook>

            Arguments:
              [SESSION]...
                      Sessions by id or by run; an id that leash made may be shortened to a
                      unique beginning; {VARIABLE} as in `leash run --session`

            Options:
                  --match <LABEL=VALUE>
                      Sessions with a member that has this label; * matches any text. May be
                      repeated, then all must match

                  --all
                      All sessions of this user

                  --hook
                      The session that a host's hook names on stdin, as JSON with a
                      `session_id`

                      For the SessionEnd hook of Claude Code and the like. leash ends
                      nothing when the host only continues with another conversation
                      (`reason` is clear or resume): the host keeps its servers.

                  --force
                      Kill everything at once, without a grace

                  --control <PATH>
                      The control socket of `leash serve` [default: control.sock in the
                      runtime directory]

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
fn help_of_history() {
    check(
        &["history", "--help"],
        &expect![[r#"
            $ leash history --help
            Show what leash ended, why and how

            Usage: leash history [OPTIONS] [SESSION]

            Arguments:
              [SESSION]  Only this session, with all its members, by its id or a unique
                         beginning of it

            Options:
                  --since <DURATION>   Only ends of this last time, such as 2h
                  --client <NAME|PID>  Only sessions of a gateway's client with this name or
                                       PID; * matches any text
                  --left               Only ends after which something was left
              -n, --lines <COUNT>      Number of newest receipts to show [default: 20; all
                                       for one session or with --since] [alias: --limit]
                  --json               Print JSON
                  --color <WHEN>       Use colours: auto (on a terminal), always or never
                                       [default: auto]
              -h, --help               Print help
            [0]
        "#]],
    );
}

#[test]
fn help_of_check() {
    check(
        &["check", "--help"],
        &expect![[r#"
            $ leash check --help
            Test a server or a host for leaks: what does it leave behind?

            `leash check -- COMMAND` tests a stdio server: leash starts it several times and
            asks it to exit in a different way each time (end of input, SIGTERM, both pipes
            closed; before, during and after the handshake, with a call in flight). The
            server must exit, with everything that it started, and start again. `leash check
            --url URL` tests what an HTTP server does with sessions that are ended, unknown,
            abandoned or opened by a foreign web page. `leash check --host -- COMMAND` tests
            a host: leash acts as its servers, ends the host in every way (it exits,
            SIGTERM, SIGINT, SIGHUP, its terminal is closed, SIGKILL), and lists the
            processes that survive and the sessions that were not deleted.

            Everything runs in a containment, and leash ends what is left afterwards, also
            after Ctrl-C. Each finding names the requirement of the specification and the
            harm to users. The exit code is 0 when there is no finding, 1 when there is, 2
            when the command line is wrong, 128 + n after signal n.

            Usage: leash check [OPTIONS] -- <COMMAND>...
                   leash check [OPTIONS] --url <URL>
                   leash check [OPTIONS] --host -- <COMMAND>...

            Arguments:
              [COMMAND]...
                      The server or the host, and its arguments; options of leash come
                      before it

            Options:
                  --url <URL>
                      The address of an HTTP server

                  --host
                      The command is a host, not a server

                      The host gets its servers from a configuration file in the usual
                      format: {config} in an argument, and LEASH_CHECK_CONFIG in the
                      environment, is its path. An argument that is {stdio} or {deaf}
                      becomes the command line of one stdio server, and {url} the address of
                      the HTTP server (LEASH_CHECK_URL). The host must connect to at least
                      one of them. A host that keeps running is ended when it is idle; a
                      host that finishes its work and exits is judged by what it leaves
                      behind, and is also ended while it works.

                  --grace <DURATION>
                      How long a process may take to exit once it was asked to

                      [default: 2s]

                  --ready <DURATION>
                      How long the handshake may take; for a host, how long it may take to
                      connect

                      [default: 30s]

                  --call <TOOL [JSON]>
                      The call that is in flight when a stdio server is asked to exit: a
                      tool, and its arguments as JSON [default: tools/list]

                  --expect-idle <DURATION>
                      With --url: a session must have ended after this time without a
                      request [default: not tested]

                  --pid <PID>
                      With --url: the server's process, whose memory is measured over 300
                      sessions or more

                  --token-env <VARIABLE>
                      With --url: send the bearer token that is in this variable

                  --strict
                      Count warnings as findings

                  --json
                      Print JSON

                  --junit <FILE>
                      Also write JUnit XML to this file

              -v, --verbose
                      Print progress on stderr, together with the server's own stderr

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

#[test]
fn check_of_nothing() {
    check(
        &["check"],
        &expect![[r#"
            $ leash check
            error: the following required arguments were not provided:
              --url <URL>

            Usage: leash check [OPTIONS] -- <COMMAND>...
                   leash check [OPTIONS] --url <URL>
                   leash check [OPTIONS] --host -- <COMMAND>...

            hint: `leash check --help` explains the command and its options
            [2]
        "#]],
    );
    check(
        &["check", "--url", "ftp://here"],
        &expect![[r#"
        $ leash check --url ftp://here
        error: `ftp://here` is not an address: write http://HOST:PORT/PATH or https://...

        hint: leash check --url http://127.0.0.1:3000/mcp
        [2]
    "#]],
    );
    check(
        &["check", "--", "no-such-server"],
        &expect![[r#"
        $ leash check -- no-such-server
        error: cannot start `no-such-server`
          Caused by: command `no-such-server` was not found

        hint: the command is started as it is written, without a shell
        [127]
    "#]],
    );
}

#[test]
fn help_of_upgrade() {
    check(
        &["upgrade", "--help"],
        &expect![[r#"
        $ leash upgrade --help
        Show how leash was installed, and the command that upgrades it

        leash never changes its own file: the package manager that installed it does.
        This command only names the command of that package manager, and does not use
        the network.

        Usage: leash upgrade [OPTIONS]

        Options:
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
fn help_of_doctor() {
    check(
        &["doctor", "--help"],
        &expect![[r#"
            $ leash doctor --help
            Show which containments work on this machine, and why the others do not

            leash tries each containment with a real process tree, and writes a file where
            it will write. It leaves nothing behind, not even a receipt. The exit code is 0
            when leash can keep its promise here (reaper or better, and everything else is
            fine), else 1.

            Usage: leash doctor [OPTIONS]

            Options:
              -v, --verbose
                      Show everything: all of each text, the defaults of `leash run` and
                      where they come from

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
fn help_of_demo() {
    check(
        &["demo", "--help"],
        &expect![[r#"
            $ leash demo --help
            See it work: a host is killed, with and without leash

            Usage: leash demo [OPTIONS]

            Options:
                  --color <WHEN>  Use colours: auto (on a terminal), always or never
                                  [default: auto]
              -h, --help          Print help
            [0]
        "#]],
    );
}

#[test]
fn nothing_was_said() {
    check(
        &[],
        &expect![[r#"
            $ leash
            Nothing outlives its owner: the lifecycle guarantee for MCP servers and sessions

            Usage: leash [OPTIONS] <COMMAND>

            Commands:
              run          Run a stdio server; its whole process tree dies with its owner
              connect      Give a stdio host an HTTP server; the session there is always
                           ended
              attach       Give a stdio host one server of a session that was made through
                           the control API
              guard        Hold the HTTP sessions of a program, and end them when the
                           program is gone
              serve        Serve MCP servers over HTTP; no session outlives its client
              ps           List the living MCP servers, under leash or not, and what keeps
                           each of them alive [aliases: ls, list]
              top          Watch sessions and servers live, and end them: a screen for the
                           terminal
              status       Show the gateway: its servers with their URLs, its clients, and
                           what went wrong last
              why          Show which process holds a server, the evidence, and what would
                           end it
              reap         End orphaned MCP servers, also those that other programs started
              watch        End orphans as they appear
              end          End sessions now, wait until they are gone, and print their
                           receipts [aliases: stop, kill]
              logs         Show what servers wrote to stderr, each line with its time and
                           the server's name
              history      Show what leash ended, why and how
              adopt        Put the servers of MCP clients on the leash, in their own
                           configurations
              release      Undo what `leash adopt` did
              check        Test a server or a host for leaks: what does it leave behind?
              doctor       Show which containments work on this machine, and why the others
                           do not
              upgrade      Show how leash was installed, and the command that upgrades it
              demo         See it work: a host is killed, with and without leash
              completions  Print a completion script for a shell
              man          Print the manual page (roff), or write all pages to a directory
              help         Print this message or the help of the given subcommand(s)

            Options:
                  --color <WHEN>  Use colours: auto (on a terminal), always or never
                                  [default: auto]
              -h, --help          Print help
              -V, --version       Print version

            Exit codes and JSON of every command:
            https://github.com/mcp-leash/leash/blob/main/docs/reference/commands.md

            hint: `leash --help` lists the commands
            [2]
        "#]],
    );
}

#[test]
fn an_unknown_command() {
    check(
        &["rnu"],
        &expect![[r#"
            $ leash rnu
            error: unrecognized subcommand 'rnu'

            Usage: leash [OPTIONS] <COMMAND>

            hint: `leash --help` lists the commands
            [2]
        "#]],
    );
}

#[test]
fn completions_and_man_are_generated() {
    let scene = or_skip!(Scene::set(Who::User));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = scene.answer(["completions", shell]);
        assert_eq!(script.code, 0, "{script:?}");
        // The script asks leash itself; a real bash does so in `completion.rs`.
        assert!(script.stdout.contains("LEASH_COMPLETE") && script.stdout.contains(shell), "{shell}: {script:?}");
    }
    let page = scene.answer(["man"]);
    assert!(page.stdout.starts_with(".ie"), "not a manual page: {}", page.stdout.chars().take(80).collect::<String>());
    let dir = scene.dir().join("man");
    let pages = scene.answer(["man", "--dir", &dir.display().to_string()]);
    assert_eq!(pages.code, 0, "{pages:?}");
    for name in ["run", "end", "ps", "why", "reap", "watch", "adopt", "release"] {
        assert!(page.stdout.contains(&format!("leash\\-{name}(1)")), "`{name}` is not on the page");
        let text = std::fs::read_to_string(dir.join(format!("leash-{name}.1"))).unwrap_or_default();
        assert!(text.contains("leash"), "the page of `{name}` is missing or empty");
    }
}

#[test]
fn help_fits_the_width_of_the_terminal() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let overview = scene.answer(["--help"]).stdout;
    let commands = overview.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"run") && commands.contains(&"man"), "{overview}");
    for width in [80, 90] {
        scene.set_env("COLUMNS", width.to_string());
        for words in std::iter::once(vec!["--help"]).chain(commands.iter().map(|command| vec![*command, "--help"])) {
            let help = scene.answer(&words).stdout;
            let wide = help.lines().find(|line| line.chars().count() > width);
            assert_eq!(wide, None, "{words:?} at {width} columns");
        }
    }
}
