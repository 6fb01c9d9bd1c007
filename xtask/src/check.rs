//! `cargo xtask check`: all checks of the code that do not run it, and the tidy tests.

use crate::sanitise::dependencies;
use crate::step::{Outcome, Workspace, say};

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    workspace.cargo(["fmt", "--all", "--", "--check"]).run()?;
    workspace.cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()?;
    // The fixture is not among the default features.
    workspace
        .cargo(["clippy", "--package", "testkit", "--features", "fixture", "--bin", "fixture", "--", "-D", "warnings"])
        .run()?;
    for features in ["--all-features", "--no-default-features"] {
        workspace
            .cargo(["clippy", "--package", "mcp-leash-core", "--all-targets", features, "--", "-D", "warnings"])
            .run()?;
    }
    workspace.cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run()?;
    match dependencies::installed() {
        true => workspace.cargo(["deny", "check", "licenses", "bans", "sources"]).run()?,
        false => say(
            "Skipped",
            "licences, versions and sources of dependencies: `cargo xtask sanitise dependencies` installs cargo-deny",
        ),
    }
    workspace.cargo(["test", "--package", "xtask"]).run()
}
