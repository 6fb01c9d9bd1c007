//! A real systemd user manager with its bus, for one uid, on a machine that may have booted without systemd.
//!
//! A manager needs its own cgroup2 tree, `/run/systemd/system` (without it systemd considers the machine as not booted
//! by systemd) and, for its bus daemon, a name for the uid. All of that is arranged in a private mount namespace.
//! Outside of it only one cgroup and one directory in `/tmp` are made, which are removed at the end:
//!
//! ```text
//! /sys/fs/cgroup/NAME                    given to the uid, so that its manager may move processes between the two below
//!                    /user@UID.service   the manager and its units
//!                    /session.scope      where `command` starts, as a login session is next to the manager
//! /tmp/NAME/run                          XDG_RUNTIME_DIR, also visible outside of the namespace
//! ```
//!
//! A small shell, the anchor, holds the namespace. It waits for the end of its stdin, which this process holds, and
//! then cleans up: when the [`UserBus`] is dropped, and also when the test is killed.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::user::User;

/// Arranges the namespace, starts the manager, prints `ready` or the reason of a failure, and cleans up at the end of
/// stdin. Arguments: name, uid, gid, directory.
const ANCHOR: &str = r#"
name=$1 uid=$2 gid=$3 base=$4
cgroup=/sys/fs/cgroup/$name
fail() { echo "$1: $(tail -n 3 "$base/log" | tr '\n' ' ')"; exit 1; }
tidy() {
    if [ -d "$cgroup" ]; then
        echo 1 > "$cgroup/cgroup.kill"
        tries=0
        while grep -q 'populated 1' "$cgroup/cgroup.events" && [ $((tries += 1)) -lt 1000 ]; do sleep 0.01; done
        find "$cgroup" -depth -type d -exec rmdir {} \;
    fi
    rm -rf "$base"
}
as_user="setpriv --reuid $uid --regid $gid --clear-groups -- env -i PATH=/usr/bin:/bin HOME=$base/home
    XDG_RUNTIME_DIR=$base/run DBUS_SESSION_BUS_ADDRESS=unix:path=$base/run/bus"
# Neither a hang-up of the test's terminal nor a test that no longer listens may end what tidies up after it.
trap '' HUP INT TERM PIPE
mkdir -m 755 "$base" || exit 1
trap tidy EXIT
exec 2>> "$base/log"
mkdir -m 700 "$base/run" "$base/home" && chown "$uid:$gid" "$base/run" "$base/home" || fail 'no directory for the manager'

umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup || fail 'cannot mount cgroup2'
mkdir "$cgroup" "$cgroup/user@$uid.service" "$cgroup/session.scope" || fail 'no cgroup for the manager'
[ -e "$cgroup/cgroup.kill" ] || fail 'no cgroup.kill'
for dir in "$cgroup" "$cgroup/user@$uid.service" "$cgroup/session.scope"; do
    chown "$uid:$gid" "$dir" "$dir/cgroup.procs" "$dir/cgroup.threads" "$dir/cgroup.subtree_control" || fail 'no cgroup for the uid'
done
if ! [ -d /run/systemd/system ]; then
    [ -d /run/systemd ] || fail 'no /run/systemd'
    mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system || fail 'cannot mount /run/systemd'
fi
if ! getent passwd "$uid" > /dev/null; then
    { cat /etc/passwd; echo "leash-test:x:$uid:$gid::$base/home:/bin/sh"; } > "$base/passwd"
    mount --bind "$base/passwd" /etc/passwd || fail 'cannot name the uid'
fi

systemd=/usr/lib/systemd/systemd
[ -x "$systemd" ] || systemd=/lib/systemd/systemd
[ -x "$systemd" ] || fail 'systemd is not installed'
(
    trap - HUP INT TERM PIPE
    echo 0 > "$cgroup/user@$uid.service/cgroup.procs" &&
        exec $as_user SYSTEMD_LOG_TARGET=console "$systemd" --user >> "$base/log" 2>&1 < /dev/null
) &
tries=0
until [ -S "$base/run/systemd/private" ]; do
    [ $((tries += 1)) -lt 1000 ] && kill -0 $! || fail 'the manager does not start'
    sleep 0.01
done
# "degraded" is fine: some unit of this machine failed, which is none of our business.
state=$($as_user timeout 20 systemctl --user is-system-running --wait)
[ "$state" = running ] || [ "$state" = degraded ] || fail "the manager is $state"
# The bus daemon starts at the first connection, and the manager joins the bus a moment later.
$as_user timeout 20 busctl --user call org.freedesktop.systemd1 / org.freedesktop.DBus.Peer Ping > /dev/null || fail 'no answer over the bus'

echo ready
cat > /dev/null
"#;

/// Enters the place that [`UserBus::command`] promises, then executes the program. Arguments: pid of the anchor, name,
/// uid, gid, program and its arguments.
const ENTER: &str = r#"
anchor=$1 name=$2 uid=$3 gid=$4
shift 4
echo $$ > "/proc/$anchor/root/sys/fs/cgroup/$name/session.scope/cgroup.procs" || exit 125
# The working directory is lost with the old namespace.
exec nsenter --mount="/proc/$anchor/ns/mnt" -- sh -c 'cd "$1" || exit 125; shift; exec "$@"' sh "$PWD" \
    setpriv --reuid "$uid" --regid "$gid" --clear-groups -- "$@"
"#;

/// A running user manager. Dropping it ends everything that it and [`UserBus::command`] started.
#[derive(Debug)]
pub struct UserBus {
    name: String,
    uid: u32,
    gid: u32,
    anchor: Child,
    /// Closing it tells the anchor to clean up.
    hold: Option<ChildStdin>,
}

impl UserBus {
    /// Starts a manager for `uid`, which need not have a name. The error says why there is none.
    pub fn start(uid: u32, gid: u32) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can start a user manager for a test".to_owned());
        }
        let name = crate::unique("leash-bus");
        let mut anchor = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--", "sh", "-c", ANCHOR, "sh", &name])
            .args([uid.to_string(), gid.to_string()])
            .arg(base(&name))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal to the group of the test must not kill the anchor.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let hold = anchor.stdin.take();
        let said = anchor.stdout.take();
        // Every return below drops it, which waits for the anchor.
        let bus = Self { name, uid, gid, anchor, hold };
        let mut line = String::new();
        let heard = said.map(|said| BufReader::new(said).read_line(&mut line));
        match line.trim_end() {
            "ready" => Ok(bus),
            "" => Err(format!("no user manager: the anchor ended early ({heard:?})")),
            why => Err(format!("no user manager: {why}")),
        }
    }

    /// The manager's uid.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The environment of a session of this user.
    pub fn env(&self) -> Vec<(String, String)> {
        let base = base(&self.name).display().to_string();
        vec![
            ("XDG_RUNTIME_DIR".to_owned(), format!("{base}/run")),
            ("DBUS_SESSION_BUS_ADDRESS".to_owned(), format!("unix:path={base}/run/bus")),
            ("HOME".to_owned(), format!("{base}/home")),
        ]
    }

    /// A directory of the user, also visible outside: for files that a test and its commands share.
    pub fn home(&self) -> PathBuf {
        base(&self.name).join("home")
    }

    /// The cgroup around the manager and all commands, under a path that is valid outside of the namespace.
    pub fn cgroup(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/sys/fs/cgroup/{}", self.anchor.id(), self.name))
    }

    /// The path, valid outside, of a cgroup that `/proc/PID/cgroup` or the manager names.
    pub fn cgroup_at(&self, path: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root/sys/fs/cgroup", self.anchor.id()));
        root.join(path.trim_start_matches('/'))
    }

    /// A command as this user, in the manager's mount namespace and in a cgroup from which the manager may move it.
    /// It has [`UserBus::env`] in its environment, and the pid of the child is the pid of the program.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", ENTER, "sh", &self.anchor.id().to_string(), &self.name])
            .args([self.uid.to_string(), self.gid.to_string()])
            .arg(program)
            .envs(self.env());
        command
    }

    /// Calls `act` on a thread with this uid, for calls to the bus from the test itself.
    pub fn as_user<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        User::numbered(self.uid).act(act)
    }
}

impl Drop for UserBus {
    fn drop(&mut self) {
        drop(self.hold.take());
        // The anchor has its own timeouts.
        let _ = self.anchor.wait();
        let left = base(&self.name);
        if left.exists() {
            crate::note(&format!("the anchor left `{}`", left.display()));
        }
    }
}

/// In `/tmp`, regardless of `TMPDIR`: the user must reach it, and the path of a socket must be short.
fn base(name: &str) -> PathBuf {
    Path::new("/tmp").join(name)
}
