use super::super::knowledge::{Declared, Knowledge};
use super::super::verdict::Evidence;
use super::Matcher;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Which server a command line is, when the configuration has `declared` in it.
fn check(declared: &str, argv: &[&str], expected: Option<&str>) {
    let mut knowledge = Knowledge::builtin();
    if !declared.is_empty() {
        knowledge.declared.push(Declared {
            client: "Test".to_owned(),
            name: "it".to_owned(),
            command: words(declared),
        });
    }
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    let found = Matcher::new(&knowledge).server(&argv).map(|evidence| match evidence {
        Evidence::Declared { name, .. } => name,
        Evidence::Package { package } => package,
        other => panic!("{other:?}"),
    });
    assert_eq!(found.as_deref(), expected, "{argv:?} with {declared:?} declared");
}

#[test]
fn a_declared_server_is_found_by_its_exact_command() {
    check("/opt/x/server --stdio", &["/opt/x/server", "--stdio"], Some("it"));
    check("server --stdio", &["/usr/local/bin/server", "--stdio"], Some("it"));
    check("server --stdio", &["server"], None);
    check("server --stdio", &["server", "--http"], None);
    check("server --stdio", &["server", "--stdio", "more"], None);
    check("/opt/x/server", &["/opt/y/server"], None);
    check("server ${HOME}/x", &["server", "/home/u/x"], Some("it"));
}

#[test]
fn a_declared_server_is_found_behind_what_starts_it() {
    let npx = "npx -y @acme/things --root /srv";
    check(npx, &["npx", "-y", "@acme/things", "--root", "/srv"], Some("it"));
    check(npx, &["npm exec @acme/things --root /srv"], Some("it"));
    check(
        npx,
        &["node", "/usr/lib/node_modules/npm/bin/npx-cli.js", "-y", "@acme/things", "--root", "/srv"],
        Some("it"),
    );
    check(npx, &["node", "/home/u/.npm/_npx/1/node_modules/@acme/things/dist/index.js", "--root", "/srv"], Some("it"));
    check(npx, &["node", "/home/u/.npm/_npx/1/node_modules/.bin/things", "--root", "/srv"], Some("it"));
    check(npx, &["node", "/home/u/.npm/_npx/1/node_modules/.bin/things", "--root", "/other"], None);
    check(npx, &["sh", "-c", "npx -y @acme/things --root /srv"], Some("it"));
    check(npx, &["node", "/home/u/things/index.js", "--root", "/srv"], None);
    check("npx @acme/things@latest", &["npm exec @acme/things"], Some("it"));
    let uvx = "uvx --from git+https://example.org/x acme-server /srv";
    check(
        uvx,
        &["/home/u/.cache/uv/archive/bin/python", "/home/u/.cache/uv/archive/bin/acme-server", "/srv"],
        Some("it"),
    );
    check(uvx, &["uv", "tool", "run", "acme-server", "/srv"], Some("it"));
    check("python3 -m acme.server -v", &["/usr/bin/python3.11", "-u", "-m", "acme.server", "-v"], Some("it"));
    check("python3 server.py", &["python3", "server.py"], Some("it"));
    check("env A=b node /srv/s.js", &["node", "/srv/s.js"], Some("it"));
    check("tool serve", &["node", "/usr/local/bin/tool", "serve"], Some("it"));
    check("tool serve", &["bash", "-c", "exec tool 'serve'"], Some("it"));
}

#[test]
fn a_known_package_is_found() {
    let cases: [(&[&str], &str); 7] = [
        (&["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv"], "@modelcontextprotocol/server-filesystem"),
        (&["npm exec @modelcontextprotocol/server-brave@1.0 x"], "@modelcontextprotocol/server-brave"),
        (&["node", "/x/node_modules/.bin/mcp-server-everything"], "@modelcontextprotocol/server-everything"),
        (&["node", "/x/node_modules/@playwright/mcp/cli.js", "--headless"], "@playwright/mcp"),
        (&["uvx", "mcp-server-git", "--repository", "."], "mcp-server-git"),
        (&["/x/bin/python", "/x/bin/mcp-server-git"], "mcp-server-git"),
        (&["python", "-m", "mcp_server_git"], "mcp-server-git"),
    ];
    for (argv, package) in cases {
        check("", argv, Some(package));
    }
}

#[test]
fn a_name_proves_nothing() {
    let decoys: [&[&str]; 13] = [
        &["vim", "mcp-server-git.py"],
        &["mcp-server"],
        &["/usr/bin/mcp", "serve"],
        &["node", "/home/u/my-mcp/server.js"],
        &["npx", "@modelcontextprotocol/inspector", "node", "server.js"],
        &["grep", "-r", "@modelcontextprotocol/server-filesystem"],
        &["tail", "-f", "/var/log/mcp-server-git"],
        &["sh", "-c", "npx mcp-server-git; echo done"],
        &["python3", "-c", "import mcp_server_git"],
        &["node", "-e", "require('@playwright/mcp')"],
        &["npm", "install", "@playwright/mcp"],
        &["uv", "pip", "install", "mcp-server-git"],
        &["sleep", "1000", "mcp"],
    ];
    for argv in decoys {
        check("", argv, None);
    }
    check("", &[], None);
    check("", &[""], None);
}

#[test]
fn hosts_are_known_by_name_or_script() {
    let knowledge = Knowledge::builtin();
    let matcher = Matcher::new(&knowledge);
    let client = |comm: &str, line: &str| matcher.host(comm, &words(line)).map(|host| host.client.clone());
    assert_eq!(client("claude", "claude"), Some("Claude Code".to_owned()));
    assert_eq!(
        client("node", "node /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"),
        Some("Claude Code".to_owned())
    );
    assert_eq!(
        client("MainThread", "node --no-warnings /x/@google/gemini-cli/dist/index.js"),
        Some("Gemini CLI".to_owned())
    );
    assert_eq!(client("bash", "bash -l"), None);
    assert_eq!(client("vim", "vim claude"), None);
}
