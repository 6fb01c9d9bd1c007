//! The documents are executed: every command on a page is played in one shell, from top to bottom, and must print what
//! the page says. Runs in its own PID namespace, because `leash reap --yes` acts on the whole machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::document::{self, Page, Script};
use testkit::namespace::inside;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::{User, Who};

#[test]
fn first_steps_print_what_the_page_says() {
    check("first_steps_print_what_the_page_says", Who::User, "docs/start/first-steps.md", NOTHING);
}

#[test]
fn first_steps_of_root_print_what_the_page_says() {
    check("first_steps_of_root_print_what_the_page_says", Who::Root, "docs/start/first-steps.md", NOTHING);
}

#[test]
fn readme_prints_what_it_says() {
    check("readme_prints_what_it_says", Who::User, "README.md", MACHINE_OF_README);
}

/// What the shell does before the first command of a page and after the last one.
struct Around {
    before: &'static str,
    after: &'static str,
}

/// For a page that prepares everything by itself.
const NOTHING: Around = Around { before: "", after: "" };

/// The README shows a machine that is in use: a client that declares a server, a server on the leash, and a server of
/// this project that its host left behind.
const MACHINE_OF_README: Around = Around {
    before: r#"
        mkdir .cursor project
        cat > .cursor/mcp.json <<'END'
{
  "mcpServers": {
    "everything": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-everything"]
    }
  }
}
END
        cd project
        echo '{"mcpServers": {"notes": {"command": "sh", "args": ["notes.sh"]}}}' > .mcp.json
        echo 'sleep 600' > notes.sh
        (true | sh notes.sh | true &)
        leash run --name everything -- sleep 600 &
        until leash ps | grep -q 'everything .* running'; do sleep 0.1; done
        until leash ps | grep -q 'notes .* orphan'; do sleep 0.1; done
    "#,
    after: "leash reap --yes",
};

/// Plays a page as `who`; `test` is the name of the test that calls this.
fn check(test: &str, who: Who, document: &str, around: Around) {
    or_skip!(User::find(Who::Root));
    if !inside(test, &[]) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let page = Page::parse(&fs::read_to_string(path).expect("the page can be read"));
    let page = page.unwrap_or_else(|mistake| panic!("{document}:{mistake}"));
    let scene = Scene::set(who).expect("root can run as any user");
    let script: Vec<&str> = page.commands.iter().map(|command| command.text.as_str()).collect();
    let script = Script { before: around.before, commands: &script, between: "", after: around.after };
    let printed = document::play(reader(&scene), &scene.dir().join("page.sh"), &script);
    page.check(document, &printed);
    scene.wait_gone(&[]).expect("the page cleans up");
}

/// The shell of a reader: in an empty home directory, with `leash` first on PATH.
fn reader(scene: &Scene) -> std::process::Command {
    let [bin, home, temporary] = ["bin", "home", "tmp"].map(|name| scene.dir().join(name));
    for dir in [&bin, &home, &temporary] {
        fs::create_dir(dir).expect("a directory");
        scene.user().own(dir).expect("it can be given away");
    }
    symlink(scene.leash_path(), bin.join("leash")).expect("a link to leash");
    let path = std::env::var("PATH").unwrap_or_default();
    // The scene sets no variable that tells where the files of a client are.
    let mut shell = scene.command("sh");
    shell.current_dir(&home).env("HOME", &home).env("TMPDIR", &temporary);
    shell.env("PATH", format!("{}:{path}", bin.display())).env("CENSUS", scene.witness().path());
    shell
}
