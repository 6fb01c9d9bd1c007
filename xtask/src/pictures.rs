//! `cargo xtask pictures`: the pictures in the documents, made by the test of the page in a real browser and a real
//! terminal.

use crate::setup;
use crate::step::{Failure, Outcome, Workspace, say};

/// The test that makes them.
const TEST: &str = "pictures::pictures_show_the_same_servers";

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let deps = setup::install_pictures(workspace)?;
    let dir = workspace.root.join("docs/pictures");
    std::fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    workspace.cargo(["build", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    let words = ["nextest", "run", "--package", "mcp-leash", "--test", "page", "--no-tests", "fail", TEST];
    workspace.cargo(words).envs(&deps.variables()).env("LEASH_PICTURES", &dir).run()?;
    say("Wrote", dir.display());
    Ok(())
}
