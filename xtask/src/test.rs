//! `cargo xtask test`: runs all tests, with everything that they need.

use std::env;

use crate::setup;
use crate::step::{Outcome, Workspace};
use crate::vm;

/// With `wanted`, only the tests that nextest finds for these arguments.
pub(crate) fn run(workspace: &Workspace, wanted: &[String]) -> Outcome {
    let deps = setup::install(workspace)?;
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    workspace.fixture().run()?;

    // Before the others, so that the summary of nextest is the last output.
    if wanted.is_empty() {
        workspace.cargo(["test", "--workspace", "--doc"]).run()?;
        workspace.cargo(["test", "--package", "mcp-leash-core", "--all-features", "--doc"]).run()?;
        // The library's optional features are not among its default features.
        workspace
            .cargo(["nextest", "run", "--package", "mcp-leash-core", "--features", "rmcp", "--test", "rmcp"])
            .envs(&workspace.programs())
            .run()?;
        vm::run_short_list(workspace)?;
    }
    let mut words = vec!["nextest", "run", "--workspace"];
    if env::var_os("CI").is_some_and(|value| value == "true") {
        words.extend(["--profile", "ci"]);
    }
    workspace.cargo(words).args(wanted).envs(&workspace.programs()).envs(&deps.variables()).run()
}
