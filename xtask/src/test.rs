//! `cargo xtask test`: runs all tests, with everything that they need.

use std::env;
use std::ffi::OsString;

use crate::step::{Outcome, Workspace, say};
use crate::{dist, setup};

/// With `wanted`, only the tests that nextest finds for these arguments.
pub(crate) fn run(workspace: &Workspace, wanted: &[String]) -> Outcome {
    let deps = setup::install(workspace)?;
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    workspace.fixture().run()?;

    let packages = packages(workspace, wanted)?;

    // Before the others, so that the summary of nextest is the last output.
    if wanted.is_empty() {
        workspace.cargo(["test", "--workspace", "--doc"]).run()?;
        workspace.cargo(["test", "--package", "mcp-leash-core", "--all-features", "--doc"]).run()?;
        // The library's optional features are not among its default features.
        workspace
            .cargo(["nextest", "run", "--package", "mcp-leash-core", "--features", "rmcp", "--test", "rmcp"])
            .envs(&workspace.programs())
            .run()?;
    }
    let mut words = vec!["nextest", "run", "--workspace"];
    if env::var_os("CI").is_some_and(|value| value == "true") {
        words.extend(["--profile", "ci"]);
    }
    workspace.cargo(words).args(wanted).envs(&workspace.programs()).envs(&deps.variables()).envs(&packages).run()
}

/// Makes the packages that users install, and returns the variable by which tests find them. Without a compiler for static
/// programs, the tests that need the packages are skipped.
fn packages(workspace: &Workspace, wanted: &[String]) -> Outcome<Vec<(&'static str, OsString)>> {
    // The static program takes minutes to compile. A run for some tests makes it only if these are among them.
    if !wanted.is_empty() && !wanted.iter().any(|word| word.contains("install")) {
        return Ok(Vec::new());
    }
    match dist::requirements() {
        Ok(()) => Ok(vec![("LEASH_DIST", dist::packed(workspace)?.into())]),
        Err(why) => {
            say("Skipped", format!("the tests that install the packages: {why}"));
            Ok(Vec::new())
        }
    }
}
