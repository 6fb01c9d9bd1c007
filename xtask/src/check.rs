//! `cargo xtask check`: everything that can be said about the code without running it, and the tidy tests.

use crate::step::{Outcome, Step, Workspace, say};

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
    match Step::cargo().args(["deny", "--version"]).answer() {
        Some(_) => workspace.cargo(["deny", "check", "licenses", "bans", "sources"]).run()?,
        None => say("Skipped", "licences and sources of dependencies: cargo-deny is not installed"),
    }
    workspace.cargo(["test", "--package", "xtask", "--test", "tidy"]).run()
}
