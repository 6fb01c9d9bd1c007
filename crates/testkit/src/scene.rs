//! The surroundings of one test case, which end with it: a private directory, a user, the census, the outer cgroup.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Pid;

use crate::census::Census;
use crate::cgroup::{Outer, PidsBound};
use crate::host::{Host, Manner};
use crate::leash::{self, Answer};
use crate::process::Survivors;
use crate::pty::Pty;
use crate::sys::{self, Step};
use crate::turn::Turn;
use crate::user::{User, Who};
use crate::user_bus::UserBus;
use crate::wait::{self, LIMIT};

/// The coverage output of a program that was built by `cargo xtask sanitise coverage`. Other programs ignore it.
const PROFILE: &str = "LLVM_PROFILE_FILE";

/// The surroundings of one test case. Dropping it kills the processes and removes the files that are left.
#[derive(Debug)]
pub struct Scene {
    // Dropped in this order: first the processes, then what they used.
    outer: Option<Outer>,
    census: Census,
    bound: Option<PidsBound>,
    user: User,
    /// The user manager that `unit` needs.
    bus: Option<Rc<UserBus>>,
    /// Keeps fork bombs of other tests away while the manager is needed.
    quiet: Option<Turn>,
    env: Vec<(OsString, OsString)>,
    /// Another `leash` than the one that the tests were built with.
    other_leash: Option<PathBuf>,
    dir: Directory,
    /// Dropped last: then the test must have no more processes than it had before.
    _guard: Option<Ending>,
}

/// Fails a test that leaves a process behind, including a zombie, which the census cannot see. A test may have several
/// scenes at once; the check runs when the last one is dropped.
#[derive(Debug)]
struct Ending;

#[cfg(feature = "guard")]
type Scenes = (usize, Option<leash_tree::leak::Guard>);

#[cfg(feature = "guard")]
static SCENES: std::sync::Mutex<Scenes> = std::sync::Mutex::new((0, None));

impl Ending {
    fn begin() -> Self {
        #[cfg(feature = "guard")]
        {
            let mut scenes = SCENES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if scenes.0 == 0 {
                // Descriptors are not checked: a test may hold some beside its scene, and close them later.
                scenes.1 = leash_tree::leak::guard_alone().map(|guard| guard.ignoring(""));
            }
            scenes.0 += 1;
        }
        Self
    }
}

#[cfg(feature = "guard")]
impl Drop for Ending {
    fn drop(&mut self) {
        let mut scenes = SCENES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        scenes.0 -= 1;
        let last = if scenes.0 == 0 { scenes.1.take() } else { None };
        // The guard may panic in its drop, and other scenes still need the lock.
        drop(scenes);
        drop(last);
    }
}

impl Scene {
    /// Sets up a scene for `who`. The error says why that is not possible.
    pub fn set(who: Who) -> Result<Self, String> {
        let ending = Ending::begin();
        let user = User::find(who)?;
        let dir = Directory::create(&user);
        let outer = Outer::create().inspect_err(|why| crate::note(&format!("no outer cgroup: {why}"))).ok();
        Ok(Self {
            outer,
            census: Census::create(dir.0.join("census")),
            bound: None,
            user,
            bus: None,
            quiet: None,
            env: Vec::new(),
            other_leash: None,
            dir,
            _guard: Some(ending),
        })
    }

    /// Sets up a scene next to a running user manager, for its user. The outer cgroup is the one around both.
    pub fn set_with(bus: &Rc<UserBus>) -> Self {
        let user = User::numbered(bus.uid());
        let dir = Directory::create(&user);
        Self {
            outer: Some(Outer::borrow(bus.cgroup())),
            census: Census::create(dir.0.join("census")),
            bound: None,
            user,
            bus: Some(Rc::clone(bus)),
            quiet: Turn::quiet().ok(),
            env: Vec::new(),
            other_leash: None,
            dir,
            // The manager's own processes start and exit at any time.
            _guard: None,
        }
    }

    /// Gives the outer cgroup to the user, so that leash can make a leaf in it. The error says why that is not
    /// possible.
    pub fn delegate(&self) -> Result<(), String> {
        let outer = self.outer.as_ref().ok_or("there is no outer cgroup")?;
        if self.user.is_root() {
            return Ok(());
        }
        let bound = self.bound.as_ref().map_or(Ok(()), |bound| bound.delegate(self.user.uid()));
        outer
            .delegate(self.user.uid())
            .and(bound)
            .map_err(|error| format!("the outer cgroup cannot be delegated: {error}"))
    }

    /// Limits the number of processes of hosts and their descendants.
    pub fn bound(&mut self, most: u32) -> Result<(), String> {
        // Otherwise this test would wait for its own turn.
        self.quiet = None;
        self.bound = Some(PidsBound::create(most, self.outer.as_ref())?);
        Ok(())
    }

    /// True if [`Scene::bound`] has made a cgroup2.
    pub fn bound_is_unified(&self) -> bool {
        self.bound.as_ref().is_some_and(PidsBound::is_unified)
    }

    /// Sets a variable for all processes that are started from now on.
    pub fn set_env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.env.push((name.into(), value.into()));
    }

    /// Uses another `leash` from now on.
    pub fn set_leash(&mut self, program: impl Into<PathBuf>) {
        self.other_leash = Some(program.into());
    }

    /// The user of all processes in the scene.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// The private directory.
    pub fn dir(&self) -> &Path {
        &self.dir.0
    }

    /// The runtime directory of leash.
    pub fn runtime_dir(&self) -> PathBuf {
        self.dir.0.join("run")
    }

    /// The paths in the ledger. A missing directory counts as empty.
    pub fn ledger(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.runtime_dir().join("sessions")).into_iter();
        entries.flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    }

    /// The census.
    pub fn census(&mut self) -> &mut Census {
        &mut self.census
    }

    /// The census, for reading.
    pub fn witness(&self) -> &Census {
        &self.census
    }

    /// The outer cgroup.
    pub fn outer(&self) -> Option<&Outer> {
        self.outer.as_ref()
    }

    /// A command of this user, with a small environment, in the outer cgroup.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.bus {
            Some(bus) => {
                let mut command = bus.command(Path::new(program.as_ref()));
                command.env_clear().envs(bus.env());
                command
            }
            None => self.plain_command(program.as_ref()),
        };
        command
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LEASH_RUNTIME_DIR", self.runtime_dir())
            .env("XDG_STATE_HOME", self.dir.0.join("state"))
            .envs(std::env::var_os(PROFILE).map(|file| (PROFILE, file)))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.dir.0)
            .stdin(Stdio::null());
        command
    }

    fn plain_command(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", &self.dir.0);
        self.user.run(&mut command);
        let outer = self.outer.iter().map(|outer| outer.join());
        let steps: Vec<Step> = outer.collect::<Result<_, _>>().expect("cannot open the outer cgroup");
        sys::prepare(&mut command, steps);
        command
    }

    /// The path of `leash` for this user.
    pub fn leash_path(&self) -> PathBuf {
        let program = self.other_leash.as_deref().unwrap_or_else(|| leash::leash());
        self.user.executable(program).expect("cannot copy leash")
    }

    /// The path of `zoo` for this user.
    pub fn zoo_path(&self) -> PathBuf {
        self.user.executable(leash::zoo()).expect("cannot copy zoo")
    }

    /// The path of `fixture` for this user.
    pub fn fixture_path(&self) -> PathBuf {
        self.user.executable(leash::fixture()).expect("cannot copy fixture")
    }

    /// A `leash` command.
    pub fn leash<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        let mut command = self.command(self.leash_path());
        command.args(words);
        command
    }

    /// A `zoo` command.
    pub fn zoo<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        let mut command = self.command(self.zoo_path());
        command.args(words);
        command
    }

    /// The command line of a `leash run` with `options` in front of `server`.
    pub fn run_words<W: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item = W>,
        server: &[OsString],
    ) -> Vec<OsString> {
        let mut words = vec![self.leash_path().into_os_string(), "run".into()];
        words.extend(options.into_iter().map(|word| word.as_ref().to_owned()));
        words.push("--".into());
        words.extend_from_slice(server);
        words
    }

    /// The command line of a tree of the zoo, in this census.
    pub fn tree<W: AsRef<OsStr>>(&self, kind: &str, options: impl IntoIterator<Item = W>) -> Vec<OsString> {
        let mut words = vec![self.zoo_path().into_os_string(), "tree".into(), kind.into()];
        words.push("--census".into());
        words.push(self.census.path().into());
        words.extend(options.into_iter().map(|word| word.as_ref().to_owned()));
        words
    }

    /// Starts a host that starts `words`, on a terminal if one is given.
    pub fn host(&self, manner: &Manner, terminal: Option<&Pty>, words: &[OsString]) -> Host {
        let mut command = self.zoo(manner.words());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(self.stderr_file());
        let bound = self.bound.iter().map(|bound| bound.join());
        let terminal = terminal.iter().map(|terminal| terminal.control());
        let steps: Vec<Step> = bound.chain(terminal).collect::<Result<_, _>>().expect("cannot prepare the host");
        sys::prepare(&mut command, steps);
        Host::new(command.spawn().expect("cannot start the host"))
    }

    pub(crate) fn stderr_file(&self) -> fs::File {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.dir.0.join("stderr"))
            .expect("cannot open the file for stderr")
    }

    /// The stderr output of hosts, leash and servers so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.dir.0.join("stderr")).unwrap_or_default()
    }

    /// The number of members in the records of the ledger. Read from disk, because it must not depend on a living
    /// leash.
    pub fn recorded_members(&self) -> usize {
        let records = self.ledger().into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        records
            .filter_map(|path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).ok()?).ok())
            .filter_map(|record| Some(record["members"].as_array()?.len()))
            .sum()
    }

    /// Runs a `leash` command to its end.
    pub fn answer<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Answer {
        let mut command = self.leash(words);
        command.output().expect("cannot start leash").into()
    }

    /// The whole output of a command, as a person sees it on a terminal with 80 columns and without colours.
    pub fn transcript(&self, words: &[&str]) -> String {
        let answer: Answer = self.leash(words).env("COLUMNS", "80").output().expect("cannot start leash").into();
        let text = format!("$ leash {}\n{}{}[{}]\n", words.join(" "), answer.stdout, answer.stderr, answer.code);
        let dir = self.dir().display().to_string();
        text.replace(&dir, "DIR").lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Waits until both witnesses say that only `others` are left.
    pub fn wait_gone(&self, others: &[Pid]) -> Result<(), Survivors> {
        self.wait_gone_within(LIMIT, others)
    }

    /// The same with another limit.
    pub fn wait_gone_within(&self, limit: Duration, others: &[Pid]) -> Result<(), Survivors> {
        self.census.wait_gone(limit)?;
        let Some(outer) = &self.outer else {
            // Without an outer cgroup no witness sees the exit of leash itself. Its last trace is its record; but a
            // killed leash leaves one for good, so this wait has no verdict.
            wait::within(Duration::from_secs(1), || self.ledger().is_empty().then_some(()));
            return Ok(());
        };
        outer.wait_only(others, limit)
    }
}

/// A directory that is removed with everything in it.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    /// Readable for all users, because programs of root and of the user share it. Contains the private directories of
    /// leash.
    fn create(user: &User) -> Self {
        let dir = std::env::temp_dir().join(crate::unique("leash-test"));
        for (path, mode) in [("", 0o755), ("run", 0o700), ("state", 0o700)] {
            let path = dir.join(path);
            fs::create_dir(&path).expect("cannot make a directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("cannot set its mode");
            user.own(&path).expect("cannot give it to the user");
        }
        Self(dir)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A test may have made one of them unwritable, and without an outer cgroup leash may still be writing to them.
        let gone = wait::within(Duration::from_secs(2), || {
            for path in ["run", "state"] {
                let _ = fs::set_permissions(self.0.join(path), fs::Permissions::from_mode(0o700));
            }
            let _ = fs::remove_dir_all(&self.0);
            (!self.0.exists()).then_some(())
        });
        if gone.is_none() {
            crate::note(&format!("cannot remove `{}`", self.0.display()));
        }
    }
}
