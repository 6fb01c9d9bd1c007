//! The tarball and `install.sh`, for a user without privileges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::host::Manner;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::dist::{check_demo, check_killed_host, dist, everything_below, package, refuse, succeed};

const ARCHIVE: &str = "-unknown-linux-musl.tar.gz";

/// A directory with the files of a release, which the user of the scene can read.
fn release(scene: &Scene) -> Result<PathBuf, &'static str> {
    let dir = scene.dir().join("release");
    fs::create_dir(&dir).expect("the scene's directory can be written");
    for file in [package(ARCHIVE)?, dist()?.join("SHA256SUMS"), dist()?.join("install.sh")] {
        fs::copy(&file, dir.join(file.file_name().expect("it has a name"))).expect("cannot copy");
    }
    Ok(dir)
}

/// The script, for a user without HOME.
fn script(scene: &Scene, release: &Path, words: &[&str]) -> Command {
    let mut command = scene.command("sh");
    command.arg(release.join("install.sh")).args(words).env_remove("HOME");
    command
}

/// The same with `--from` and `--prefix`.
fn install(scene: &Scene, release: &Path, prefix: &Path) -> Command {
    let mut command = script(scene, release, &["--from"]);
    command.arg(release).arg("--prefix").arg(prefix);
    command
}

fn uninstall(scene: &Scene, release: &Path, prefix: &Path) -> Command {
    let mut command = script(scene, release, &["--uninstall", "--prefix"]);
    command.arg(prefix);
    command
}

#[test]
fn script_is_plain_sh() {
    let script = or_skip!(dist()).join("install.sh");
    let checked = Command::new("shellcheck").args(["--shell=sh", "--severity=style"]).arg(script).output();
    let checked: Answer = or_skip!(checked.map_err(|error| format!("shellcheck: {error}"))).into();
    assert_eq!((checked.code, checked.stdout), (0, String::new()));
}

#[test]
fn script_installs_and_removes_without_home() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let release = or_skip!(release(&scene));
    let prefix = scene.dir().join("a prefix/of mine");
    let lost = refuse(&mut script(&scene, &release, &["--from", "release"]));
    assert!(lost.stderr.contains("HOME is not set") && lost.stderr.contains("--prefix"), "{lost:?}");

    let installed = succeed(&mut install(&scene, &release, &prefix));
    assert!(installed.stdout.contains(&format!("export PATH=\"{}/bin:$PATH\"", prefix.display())), "{installed:?}");
    let leash = prefix.join("bin/leash");
    check_demo(&succeed(scene.command(&leash).arg("demo").env_remove("HOME")));
    check_killed_host(&mut scene, &leash);
    let doctor = succeed(scene.command(&leash).args(["doctor", "--json"])).json();
    assert_eq!(doctor["installed"]["by"], "script", "{doctor:#}");
    let upgrade = succeed(scene.command(&leash).arg("upgrade")).stdout;
    assert!(upgrade.contains("install.sh | sh -s -- --prefix '"), "{upgrade}");

    succeed(&mut uninstall(&scene, &release, &prefix));
    assert!(!scene.dir().join("a prefix").exists(), "{:?}", everything_below(&scene.dir().join("a prefix")));
    let again = refuse(&mut uninstall(&scene, &release, &prefix));
    assert!(again.stderr.contains("installed nothing below"), "{again:?}");
}

/// Files of other programs stay, and so do the directories in which they are.
#[test]
fn script_removes_only_its_own_files() {
    let scene = or_skip!(Scene::set(Who::User));
    let release = or_skip!(release(&scene));
    let prefix = scene.dir().join("prefix");
    succeed(&mut install(&scene, &release, &prefix));
    // A second installation replaces the first.
    succeed(scene.command("touch").arg(prefix.join("share/man/man1/other.1")));
    succeed(&mut install(&scene, &release, &prefix));
    succeed(&mut uninstall(&scene, &release, &prefix));
    let left: Vec<String> = everything_below(&prefix).iter().map(|path| path.display().to_string()).collect();
    assert_eq!(left, ["share", "share/man", "share/man/man1", "share/man/man1/other.1"]);
}

#[test]
fn running_leash_survives_an_upgrade() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let release = or_skip!(release(&scene));
    let prefix = scene.dir().join("prefix");
    succeed(&mut install(&scene, &release, &prefix));
    let mut words = vec![prefix.join("bin/leash").into_os_string(), "run".into(), "--".into()];
    words.extend(scene.tree("setsid", [] as [&str; 0]));
    let mut host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    succeed(&mut install(&scene, &release, &prefix));
    host.exit();
    host.wait();
    scene.wait_gone(&[]).expect("nothing is left");
    succeed(&mut uninstall(&scene, &release, &prefix));
}

#[test]
fn damaged_archive_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let release = or_skip!(release(&scene));
    let archive = fs::read_dir(&release).expect("it exists").flatten().map(|entry| entry.path());
    let archive = archive.into_iter().find(|path| path.to_string_lossy().ends_with(ARCHIVE)).expect("it was copied");
    let mut bytes = fs::read(&archive).expect("it can be read");
    bytes.push(0);
    fs::write(&archive, bytes).expect("it can be written");
    let prefix = scene.dir().join("prefix");
    let answer = refuse(&mut install(&scene, &release, &prefix));
    assert!(answer.stderr.contains("is not the file of the release: its SHA-256 sum is"), "{answer:?}");
    assert!(!prefix.exists(), "{:?}", everything_below(&prefix));
}

/// The servers of a client that was adopted would not start without leash.
#[test]
fn script_does_not_remove_a_leash_that_clients_use() {
    let scene = or_skip!(Scene::set(Who::User));
    let release = or_skip!(release(&scene));
    let prefix = scene.dir().join("prefix");
    succeed(&mut install(&scene, &release, &prefix));
    let config = scene.dir().join(".cursor/mcp.json");
    fs::create_dir(scene.dir().join(".cursor")).expect("the scene's directory can be written");
    let before = r#"{ "mcpServers": { "sample": { "command": "cat" } } }"#;
    fs::write(&config, before).expect("it can be written");
    scene.user().own(&scene.dir().join(".cursor")).expect("cannot change the owner");
    scene.user().own(&config).expect("cannot change the owner");
    let leash = prefix.join("bin/leash");
    succeed(scene.command(&leash).args(["adopt", "--yes"]));
    assert_ne!(fs::read_to_string(&config).expect("it can be read"), before);

    let answer = refuse(uninstall(&scene, &release, &prefix).env("HOME", scene.dir()).stdin(Stdio::null()));
    assert!(answer.stderr.contains("clients still start their servers through leash"), "{answer:?}");
    assert!(leash.exists());
    succeed(scene.command(&leash).args(["release", "--yes"]));
    succeed(uninstall(&scene, &release, &prefix).env("HOME", scene.dir()));
    assert!(!prefix.exists());
    assert_eq!(fs::read_to_string(&config).expect("it can be read"), before);
}

/// `cargo binstall` makes the address of the tarball and the path in it from these patterns.
#[test]
fn binstall_finds_the_program_in_the_tarball() {
    let archive = or_skip!(package(ARCHIVE));
    let name = archive.file_name().expect("it has a name").to_string_lossy().into_owned();
    let start = format!("leash-{}-", env!("CARGO_PKG_VERSION"));
    let target = name.strip_prefix(&start).and_then(|name| name.strip_suffix(".tar.gz")).expect("the name");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("it can be read");
    let filled = |key: &str| {
        let pattern = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix("= \"")).expect(key);
        let pattern = pattern.trim_end_matches('"').replace("{ repo }", env!("CARGO_PKG_REPOSITORY"));
        pattern
            .replace("{ version }", env!("CARGO_PKG_VERSION"))
            .replace("{ target }", target)
            .replace("{ bin }", "leash")
    };
    let releases = concat!(env!("CARGO_PKG_REPOSITORY"), "/releases/download/v", env!("CARGO_PKG_VERSION"));
    assert_eq!(filled("pkg-url"), format!("{releases}/{name}"));
    let listed = succeed(Command::new("tar").arg("-tzf").arg(&archive)).stdout;
    assert!(listed.lines().any(|line| line == filled("bin-dir")), "{listed}");
}
