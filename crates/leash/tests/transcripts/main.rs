//! Every help page, listing and error of the command line, as a person sees it. Update with UPDATE_EXPECT=1.

mod completion;
mod connect;
mod daemon;
mod help;
mod orphans;
mod run;
mod serve;
mod sessions;

use expect_test::Expect;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

/// Runs a command on a fresh scene and compares its output.
fn check(words: &[&str], expected: &Expect) {
    let scene = or_skip!(Scene::set(Who::User));
    expected.assert_eq(&scene.transcript(words));
}
