use super::*;

/// Real command lines, and the names of their servers.
const LINES: &[(&str, &str)] = &[
    // Packages.
    ("npx -y @modelcontextprotocol/server-everything", "server-everything"),
    ("npx -y @modelcontextprotocol/server-filesystem@2025.8.21 /home/u /srv", "server-filesystem"),
    ("npx --yes -- @upstash/context7-mcp --api-key K", "context7-mcp"),
    ("npx -y --registry https://r.example @acme/tool", "tool"),
    ("npx -y -p @acme/tools acme-server", "acme-server"),
    ("npx -y --package=@acme/tools acme-server", "acme-server"),
    ("npx -y @playwright/mcp@latest --headless", "playwright"),
    ("npx @stripe/mcp --tools=all", "stripe"),
    ("npx -y @sentry/mcp-server", "sentry"),
    ("npx mcp-remote https://mcp.example.org/sse", "mcp-remote"),
    ("npx -y github:acme/notes#main", "notes"),
    ("npx tsx src/weather.ts", "weather"),
    ("npm exec @modelcontextprotocol/server-memory", "server-memory"),
    ("npm exec -- server-memory", "server-memory"),
    ("pnpm dlx @acme/tool@1", "tool"),
    ("bunx @acme/tool", "tool"),
    ("bun x @acme/tool", "tool"),
    ("deno run -A npm:@acme/tool@1", "tool"),
    ("deno run --allow-net jsr:@acme/tool", "tool"),
    ("uvx mcp-server-time@1.2 --local-timezone UTC", "mcp-server-time"),
    ("uvx mcp-server-git==1.2 --repository /x", "mcp-server-git"),
    ("uvx markitdown-mcp>=0.1", "markitdown-mcp"),
    ("uvx --from git+https://github.com/o/r serena", "serena"),
    ("uvx --python 3.12 --with httpx awslabs.core-mcp-server@latest", "awslabs.core-mcp-server"),
    ("uvx git+https://github.com/acme/notes@v1", "notes"),
    ("uv tool run mcp-server-fetch", "mcp-server-fetch"),
    ("pipx run mcp-server-fetch", "mcp-server-fetch"),
    // Modules and scripts.
    ("python -m mcp_server_git", "mcp-server-git"),
    ("/usr/bin/python3.12 -u -m awslabs.core_mcp_server.server", "core-mcp-server"),
    ("python3 -W ignore -m acme.server", "acme"),
    ("uv run --directory /x server.py", "server"),
    ("uv --directory /home/u/weather run server.py", "weather"),
    ("uv run --with mcp[cli] mcp run /srv/tools/files.py", "files"),
    ("uv run --directory=/srv/weather fastmcp run server.py:app", "weather"),
    ("uv run mcp-server-git", "mcp-server-git"),
    ("python3 /srv/tools/mcp.py", "tools"),
    ("node /opt/notes/dist/index.js", "notes"),
    ("node --env-file .env --max-old-space-size=512 /opt/notes/build/src/main.js", "notes"),
    ("node /x/node_modules/@o/tool/dist/index.js", "tool"),
    ("node /x/node_modules/@playwright/mcp/cli.js", "playwright"),
    ("node /x/node_modules/.bin/mcp-server-everything", "mcp-server-everything"),
    ("node /home/u/index.js", "index"),
    ("node ./weather.mjs", "weather"),
    ("tsx watch src/weather.ts", "weather"),
    ("bun run /opt/notes/index.ts", "notes"),
    ("deno run -A /opt/notes/main.ts", "notes"),
    ("bash /opt/notes/start.sh", "notes"),
    ("ruby /srv/weather.rb", "weather"),
    ("php artisan mcp:serve", "artisan"),
    ("java -Xmx1g -jar /opt/weather.jar", "weather"),
    ("go run ./cmd/weather", "weather"),
    ("go run github.com/acme/weather@latest", "weather"),
    ("dotnet run --project /srv/Weather/Weather.csproj", "Weather"),
    ("cargo run --release --bin weather", "weather"),
    ("poetry run python -m weather_server", "weather-server"),
    ("conda run -n env --no-capture-output python -m weather", "weather"),
    ("npm run mcp", "mcp"),
    ("npm --prefix /srv/weather start", "weather"),
    ("yarn --cwd /srv/weather run start", "weather"),
    // Images.
    ("docker run -i --rm mcp/github:1", "github"),
    ("docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:1", "github-mcp-server"),
    ("docker run -i --rm --name=x -v /a:/b localhost:5000/acme/notes@sha256:00", "notes"),
    ("podman run -i acme/mcp-server:2 --flag", "acme"),
    ("docker --context c run -i --mount type=bind,src=/a,dst=/b mcp/filesystem /b", "filesystem"),
    ("docker exec -i -u root weather-1 node index.js", "weather-1"),
    ("docker mcp gateway run", "docker"),
    // Programs.
    ("/usr/local/bin/mcp-files --root /", "mcp-files"),
    ("cat", "cat"),
    ("python3", "python3"),
    // Wrappers.
    ("env A=1 mcp-files", "mcp-files"),
    ("env -u HOME -i A=1 B=2 npx -y @acme/tool", "tool"),
    ("nice -n 5 timeout -k 5 60 stdbuf -oL npx @acme/tool", "tool"),
    ("sudo -u bob npx @acme/tool", "tool"),
    ("op run --env-file=.env -- npx @acme/tool", "tool"),
    ("mise exec node@22 -- npx @acme/tool", "tool"),
    ("leash run -- npx @acme/tool", "tool"),
    ("leash run --grace 1s -v npx @acme/tool", "tool"),
    ("/usr/bin/leash run --session-env=S --name=notes -- npx @acme/tool", "notes"),
    ("env A=1 leash run --name notes npx @acme/tool", "notes"),
    ("sh -c cat", "cat"),
    // Windows.
    (r"C:\nodejs\npx.cmd -y @acme/tool", "tool"),
    (r"cmd /c npx -y @acme/tool", "tool"),
    (r"C:\nodejs\node.exe C:\Users\me\weather\dist\index.js", "weather"),
    (r"py -3 -m weather_server", "weather-server"),
];

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_server_is_called_by_what_it_is() {
    for (line, name) in LINES {
        assert_eq!(server_name(&words(line)).as_deref(), Some(*name), "{line}");
    }
    assert_eq!(server_name(&[]), None);
    assert_eq!(server_name(&[String::new()]), None);
}

#[test]
fn a_shell_is_called_by_its_last_command() {
    for (text, name) in [
        ("exec npx -y @acme/tool --flag", "tool"),
        ("cd /srv && A=1 exec npx -y '@acme/tool'", "tool"),
        ("setsid sleep 600 & exec cat", "cat"),
        ("source .venv/bin/activate; python -m weather", "weather"),
        ("npx @acme/tool 2>&1 | tee log", "tool"),
        ("npx @acme/tool 2>/dev/null || npx other", "other"),
        ("echo up; while read -r line; do :; done", "sh"),
        ("sleep 5 & sleep 6 & wait", "sh"),
        ("\"$@\"", "sh"),
        ("(cd /srv; npx x)", "x"),
        ("", "sh"),
    ] {
        for shell in [&["sh", "-c"][..], &["/bin/bash", "-lc"], &["zsh", "-l", "-c"]] {
            let argv: Vec<String> = shell.iter().copied().chain([text]).map(str::to_owned).collect();
            let shell = program_name(shell[0]);
            let name = if name == "sh" { shell } else { name };
            assert_eq!(server_name(&argv).as_deref(), Some(name), "{text}");
        }
    }
}

/// A title that npm wrote over its arguments is one word; so is a path with a blank.
#[test]
fn one_word_may_be_a_title_or_a_path() {
    assert_eq!(server_name(&["npm exec @acme/tool /home".to_owned()]).as_deref(), Some("tool"));
    assert_eq!(server_name(&["/opt/My App/server".to_owned()]).as_deref(), Some("server"));
}

#[test]
fn a_script_is_called_by_its_package() {
    let package_in = |dir: &Path| match dir.to_str() {
        Some("/srv/repo") => Some("@acme/weather-server".to_owned()),
        Some("/srv/odd") => Some("@acme/mcp".to_owned()),
        _ => None,
    };
    for (line, directory, name) in [
        ("node dist/index.js", "/srv/repo", "weather-server"),
        ("node /srv/repo/build/src/main.js", "/", "weather-server"),
        ("node ../repo/index.js", "/srv/other", "weather-server"),
        ("node weather.js", "/srv/repo", "weather"),
        ("node index.js", "/srv/odd", "acme"),
        ("node index.js", "/srv/other", "other"),
        ("node index.js", "/home/u", "index"),
        ("node index.js", "/srv", "index"),
        ("npx .", "/srv/repo", "weather-server"),
        ("npx ./repo", "/srv", "weather-server"),
        ("npm start", "/srv/repo", "weather-server"),
        ("npm start", "/", "npm"),
        ("npm run mcp", "/", "mcp"),
        ("npm --prefix /srv/repo run start", "/", "weather-server"),
        ("python server.py", "/home/u/notes", "notes"),
    ] {
        let found = server_name_in(&words(line), Some(Path::new(directory)), &package_in);
        assert_eq!(found.as_deref(), Some(name), "{line} in {directory}");
    }
}

#[test]
fn a_name_is_one_short_line() {
    let found = |word: &str| server_name(&[word.to_owned()]);
    assert_eq!(found("a\u{1b}[1m\nb").as_deref(), Some("a[1mb"));
    assert_eq!(found(&"ü".repeat(400)).map(|name| name.len()), Some(LABEL_LENGTH));
    assert_eq!(found("\n"), None);
}
