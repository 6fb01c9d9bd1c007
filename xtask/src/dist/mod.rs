//! `cargo xtask dist`: the packages that users install, made of one static binary, in `target/dist`.

mod archive;
mod build;
mod contents;
mod deb;
mod graph;
mod image;
mod npm;
mod sbom;
mod tarball;
mod wheel;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use self::archive::sha256;
use self::build::Build;
use crate::step::{Failure, Outcome, Step, Workspace, say, value};

const USAGE: &str = "\
usage: cargo xtask dist [--check] [--crates] [--target TARGET] [--binary FILE]
  --check           compile and pack again, in another directory, and fail if a byte differs (some minutes)
  --crates          also try to publish the crates, without an upload
  --target TARGET   for another processor, such as aarch64-unknown-linux-musl [default: that of this machine]
  --binary FILE     pack this static program instead of a new build";

/// Makes one kind of package, and returns the files that it wrote.
type Maker = fn(&Workspace, &Build) -> Outcome<Vec<PathBuf>>;

/// The kinds of packages.
const PACKAGES: [(&str, Maker); 6] = [
    ("npm", npm::make),
    ("wheel", wheel::make),
    ("tarball", tarball::make),
    ("deb", deb::make),
    ("image", image::make),
    ("sbom", sbom::make),
];

/// The list of sums, in the format of `sha256sum`.
const SUMS: &str = "SHA256SUMS";

/// The list of packages.
const MANIFEST: &str = "manifest.json";

/// A file for users.
struct Artefact {
    kind: &'static str,
    name: String,
    size: usize,
    sum: String,
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let (mut check, mut crates, mut target, mut binary) = (false, false, build::native_target(), None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--check" => check = true,
            "--crates" => crates = true,
            "--target" => target = value(words.next(), USAGE)?,
            "--binary" => binary = Some(value(words.next(), USAGE)?),
            _ => return Err(Failure::new(USAGE)),
        }
    }
    if check && binary.is_some() {
        return Err(Failure::new(format!("--check compiles the program itself\n{USAGE}")));
    }
    let build = build::build(workspace, &target, binary)?;
    let artefacts = make(workspace, &build)?;
    for artefact in &artefacts {
        say("Packed", format!("{} ({} KiB)", artefact.name, artefact.size.div_ceil(1024)));
    }
    if check {
        compile_again(workspace, build, &artefacts)?;
    }
    if crates {
        publish(workspace)?;
    }
    Ok(())
}

/// The error says why no static program can be compiled here.
pub(crate) fn requirements() -> Outcome {
    build::requirements(&build::native_target()).map(drop)
}

/// The path of the static program for this machine.
pub(crate) fn static_program(workspace: &Workspace) -> PathBuf {
    build::program(workspace, &build::native_target())
}

/// Compiles the static program for this machine.
pub(crate) fn build_program(workspace: &Workspace) -> Outcome {
    build::compile(workspace, &build::native_target()).map(drop)
}

/// The directory of the packages. Makes them before, twice: a second compilation would take minutes, a second packing seconds.
pub(crate) fn packed(workspace: &Workspace) -> Outcome<PathBuf> {
    let build = build::build(workspace, &build::native_target(), None)?;
    let (artefacts, dir) = (make(workspace, &build)?, build.out.clone());
    pack_again(workspace, Build { out: again(workspace), ..build }, &artefacts)?;
    Ok(dir)
}

/// The directory of everything that is made again.
fn again(workspace: &Workspace) -> PathBuf {
    workspace.target.join("dist-again")
}

/// Makes all packages in an empty directory, then the lists of them.
fn make(workspace: &Workspace, build: &Build) -> Outcome<Vec<Artefact>> {
    if build.out.exists() {
        fs::remove_dir_all(&build.out).map_err(Failure::at(&build.out))?;
    }
    fs::create_dir_all(&build.out).map_err(Failure::at(&build.out))?;
    let mut artefacts = Vec::new();
    for (kind, maker) in PACKAGES {
        for path in maker(workspace, build)? {
            artefacts.push(Artefact::read(kind, &path)?);
        }
    }
    let listed = artefacts.iter().map(|artefact| {
        json!({ "kind": artefact.kind, "file": artefact.name, "size": artefact.size, "sha256": artefact.sum })
    });
    let manifest = json!({
        "name": "leash",
        "version": build.version,
        "target": build.target,
        "source_date_epoch": build.epoch,
        "artefacts": listed.collect::<Vec<_>>(),
    });
    let manifest = build.write(MANIFEST, format!("{manifest:#}\n").as_bytes())?;
    artefacts.push(Artefact::read("manifest", &manifest)?);
    let sums: String = artefacts.iter().map(|artefact| format!("{}  {}\n", artefact.sum, artefact.name)).collect();
    build.write(SUMS, sums.as_bytes())?;
    Ok(artefacts)
}

impl Artefact {
    fn read(kind: &'static str, path: &Path) -> Outcome<Self> {
        let bytes = fs::read(path).map_err(Failure::at(path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { kind, name, size: bytes.len(), sum: sha256(&bytes) })
    }
}

/// Compiles the program again from a copy of the sources, with a target directory of its own, and packs it. Both paths
/// differ from those of the first build in length, too.
fn compile_again(workspace: &Workspace, first: Build, artefacts: &[Artefact]) -> Outcome {
    let dir = again(workspace);
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(Failure::at(&dir))?;
    }
    let other = Workspace { root: dir.join("sources"), target: dir.join("target") };
    copy_sources(&workspace.root, &other.root)?;
    let binary = build::compile(&other, &first.target)?;
    if fs::read(&binary).map_err(Failure::at(&binary))? != first.read_binary()? {
        let paths = format!("`{}` and `{}`", first.binary.display(), binary.display());
        return Err(Failure::new(format!("a second build of the program has other bytes: {paths}")));
    }
    say("Compared", "a build in another directory is the same program");
    pack_again(&other, Build { binary, out: dir.join("packages"), ..first }, artefacts)?;
    fs::remove_dir_all(&dir).map_err(Failure::at(&dir))
}

/// Copies all files that git knows or would add.
fn copy_sources(from: &Path, to: &Path) -> Outcome {
    let words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Step::new("git").args(words).dir(from).output()?;
    for name in listed.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name = Path::new(OsStr::from_bytes(name));
        let (source, copy) = (from.join(name), to.join(name));
        // A file that was deleted and not committed is still listed.
        if source.is_file() {
            let parent = copy.parent().unwrap_or(to);
            fs::create_dir_all(parent).map_err(Failure::at(parent))?;
            fs::copy(&source, &copy).map_err(Failure::at(&copy))?;
        }
    }
    match to.join("Cargo.toml").exists() {
        true => Ok(()),
        false => Err(Failure::new("git does not list the files of this workspace")),
    }
}

/// Packs the program again, and compares.
fn pack_again(workspace: &Workspace, build: Build, first: &[Artefact]) -> Outcome {
    let second = make(workspace, &build)?;
    fs::remove_dir_all(&build.out).map_err(Failure::at(&build.out))?;
    let differs = first.iter().zip(&second).filter(|(a, b)| (&a.name, &a.sum) != (&b.name, &b.sum));
    let names: Vec<&str> = differs.map(|(artefact, _)| artefact.name.as_str()).collect();
    match names[..] {
        [] if first.len() == second.len() => {
            say("Compared", "a second packing wrote the same bytes");
            Ok(())
        }
        _ => Err(Failure::new(format!("a second packing wrote other bytes: {}", names.join(", ")))),
    }
}

/// Packs every crate for crates.io and compiles it from its package. Crates that need each other are packed together.
fn publish(workspace: &Workspace) -> Outcome {
    workspace.cargo(["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty"]).run()
}
