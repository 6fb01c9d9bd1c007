//! The virtual machine: boots the image, shows what the tests print, and reads how they ended.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::wait;

use super::image::Image;
use crate::step::{Failure, Outcome, Step, Workspace, say};

/// The memory of the machine in the report: too little for servers that leak.
const MEMORY: &str = "2048";

/// The whole process suite takes far less, also without hardware support.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

/// Enough for a kernel to print its first line, and far too little for an accelerator that hangs.
const FIRST_LINE: Duration = Duration::from_secs(15);

/// Room for the counters of some dozen programs; the file is sparse.
const COUNTERS: u64 = 1 << 30;

const STEP: Duration = Duration::from_millis(100);

/// The line with which the box ends its results.
const LAST_LINE: &str = "box: exit ";

/// The use of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Run the tests of the second disk.
    Tests,
    /// Log in on this terminal.
    Shell,
}

/// A machine that can be booted.
pub(crate) struct Machine<'a> {
    image: &'a Image,
    payload: &'a Path,
    /// The third disk, for counters.
    counters: Option<PathBuf>,
    dir: PathBuf,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(workspace: &Workspace, image: &'a Image, payload: &'a Path) -> Self {
        Self { image, payload, counters: None, dir: workspace.target.join("box") }
    }

    /// Adds an empty third disk. After the boot, this file is the archive that the tests left there.
    pub(crate) fn with_counters(mut self) -> Outcome<(Self, PathBuf)> {
        let path = self.dir.join("counters.tar");
        let file = File::create(&path).map_err(Failure::at(&path))?;
        file.set_len(COUNTERS).map_err(Failure::at(&path))?;
        self.counters = Some(path.clone());
        Ok((self, path))
    }

    /// Boots it, and waits until it has switched itself off.
    pub(crate) fn boot(&self, purpose: Purpose) -> Outcome {
        let accelerator = self.accelerator()?;
        say("Booting", format!("the box ({accelerator})"));
        match purpose {
            Purpose::Shell => self.step(accelerator, "box.shell").args(["-serial", "mon:stdio"]).run(),
            Purpose::Tests => self.run_tests(accelerator),
        }
    }

    fn run_tests(&self, accelerator: &str) -> Outcome {
        let (results, console) = (self.dir.join("results.log"), self.dir.join("console.log"));
        File::create(&results).map_err(Failure::at(&results))?;
        let port = format!("file,id=results,path={}", results.display());
        let step = self
            .step(accelerator, "")
            .args(["-serial".to_owned(), format!("file:{}", console.display())])
            .args(["-device", "virtio-serial", "-chardev", &port])
            .args(["-device", "virtserialport,chardev=results,name=results"]);
        let text = Running::start(step, Stdio::inherit())?.show(&results)?;
        let code = text.lines().rev().find_map(|line| line.strip_prefix(LAST_LINE));
        match code {
            Some("0") => Ok(()),
            Some(_) => Err(Failure::new("tests failed in the box")),
            None => {
                let said =
                    fs::read(&console).map(|text| last_lines(&String::from_utf8_lossy(&text))).unwrap_or_default();
                Err(Failure::new(format!("the box ended before its tests did; its console said:\n{said}")))
            }
        }
    }

    /// The emulator without its consoles.
    fn step(&self, accelerator: &str, parameter: &str) -> Step {
        let disk = |path: &Path, more: &str| format!("file={},if=virtio,format=raw,{more}", path.display());
        // `psi=1`: the kernel of Debian measures pressure only on request. `no_timer_check`: on a busy machine the emulated
        // timer fails the kernel's test. `snapshot`: nothing is written to the image.
        let parameters = format!("root=/dev/vda rw console=ttyS0 psi=1 no_timer_check quiet {parameter}");
        let step = Step::new("qemu-system-x86_64")
            .args(["-accel", accelerator, "-cpu", "max", "-smp", "2", "-m", MEMORY])
            .args(["-nodefaults", "-display", "none", "-append", &parameters])
            .args([
                "-kernel".as_ref(),
                self.image.kernel.as_os_str(),
                "-initrd".as_ref(),
                self.image.initrd.as_os_str(),
            ])
            .args(["-drive", &disk(&self.image.root, "snapshot=on")])
            .args(["-drive", &disk(self.payload, "readonly=on")]);
        match &self.counters {
            Some(counters) => step.args(["-drive", &disk(counters, "cache=unsafe")]),
            None => step,
        }
    }

    /// KVM if it works. On some machines /dev/kvm exists and a guest makes no progress.
    fn accelerator(&self) -> Outcome<&'static str> {
        const EMULATED: &str = "tcg,thread=multi";
        if !Path::new("/dev/kvm").exists() {
            return Ok(EMULATED);
        }
        let console = self.dir.join("kvm.log");
        File::create(&console).map_err(Failure::at(&console))?;
        let step = Step::new("qemu-system-x86_64")
            .args(["-accel", "kvm", "-cpu", "max", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot"])
            .args(["-kernel".as_ref(), self.image.kernel.as_os_str()])
            .args(["-append", "console=ttyS0 panic=-1"])
            .args(["-serial".to_owned(), format!("file:{}", console.display())]);
        let mut guest = Running::start(step, Stdio::null())?;
        let works = wait::every(STEP, FIRST_LINE, || {
            let has_printed = fs::metadata(&console).is_ok_and(|file| file.len() > 0);
            (has_printed || !guest.is_alive()).then_some(has_printed)
        });
        Ok(if works == Some(true) { "kvm" } else { EMULATED })
    }
}

/// A running emulator. Dropping it kills it.
struct Running(Child);

impl Running {
    fn start(step: Step, stderr: Stdio) -> Outcome<Self> {
        let shown = step.shown();
        let mut command: Command = step.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        // If this program is killed, the emulator must not stay.
        testkit::sys::prepare(&mut command, vec![testkit::sys::Step::DieWithParent]);
        command.spawn().map(Self).map_err(|error| Failure::new(format!("cannot start `{shown}`: {error}")))
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Shows what the box writes to `results`, until the box is off. Returns all of it.
    fn show(mut self, results: &Path) -> Outcome<String> {
        let mut file = File::open(results).map_err(Failure::at(results))?;
        let mut all = Vec::new();
        let ended = wait::every(STEP, LONGEST, || {
            let was_alive = self.is_alive();
            let shown = all.len();
            let read = file.read_to_end(&mut all);
            let new = all.get(shown..).unwrap_or_default();
            let _ = io::stdout().write_all(new).and_then(|()| io::stdout().flush());
            (!was_alive || read.is_err()).then_some(read)
        });
        let read = ended.ok_or_else(|| Failure::new("the box does not end; it was switched off"))?;
        read.map_err(Failure::at(results))?;
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
