//! The image of the box: Debian as `debootstrap` makes it, with the files and settings in `xtask/box`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome, Step, Workspace, say};
use crate::{debian, setup};

/// A desktop without its screen: systemd, logins through PAM and sshd, the user's bus, swap in memory.
const PACKAGES: [&str; 16] = [
    "dbus",
    "dbus-user-session",
    "iproute2",
    "kmod",
    "libpam-systemd",
    "linux-image-amd64",
    "login",
    "openssh-client",
    "openssh-server",
    "passwd",
    "procps",
    "python3-minimal",
    "systemd",
    "systemd-sysv",
    "systemd-zram-generator",
    "udev",
];

/// The Debian of the box on a machine that is not a Debian.
const SUITE: &str = "bookworm";

/// The programs that make and run the box, and their packages.
const PROGRAMS: [(&str, &str); 3] =
    [("debootstrap", "debootstrap"), ("mkfs.ext4", "e2fsprogs"), ("qemu-system-x86_64", "qemu-system-x86")];

/// The files of the box.
pub(crate) struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    pub(crate) root: PathBuf,
}

impl Image {
    /// Makes the image, unless it was made before with the same recipe.
    pub(crate) fn make(workspace: &Workspace) -> Outcome<Image> {
        requirements()?;
        let dir = workspace.target.join("box/image");
        let files = workspace.root.join("xtask/box");
        let suite = suite();
        let recipe = format!("{suite} {PACKAGES:?}\n{}", contents(&files, &files)?);
        setup::once(&dir, &recipe, || build(&dir, &files, &suite))?;
        Ok(Image { kernel: dir.join("vmlinuz"), initrd: dir.join("initrd"), root: dir.join("root.ext4") })
    }
}

/// Installs the programs that the box needs. The error says what is missing.
pub(crate) fn requirements() -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::new("the box needs an x86_64 machine"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("the box is made by root; `sudo cargo xtask box` makes it"));
    }
    let missing = || PROGRAMS.iter().filter(|(program, _)| !is_installed(program));
    let packages: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if !packages.is_empty() {
        setup::apt_install(&packages)?;
    }
    match missing().next() {
        Some((program, package)) => Err(Failure::new(format!("`{program}` of the package `{package}` is missing"))),
        None => Ok(()),
    }
}

fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists())
}

/// The Debian of this machine: the programs that were built here run on its libraries.
fn suite() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match (value("ID"), value("VERSION_CODENAME")) {
        (Some("debian"), Some(codename)) => codename.to_owned(),
        _ => SUITE.to_owned(),
    }
}

fn build(dir: &Path, files: &Path, suite: &str) -> Outcome {
    let root = dir.join("root");
    say("Making", format!("the box: Debian {suite}, takes some minutes"));
    let include = format!("--include={}", PACKAGES.join(","));
    let repository = debian::repository()?;
    setup::again(|| {
        if root.exists() {
            fs::remove_dir_all(&root).map_err(Failure::at(&root))?;
        }
        Step::new("debootstrap")
            .args(["--variant=minbase", &include, suite])
            .args([root.as_os_str(), repository.as_ref()])
            .quietly()
    })?;
    let copied = files.join("root/.");
    Step::new("cp")
        .args(["-r".as_ref(), "--no-preserve=ownership".as_ref(), copied.as_os_str(), root.as_os_str()])
        .quietly()?;
    let inside = root.join("configure");
    fs::copy(files.join("configure"), &inside).map_err(Failure::at(&inside))?;
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)).map_err(Failure::at(&inside))?;
    Step::new("chroot").args([root.as_os_str(), "/configure".as_ref()]).quietly()?;
    fs::remove_file(&inside).map_err(Failure::at(&inside))?;
    for (from, to) in [("vmlinuz-", "vmlinuz"), ("initrd.img-", "initrd")] {
        let found = file_with(&root.join("boot"), from)?;
        fs::copy(&found, dir.join(to)).map_err(Failure::at(&found))?;
    }
    let image = dir.join("root.ext4");
    Step::new("mkfs.ext4")
        .args(["-q".as_ref(), "-F".as_ref(), "-d".as_ref(), root.as_os_str(), image.as_os_str(), "2G".as_ref()])
        .quietly()?;
    fs::remove_dir_all(&root).map_err(Failure::at(&root))
}

/// The file in `dir` whose name begins with `start`.
fn file_with(dir: &Path, start: &str) -> Outcome<PathBuf> {
    let entries = fs::read_dir(dir).map_err(Failure::at(dir))?.flatten();
    let found = entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start)));
    found.ok_or_else(|| Failure::new(format!("`{}` has no file `{start}...`", dir.display())))
}

/// The contents of all files below `dir` in order, with their names relative to `top`: the part of the recipe that is
/// not in this file. A repository in another place makes the same image.
fn contents(top: &Path, dir: &Path) -> Outcome<String> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(dir).map_err(Failure::at(dir))?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut text = String::new();
    for path in paths {
        text += &match path.is_dir() {
            true => contents(top, &path)?,
            false => {
                let name = path.strip_prefix(top).unwrap_or(&path).display();
                format!("{name}\n{}", fs::read_to_string(&path).map_err(Failure::at(&path))?)
            }
        };
    }
    Ok(text)
}
