//! `cargo xtask test`: runs all tests, with everything that they need.

use std::env;
use std::ffi::OsString;
use std::thread;

use crate::step::{Outcome, SELECTION, Workspace, say};
use crate::vm::{self, Image};
use crate::{dist, setup};

/// With `wanted`, only the tests that nextest finds for these arguments.
pub(crate) fn run(workspace: &Workspace, wanted: &[String]) -> Outcome {
    let deps = setup::install(workspace)?;
    let packages = if wanted.is_empty() {
        let (packages, image) = build_beside_the_image(workspace)?;
        // Before the others, so that the summary of nextest is the last output.
        if let Some(image) = image {
            vm::run_short_list(workspace, &image)?;
        }
        workspace.cargo(["test", "--doc"]).args(SELECTION).run()?;
        packages
    } else {
        build(workspace, wanted)?
    };
    let mut words = vec!["nextest", "run"];
    words.extend(SELECTION);
    if env::var_os("CI").is_some_and(|value| value == "true") {
        words.extend(["--profile", "ci"]);
    }
    workspace.cargo(words).args(wanted).envs(&workspace.programs()).envs(&deps.variables()).envs(&packages).run()
}

/// Builds all programs. Meanwhile the image of the box is made, which mostly waits for the network.
fn build_beside_the_image(workspace: &Workspace) -> Outcome<(Packages, Option<Image>)> {
    // Not in the thread: two programs cannot install Debian packages at the same time.
    let can_run = vm::requirements();
    if let Err(why) = &can_run {
        say("Skipped", format!("the tests in a virtual machine (logins, user managers, budgets): {why}"));
    }
    thread::scope(|scope| {
        let image = can_run.is_ok().then(|| scope.spawn(|| Image::make(workspace)));
        let packages = build(workspace, &[])?;
        let image = image.map(|image| image.join().expect("making the image does not panic")).transpose()?;
        Ok((packages, image))
    })
}

fn build(workspace: &Workspace, wanted: &[String]) -> Outcome<Packages> {
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    workspace.fixture().run()?;
    packages(workspace, wanted)
}

/// The variables by which tests find the packages.
type Packages = Vec<(&'static str, OsString)>;

/// Makes the packages that users install. Without a compiler for static programs, the tests that need them are skipped.
fn packages(workspace: &Workspace, wanted: &[String]) -> Outcome<Packages> {
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
