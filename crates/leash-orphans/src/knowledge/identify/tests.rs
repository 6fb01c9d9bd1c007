use super::super::{DeclaredCommand, Knowledge};
use super::{Matcher, client_of};
use crate::facts::{Evidence, Process};

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A process in /work/here, with a user's environment.
fn process(argv: &[&str]) -> Process {
    let mut process = Process::new(7, 1);
    process.argv = argv.iter().map(|word| (*word).to_owned()).collect();
    process.cwd = Some("/work/here".to_owned());
    let variables = [("HOME", "/home/u"), ("PATH", "/usr/local/bin:/usr/bin"), ("TOOLS", "/opt/tools")];
    process.variables = Some(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    process
}

/// A configuration that declares `command`.
fn knowledge(command: &str, project: Option<&str>, cwd: Option<&str>) -> Knowledge {
    let mut knowledge = Knowledge::default();
    if !command.is_empty() {
        knowledge.declared.push(DeclaredCommand {
            client: "Test".to_owned(),
            name: "it".to_owned(),
            command: words(command),
            cwd: cwd.map(str::to_owned),
            project: project.map(str::to_owned),
            inside_only: false,
        });
    }
    knowledge
}

/// The server that a command line is recognised as; `likely` if that is not certain.
fn found(knowledge: &Knowledge, argv: &[&str]) -> Option<String> {
    Matcher::new(knowledge).server(&process(argv), None).map(|evidence| match evidence {
        Evidence::Declared { name, .. } => name,
        Evidence::Resembles { .. } => "likely".to_owned(),
        Evidence::Package { package } => package,
        other => panic!("{other:?}"),
    })
}

fn check(declared: &str, argv: &[&str], expected: Option<&str>) {
    let found = found(&knowledge(declared, None, None), argv);
    assert_eq!(found.as_deref(), expected, "{argv:?} with {declared:?} declared");
}

/// The same check with the configuration of a project, or with an entry that names a directory.
fn check_in(declared: &str, [project, cwd]: [Option<&str>; 2], argv: &[&str], expected: Option<&str>) {
    let found = found(&knowledge(declared, project, cwd), argv);
    assert_eq!(found.as_deref(), expected, "{argv:?} with {declared:?} declared in {project:?} {cwd:?}");
}

/// An unrelated program has only the interpreter in common with a declared server.
#[test]
fn a_variable_does_not_match_everything() {
    let mcp = "python3 ${workspaceFolder}/tools/mcp.py";
    check(mcp, &["python3", "production_billing_worker.py"], None);
    check(mcp, &["python3", "/work/here/tools/mcp.py"], Some("it"));
    check(mcp, &["python3", "/work/there/tools/mcp.py"], Some("likely"));
    check(mcp, &["python3", "/work/here/tools/mcp.py", "--more"], None);
    check_in(mcp, [Some("/work/there"), None], &["python3", "/work/there/tools/mcp.py"], Some("it"));
    check_in(mcp, [Some("/work/there"), None], &["python3", "/work/here/tools/mcp.py"], None);
    check("server ${env:TOOLS}/x", &["server", "/opt/tools/x"], Some("it"));
    check("server ${env:TOOLS}/x", &["server", "/opt/other/x"], None);
    check("server ${NONE:-/srv}/x", &["server", "/srv/x"], Some("it"));
    check("server ${NONE}/x", &["server", "/srv/x"], Some("likely"));
    check("server ${userHome}/x", &["server", "/home/u/x"], Some("it"));
    check("server --root=${input:root}", &["server", "--root=/srv"], Some("likely"));
    check("server --root=${input:root}", &["server", "/srv"], None);
    check("server ${a:b}-${c:d}-end", &["server", "1-2-end"], Some("likely"));
    check("server ${a:b}-${c:d}-end", &["server", "12-end"], None);
}

#[test]
fn a_variable_alone_proves_nothing() {
    for declared in
        ["python3 ${input:script}", "node ${input:dir}/${input:file}", "${input:program}", "npx ${input:name}"]
    {
        for argv in [&["python3", "worker.py"][..], &["node", "/srv/worker.js"], &["worker"], &["npx", "worker"]] {
            check(declared, argv, None);
        }
    }
    check("python3 ${TOOLS}", &["python3", "/opt/tools"], Some("likely"));
    check("docker run -i ${input:image}", &["docker", "run", "-i", "postgres"], Some("likely"));
}

#[test]
fn a_relative_command_matches_only_in_its_directory() {
    let (here, there) = ([Some("/work/here"), None], [Some("/work/there"), None]);
    let cases: [(&str, &[&str]); 10] = [
        ("python3 server.py", &["python3", "server.py"]),
        ("node dist/index", &["node", "dist/index"]),
        ("npx tsx src/index", &["npx", "tsx", "src/index"]),
        ("./bin/server", &["./bin/server"]),
        ("python3 -m server", &["python3", "-m", "server"]),
        ("uv run server.py", &["uv", "run", "server.py"]),
        ("uv run server.py", &["/work/here/.venv/bin/python3", "server.py"]),
        ("cargo run", &["cargo", "run"]),
        ("npm run mcp", &["npm", "run", "mcp"]),
        ("tool --config=./x", &["tool", "--config=./x"]),
    ];
    for (declared, argv) in cases {
        check(declared, argv, Some("likely"));
        check_in(declared, here, argv, Some("it"));
        check_in(declared, there, argv, None);
        check_in(declared, [None, Some("/work/here")], argv, Some("it"));
        check_in(declared, [Some("/work"), Some("here")], argv, Some("it"));
        check_in(declared, [None, Some("${workspaceFolder}")], argv, Some("likely"));
        check_in(declared, [Some("/work/here"), Some("${workspaceFolder}")], argv, Some("it"));
        check_in(declared, [None, Some("${input:dir}")], argv, Some("likely"));
    }
    let uv = "uv --directory /work/here run server.py";
    check(uv, &["uv", "--directory", "/work/here", "run", "server.py"], Some("it"));
    check(uv, &["/work/here/.venv/bin/python", "server.py"], Some("it"));
    check(uv, &["uv", "--directory", "/work/there", "run", "server.py"], None);
    let anywhere = "uv --directory ${workspaceFolder} run server.py";
    check(anywhere, &["python3", "server.py"], Some("likely"));
    check_in(anywhere, here, &["python3", "server.py"], Some("it"));
    check_in(anywhere, there, &["python3", "server.py"], None);
    check("python3 /srv/server.py", &["python3", "server.py"], None);
    let module = "/work/there/.venv/bin/python -m server";
    check(module, &["/work/there/.venv/bin/python", "-m", "server"], Some("it"));
    check(module, &["/other/.venv/bin/python", "-m", "server"], Some("likely"));
}

#[test]
fn a_name_is_looked_up_in_path() {
    check("server", &["/usr/bin/server"], Some("it"));
    check("server", &["/srv/production/server"], Some("likely"));
    check("/srv/production/server", &["server"], Some("likely"));
    check("uvx server", &["/srv/production/bin/server"], Some("likely"));
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
fn a_declared_server_is_found_behind_runners_and_shells() {
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
    check("python3 -m acme.server -v", &["/usr/bin/python3.11", "-u", "-m", "acme.server", "-v"], Some("likely"));
    check("python3 /srv/s.py", &["python3", "/srv/s.py"], Some("it"));
    check("env A=b node /srv/s.js", &["node", "/srv/s.js"], Some("it"));
    check("tool serve", &["node", "/usr/local/bin/tool", "serve"], Some("it"));
    check("tool serve", &["bash", "-c", "exec tool 'serve'"], Some("it"));
}

#[test]
fn a_known_package_is_found() {
    let cases: [(&[&str], &str); 10] = [
        (&["npx", "@playwright/mcp@latest"], "@playwright/mcp"),
        (&["npx", "@playwright/mcp@0.0.30"], "@playwright/mcp"),
        (&["uvx", "mcp-server-git==1.2"], "mcp-server-git"),
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
    let decoys: [&[&str]; 14] = [
        &["npx", "@playwright/mcp-helper"],
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
    let client = |comm: &str, line: &str| client_of(comm, &words(line)).map(|client| client.name);
    assert_eq!(client("claude", "claude"), Some("Claude Code"));
    assert_eq!(client("codex", "/opt/codex mcp list"), Some("Codex CLI"));
    for line in [
        "node /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js",
        "node --x /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js",
    ] {
        assert_eq!(client("node", line), Some("Claude Code"));
    }
    assert_eq!(client("MainThread", "node --no-warnings /x/@google/gemini-cli/dist/index.js"), Some("Gemini CLI"));
    assert_eq!(client("bash", "bash -l"), None);
    assert_eq!(client("vim", "vim claude"), None);
    assert_eq!(client("node", "node /home/u/cursor-notes/server.js"), None);
    assert_eq!(client("node", "node server.js @anthropic-ai/claude-code/cli.js"), None);
}

/// leash found the project by itself, and anyone may have written its file.
#[test]
fn a_found_project_proves_servers_in_its_directory_only() {
    let argv = &["node", "/opt/server.js"];
    for (project, inside_only, expected) in [
        ("/work/here", true, "it"),
        ("/work", true, "it"),
        ("/work/here/below", true, "likely"),
        ("/work/he", true, "likely"),
        ("/work/there", true, "likely"),
        ("/work/there", false, "it"),
    ] {
        let mut knowledge = knowledge("node /opt/server.js", Some(project), None);
        knowledge.declared[0].inside_only = inside_only;
        assert_eq!(found(&knowledge, argv).as_deref(), Some(expected), "{project}");
    }
}

/// After `leash adopt` a server that was started before is still the declared one.
#[test]
fn an_adopted_server_is_found_with_and_without_leash() {
    let adopted = "leash run --session-env=S --name=it -- npx -y @acme/things";
    check(adopted, &["npx", "-y", "@acme/things"], Some("it"));
    check(adopted, &["leash", "run", "--session-env=S", "--name=it", "--", "npx", "-y", "@acme/things"], Some("it"));
    check("npx -y @acme/things", &["leash", "run", "--", "npx", "-y", "@acme/things"], Some("it"));
    check(adopted, &["npx", "-y", "@acme/other"], None);
}
