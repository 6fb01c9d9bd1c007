//! The command with which clients start leash: a path in the files of the user, a name in files that others share, and
//! never a place that a package manager empties.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::leash::Answer;

use crate::Home;

const ENTRY: &str = "{\"mcpServers\": {\"a\": {\"command\": \"npx\", \"args\": [\"a\"]}}}\n";

/// A copy of leash at this place in the home directory.
fn copy(home: &Home, path: &str) -> PathBuf {
    let path = home.path(path);
    fs::create_dir_all(path.parent().expect("it has a parent")).expect("the home is ours");
    // A link, because the file is large; a copy where the file is on another disk.
    let leash = testkit::leash::leash();
    fs::hard_link(leash, &path).or_else(|_| fs::copy(leash, &path).map(drop)).expect("there is room for a copy");
    path
}

fn run(home: &Home, program: &Path, words: &[&str]) -> Answer {
    home.scene.command(program).args(words).output().expect("cannot start leash").into()
}

#[test]
fn a_shared_file_has_the_name_and_a_file_of_the_user_the_path() {
    let home = Home::new();
    let leash = copy(&home, "opt/leash");
    home.put(".cursor/mcp.json", ENTRY);
    home.put("p/.mcp.json", ENTRY);
    let answer = run(&home, &leash, &["adopt", "--yes", "--project", "p"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let shared = home.path("p/.mcp.json");
    let says =
        format!("others share {}: it starts `leash` by name, which each of them needs on the PATH", shared.display());
    assert!(answer.stderr.contains(&says), "{answer:?}");
    assert!(home.text(".cursor/mcp.json").contains(&format!("\"command\": \"{}\"", leash.display())), "{answer:?}");
    assert!(home.text("p/.mcp.json").contains(r#""command": "leash", "args": ["run","#), "{answer:?}");
    let again = run(&home, &leash, &["adopt", "--json", "--project", "p"]).json();
    let programs: Vec<_> = again["files"].as_array().expect("a list").iter().map(|file| &file["program"]).collect();
    assert_eq!(programs.len(), 2, "{again}");
    assert!(
        programs.contains(&&serde_json::json!("leash")) && programs.contains(&&serde_json::json!(leash)),
        "{again}"
    );
    assert!(again["files"].as_array().expect("a list").iter().all(|file| file["adopted"] == serde_json::json!([])));
    let answer = run(&home, &leash, &["release", "--yes"]);
    assert_eq!((answer.code, home.text("p/.mcp.json"), home.text(".cursor/mcp.json")), (0, ENTRY.into(), ENTRY.into()));
}

#[test]
fn a_missing_name_on_the_path_is_warned_about() {
    let home = Home::new();
    home.put(".mcp.json", ENTRY);
    let leash = copy(&home, "opt/leash");
    let on_path = |dir: &str| {
        let mut command = home.scene.command(&leash);
        let path = std::env::join_paths([home.path(dir), "/usr/bin".into()]).expect("no colon is in it");
        command.args(["adopt", "--project", "."]).env("PATH", path);
        Answer::from(command.output().expect("cannot start leash")).stderr
    };
    let warning = "warning: there is no `leash` on your PATH";
    assert!(on_path("empty").contains(warning), "{}", on_path("empty"));
    assert!(!on_path("opt").contains(warning), "{}", on_path("opt"));
}

#[test]
fn a_leash_in_a_cache_is_not_written_into_a_file() {
    let home = Home::new();
    home.put(".cursor/mcp.json", ENTRY);
    for (dir, owner, install) in [
        (".npm/_npx/2d57/node_modules/@mcp-leash/linux-x64/bin", "npx", "npm install --global mcp-leash"),
        (".cache/uv/archive-v0/3uWp/bin", "uvx", "uv tool install mcp-leash"),
        (".cache/pnpm/dlx/9771/1a1e/node_modules/x/bin", "pnpm dlx", "pnpm add --global mcp-leash"),
    ] {
        let leash = copy(&home, &format!("{dir}/leash"));
        let answer = run(&home, &leash, &["adopt", "--yes"]);
        let text = format!("error: this leash is in a cache of {owner}, where it does not stay: {}", leash.display());
        let hint = format!("hint: install it with `{install}`, then run `leash adopt` again");
        assert_eq!((answer.stderr.as_str(), answer.code), (format!("{text}\n\n{hint}\n").as_str(), 2));
        assert_eq!(home.text(".cursor/mcp.json"), ENTRY);
    }
    // The place does not matter where the file has the name, or another program was named.
    let leash = home.path(".npm/_npx/2d57/node_modules/@mcp-leash/linux-x64/bin/leash");
    home.put("p/.mcp.json", ENTRY);
    let answer = run(&home, &leash, &["adopt", "--yes", "claude-code", "--project", "p"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let answer = run(&home, &leash, &["adopt", "--yes", "--leash", "leash"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(home.text(".cursor/mcp.json").contains(r#""command": "leash""#), "{answer:?}");
}

/// The link of pnpm stays when the version changes.
#[test]
fn the_path_of_pnpm_has_no_version() {
    let home = Home::new();
    home.put(".cursor/mcp.json", ENTRY);
    let package = "p/node_modules/.pnpm/@mcp-leash+linux-x64@0.1.0/node_modules/@mcp-leash/linux-x64";
    let leash = copy(&home, &format!("{package}/bin/leash"));
    let link = home.path("p/node_modules/.pnpm/node_modules/@mcp-leash/linux-x64");
    fs::create_dir_all(link.parent().expect("it has a parent")).expect("the home is ours");
    std::os::unix::fs::symlink(home.path(package), &link).expect("a link");
    let answer = run(&home, &leash, &["adopt", "--yes"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let expected = format!("\"command\": \"{}/bin/leash\"", link.display());
    assert!(home.text(".cursor/mcp.json").contains(&expected), "{}", home.text(".cursor/mcp.json"));
}

#[test]
fn an_entry_that_starts_leash_through_a_package_manager_is_on_the_leash() {
    let home = Home::new();
    let text =
        "{\"mcpServers\": {\"a\": {\"command\": \"npx\", \"args\": [\"-y\", \"mcp-leash\", \"run\", \"--\", \"x\"]},
        \"b\": {\"command\": \"uvx\", \"args\": [\"mcp-leash@0.1.0\", \"run\", \"x\"]}}}\n";
    home.put(".cursor/mcp.json", text);
    let answer = home.adopt(&[]);
    assert!(answer.stderr.contains("nothing to do: 2 servers on the leash already"), "{answer:?}");
    assert_eq!(home.text(".cursor/mcp.json"), text);
}
