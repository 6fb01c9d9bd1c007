//! The container image: one layer on nothing, as an OCI archive. The archive is a tar file of JSON documents and the
//! layer, which `podman load` and `skopeo` read; no container engine is needed to write it.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::archive::{Files, gzip, sha256};
use super::build::Build;
use super::contents::Contents;
use crate::chaos::civil;
use crate::step::{Failure, Outcome, Workspace};

/// The user in the image. Many images without a distribution use this number; Kubernetes can see that it is not root.
const USER: u32 = 65_532;

/// The name of the image in the archive.
const NAME: &str = "ghcr.io/mcp-leash/leash";

pub(crate) fn make(workspace: &Workspace, build: &Build) -> Outcome<Vec<PathBuf>> {
    let layer = layer(build.read_binary()?, &Contents::make(workspace, build)?).tar("", build.epoch);
    let archive = archive(build, &layer)?;
    Ok(vec![build.write(&format!("leash-{}-{}.oci.tar", build.version, build.target), &archive.tar("", build.epoch))?])
}

/// The file system: the program, a user, and directories in which leash and its servers may write.
fn layer(binary: Vec<u8>, contents: &Contents) -> Files {
    let mut files = Files::default();
    files.program("leash", binary);
    files.file("etc/passwd", format!("root:x:0:0:root:/root:/leash\nleash:x:{USER}:{USER}:leash:/tmp/home:/leash\n"));
    files.file("etc/group", format!("root:x:0:\nleash:x:{USER}:\n"));
    files.dir("root", 0o700);
    files.dir("run", 0o755);
    files.dir("tmp", 0o1777);
    for (name, bytes) in &contents.doc {
        files.file(format!("licenses/{name}"), bytes.clone());
    }
    files
}

/// The archive around an uncompressed layer.
fn archive(build: &Build, layer: &[u8]) -> Outcome<Files> {
    let architecture = match build.machine() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return Err(Failure::new(format!("the name that OCI images have for `{other}` is not known here"))),
    };
    let created = rfc3339(build.epoch);
    let packed = gzip(layer);
    let mut files = Files::default();
    let config = json!({
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/"],
            "Entrypoint": ["/leash"],
            "Cmd": ["--help"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "leash",
                "org.opencontainers.image.version": build.version,
                "org.opencontainers.image.source": "https://github.com/mcp-leash/leash",
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        // The sum of the layer before it was compressed.
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(layer))] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    });
    let config = blob(&mut files, "application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
    let layer = blob(&mut files, "application/vnd.oci.image.layer.v1.tar+gzip", packed);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest =
        blob(&mut files, "application/vnd.oci.image.manifest.v1+json", manifest.to_string().into_bytes());
    manifest["platform"] = json!({ "architecture": architecture, "os": "linux" });
    let name = format!("{NAME}:{}", build.version);
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": name, "io.containerd.image.name": name });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    files.file("index.json", index.to_string());
    files.file("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string());
    Ok(files)
}

/// Adds a blob under the name of its sum, and returns its descriptor.
fn blob(files: &mut Files, media_type: &str, bytes: Vec<u8>) -> Value {
    let (sum, size) = (sha256(&bytes), bytes.len());
    files.file(format!("blobs/sha256/{sum}"), bytes);
    json!({ "mediaType": media_type, "digest": format!("sha256:{sum}"), "size": size })
}

/// A time as text, in UTC.
pub(super) fn rfc3339(epoch: u64) -> String {
    let (year, month, day) = civil(epoch / 86_400);
    let (hour, minute, second) = (epoch / 3_600 % 24, epoch / 60 % 60, epoch % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> Build {
        let target = "x86_64-unknown-linux-musl".to_owned();
        Build { binary: PathBuf::new(), target, version: "1.2.3".to_owned(), out: PathBuf::new(), epoch: 951_827_696 }
    }

    #[test]
    fn every_blob_has_the_name_of_its_sum() {
        let files = archive(&build(), b"layer").expect("the processor is known");
        let blobs = files.contents().filter_map(|(path, bytes)| Some((path.strip_prefix("blobs/sha256/")?, bytes)));
        let blobs: Vec<(&str, &[u8])> = blobs.collect();
        assert_eq!(blobs.len(), 3);
        assert!(blobs.iter().all(|(name, bytes)| sha256(bytes) == *name));
    }

    #[test]
    fn documents_refer_to_each_other() {
        let files = archive(&build(), b"layer").expect("the processor is known");
        let read = |path: &str| -> Value {
            let (_, bytes) = files.contents().find(|(found, _)| *found == path).unwrap_or_else(|| panic!("no {path}"));
            serde_json::from_slice(bytes).expect("it is JSON")
        };
        let blob = |descriptor: &Value| {
            read(&descriptor["digest"].as_str().expect("a sum").replace(':', "/").replace("sha256/", "blobs/sha256/"))
        };
        let manifest = blob(&read("index.json")["manifests"][0]);
        let config = blob(&manifest["config"]);
        assert_eq!(config["created"], "2000-02-29T12:34:56Z");
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(b"layer")));
        assert_eq!(config["config"]["Entrypoint"][0], "/leash");
    }

    #[test]
    fn unknown_processors_are_refused() {
        assert!(archive(&Build { target: "sparc-sun".to_owned(), ..build() }, b"layer").is_err());
    }
}
