//! The whole of docs/start, played by a new user with an empty home directory and the real clients. Every output is a
//! snapshot at 80 columns in `snapshots/`; `UPDATE_EXPECT=1 cargo xtask test -E 'binary(first_steps)'` writes them again.

mod newcomer;
mod normal;

use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use newcomer::{Newcomer, Session};
use testkit::deps::Deps;
use testkit::document::{self, Page, Script};
use testkit::namespace::inside;
use testkit::or_skip;
use testkit::user::{User, Who};

#[test]
fn first_steps_in_a_login_session() {
    check("first_steps_in_a_login_session", "first-steps", Session::Login);
}

#[test]
fn first_steps_without_a_runtime_directory() {
    check("first_steps_without_a_runtime_directory", "first-steps", Session::Bare);
}

#[test]
fn clients_in_a_login_session() {
    check("clients_in_a_login_session", "your-clients", Session::Login);
}

#[test]
fn clients_without_a_runtime_directory() {
    check("clients_without_a_runtime_directory", "your-clients", Session::Bare);
}

/// A page that no test plays would rot.
#[test]
fn every_page_is_played() {
    let pages = fs::read_dir(start()).expect("the pages").map(|page| page.expect("a page").file_name());
    let mut pages: Vec<_> = pages.collect();
    pages.sort();
    assert_eq!(pages, ["first-steps.md", "your-clients.md"]);
}

fn start() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/start")
}

/// Plays a page of docs/start, and compares what it prints with the snapshot; `test` is the name of the test that calls
/// this. Runs in its own namespaces: a page sees no process, directory or network of this machine.
fn check(test: &str, page: &str, session: Session) {
    or_skip!(User::find(Who::Root));
    let deps = or_skip!(Deps::find());
    or_skip!(deps.inspector());
    if !inside(test, &["--net"]) {
        return;
    }
    let text = fs::read_to_string(start().join(page).with_extension("md")).expect("the page can be read");
    let document = Page::parse(&text).unwrap_or_else(|mistake| panic!("{page}:{mistake}"));
    let commands: Vec<&str> = document.commands.iter().map(|command| command.text.as_str()).collect();
    let user = or_skip!(Newcomer::arrive(&deps, session));
    let before = if commands.iter().any(|command| command.starts_with("install ")) { "" } else { newcomer::INSTALL };
    let script = Script { before, commands: &commands, between: newcomer::REMEMBER, after: "" };
    let printed = document::play(user.shell(), &user.scene().dir().join("page.sh"), &script);
    let facts = user.facts();
    let steps = commands.iter().zip(&printed);
    let transcript: String = steps.map(|(command, printed)| normal::step(command, printed, &facts)).collect();
    let name = match session {
        Session::Login => page.to_owned(),
        Session::Bare => format!("{page}-without-runtime-directory"),
    };
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/first_steps/snapshots/{name}.txt"));
    let gone = user.scene().wait_gone(&[]);
    expect_file![snapshot].assert_eq(&transcript);
    document.check(page, &printed);
    gone.expect("the page cleans up");
}
