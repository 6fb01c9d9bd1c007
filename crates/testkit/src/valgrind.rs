//! Runs programs under valgrind, and reads its reports.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::deps::Deps;
use crate::leash;
use crate::scene::Scene;

/// The first version that knows the system calls that leash needs to start a process (`pidfd_open`).
const AT_LEAST: [u32; 2] = [3, 24];

/// The roles that leash executes itself as.
const ROLES: [&str; 2] = ["mcp-supervisor", "mcp-keeper"];

/// A valgrind that can run leash.
#[derive(Clone, Debug)]
pub struct Valgrind {
    program: PathBuf,
    /// The directory of its tools, if it does not know that itself.
    tools: Option<PathBuf>,
}

impl Valgrind {
    /// Returns the machine's own valgrind if it is new enough, else the one that `cargo xtask setup` unpacked. The
    /// error says why there is none.
    pub fn find() -> Result<Self, String> {
        let own = Self { program: "valgrind".into(), tools: None };
        let unpacked = Deps::find().map(|deps| deps.valgrind().join("usr"));
        let unpacked = unpacked
            .ok()
            .map(|usr| Self { program: usr.join("bin/valgrind.bin"), tools: Some(usr.join("libexec/valgrind")) });
        let found = [Some(own), unpacked].into_iter().flatten().find(|found| found.version() >= Some(AT_LEAST));
        let [major, minor] = AT_LEAST;
        found.ok_or_else(|| {
            format!("there is no valgrind {major}.{minor} or later; `cargo xtask setup` gets one on Debian")
        })
    }

    fn version(&self) -> Option<[u32; 2]> {
        let output = self.command().arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut numbers = text.trim().strip_prefix("valgrind-")?.split('.').map(str::parse);
        Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.tools.iter().map(|tools| ("VALGRIND_LIB", tools)));
        command
    }

    /// All options of memcheck. Reports go to `dir`, one for each process.
    fn words(&self, dir: &Path) -> Vec<OsString> {
        let options = [
            "--tool=memcheck",
            // Servers are not checked. leash executes itself through `zoo`, which starts the next valgrind.
            "--trace-children=no",
            "--leak-check=full",
            "--show-leak-kinds=definite,indirect,possible",
            "--errors-for-leak-kinds=definite,indirect,possible",
            "--track-fds=yes",
            "--track-origins=yes",
            // It would start a listener for debuggers, with its own files and thread.
            "--vgdb=no",
        ];
        self.with(&options, "--log-file=", &dir.join("%p.valgrind"))
    }

    /// A command line of valgrind, whose last option names the file for its output.
    fn with(&self, options: &[&str], output: &str, file: &Path) -> Vec<OsString> {
        let joined = |name: &str, path: &Path| {
            let mut word = OsString::from(name);
            word.push(path);
            word
        };
        let tools = self.tools.iter().flat_map(|tools| ["/usr/bin/env".into(), joined("VALGRIND_LIB=", tools)]);
        let options = options.iter().map(OsString::from);
        tools.chain([self.program.clone().into()]).chain(options).chain([joined(output, file)]).collect()
    }

    /// A program in the place of leash that counts its instructions, into a file in the directory of the scene. The
    /// processes that leash executes run without valgrind.
    pub fn counting_leash(&self, scene: &Scene) -> Result<PathBuf, String> {
        let (source, library) = (scene.dir().join("own_program.c"), scene.dir().join("own_program.so"));
        fs::write(&source, include_str!("own_program.c")).map_err(|error| error.to_string())?;
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        if !compiled.as_ref().is_ok_and(ExitStatus::success) {
            return Err(format!("`cc` cannot compile own_program.c: {compiled:?}"));
        }
        // A keeper is a fork of its supervisor. Without the last option, it counts the instructions of its parent, too.
        let from_fork = "--zero-before=leash_tree::tree::keeper::Keeper::start";
        let options = ["--tool=callgrind", "--quiet", "--trace-children=no", "--vgdb=no", from_fork];
        let tool = self.with(&options, "--callgrind-out-file=", &scene.dir().join("%p.callgrind"));
        let (library, leash, tool) = (library.display(), leash::leash().display(), tool.join(OsStr::new("' '")));
        let tool = tool.display();
        let script = format!(
            "#!/bin/sh\nexport LD_PRELOAD='{library}' LEASH_PROGRAM='{leash}'\nexec '{tool}' '{leash}' \"$@\"\n"
        );
        let program = scene.dir().join("counting-leash");
        let written =
            fs::write(&program, script).and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)));
        written.map(|()| program).map_err(|error| error.to_string())
    }

    /// A program in the place of leash: executed as a supervisor or as a keeper, it executes leash in that role under
    /// valgrind.
    ///
    /// # Panics
    /// If the private directory of the scene cannot be written.
    pub fn leash(&self, scene: &Scene) -> PathBuf {
        let dir = scene.dir().join("under");
        fs::create_dir(&dir).expect("cannot make a directory");
        for role in ROLES {
            symlink(leash::leash(), dir.join(role)).expect("cannot make a link");
        }
        let program = dir.join("leash");
        fs::copy(leash::zoo(), &program).expect("cannot copy zoo");
        let mut path = dir.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let words = [vec![path], self.words(scene.dir())].concat();
        fs::write(dir.join("leash.words"), words.join(OsStr::from_bytes(b"\0")).into_vec()).expect("cannot write");
        program
    }

    /// A program of the zoo under valgrind, with its stdin and stdout.
    pub fn zoo(&self, scene: &Scene, words: &[&str]) -> Command {
        let tool = self.words(scene.dir());
        let mut command = scene.command(&tool[0]);
        command.args(&tool[1..]).arg(leash::zoo()).args(words);
        command
    }
}

/// The report of valgrind about one process.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pid of the process.
    pub pid: i32,
    /// Errors and leaks. For a process that was killed or executed another program, the ones until then.
    pub complaints: Vec<String>,
    /// Its own descriptors that were open at its exit; `None` if it was killed or executed another program.
    pub descriptors: Option<Vec<Descriptor>>,
}

/// A descriptor that was open at the exit.
#[derive(Clone, Debug)]
pub struct Descriptor {
    number: u32,
    /// The kind of the descriptor, and where it was opened.
    pub text: String,
}

impl Descriptor {
    /// True if it is neither a standard descriptor nor inherited.
    fn is_its_own(&self) -> bool {
        self.number > 2 && !self.text.contains("<inherited from parent>")
    }
}

impl Report {
    /// True if there is no complaint and no open descriptor.
    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty() && self.descriptors.as_ref().is_none_or(Vec::is_empty)
    }

    /// True if the process exited by itself.
    pub fn is_complete(&self) -> bool {
        self.descriptors.is_some()
    }

    fn parse(pid: i32, text: &str) -> Self {
        let mark = format!("=={pid}==");
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&mark)).map(str::trim).collect();
        let body = lines.iter().position(|line| line.starts_with("Parent PID:")).map_or(0, |at| at + 1);
        let (mut complaints, mut kept) = (Vec::new(), Vec::new());
        let mut listed = 0;
        for paragraph in paragraphs(&lines[body..]) {
            let first = paragraph.lines().next().unwrap_or_default();
            if paragraph.contains("FILE DESCRIPTORS:") || paragraph.contains("\nOpen ") || first.starts_with("Open ") {
                let open = descriptors(&paragraph);
                listed += open.len();
                kept.extend(open);
            } else if !SUMMARY.iter().any(|start| first.starts_with(start)) {
                complaints.push(paragraph);
            }
        }
        // `ERROR SUMMARY: 5 errors from 2 contexts`: a context is a paragraph.
        let total = lines.iter().find_map(|line| line.strip_prefix("ERROR SUMMARY: ")?.split(' ').nth(3)?.parse().ok());
        if total.is_some_and(|total: usize| total > complaints.len() + listed) {
            complaints.push(format!("{total:?} errors, of which not all are shown"));
        }
        // Messages of valgrind about itself: it has not checked a system call that it does not know.
        let own = format!("--{pid}--");
        let unknown = text.lines().filter_map(|line| line.strip_prefix(&own)?.trim().strip_prefix("WARNING: "));
        complaints.extend(unknown.filter(|line| !UNKNOWN.contains(line)).map(str::to_owned));
        kept.retain(|descriptor| descriptor.is_its_own());
        Self { pid, complaints, descriptors: total.map(|_| kept) }
    }
}

/// System calls that no valgrind knows (3.27 is the latest that was tried). It answers ENOSYS, as an old kernel would,
/// and leash uses its fallbacks for old kernels. The calls are `pidfd_send_signal`, and `clone3`, which valgrind does not
/// report.
const UNKNOWN: [&str; 1] = ["unhandled amd64-linux syscall: 424"];

/// The beginnings of the paragraphs that are no complaints.
const SUMMARY: [&str; 5] =
    ["HEAP SUMMARY:", "LEAK SUMMARY:", "All heap blocks were freed", "For lists of detected", "ERROR SUMMARY:"];

/// Joins consecutive lines.
fn paragraphs(lines: &[&str]) -> Vec<String> {
    lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty()).map(|lines| lines.join("\n")).collect()
}

/// The descriptors in a paragraph that begins `Open file descriptor 3: /dev/null` or `Open AF_UNIX socket 4: <unknown>`.
fn descriptors(paragraph: &str) -> Vec<Descriptor> {
    let mut found: Vec<Descriptor> = Vec::new();
    for line in paragraph.lines() {
        let number =
            line.strip_prefix("Open ").and_then(|rest| rest.split([' ', ':']).find_map(|word| word.parse().ok()));
        match (number, found.last_mut()) {
            (Some(number), _) => found.push(Descriptor { number, text: line.to_owned() }),
            (None, Some(last)) => last.text.push_str(&format!("\n{line}")),
            (None, None) => {}
        }
    }
    found
}

/// The reports of the processes of a scene that have exited.
///
/// # Panics
/// If the private directory of the scene cannot be read.
pub fn reports(scene: &Scene) -> Vec<Report> {
    let files = fs::read_dir(scene.dir()).expect("the scene has a directory").flatten().map(|entry| entry.path());
    let mut reports: Vec<Report> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "valgrind"))
        .filter_map(|path| {
            let pid = path.file_stem()?.to_str()?.parse().ok()?;
            Some(Report::parse(pid, &fs::read_to_string(&path).ok()?))
        })
        .collect();
    reports.sort_by_key(|report| report.pid);
    reports
}
