//! The options of `run` and `connect` that adopted entries use.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use testkit::leash::Answer;

use crate::Home;

#[track_caller]
fn session(value: Option<&str>) -> (String, String) {
    let home = Home::new();
    let words = ["run", "--session-env=THEIR_SESSION", "--", "sh", "-c", "echo $LEASH_ID"];
    let mut command = home.scene.leash(words);
    command.env_remove("THEIR_SESSION").envs(value.map(|value| ("THEIR_SESSION", value)));
    let output = command.output().expect("cannot start leash");
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn session_named_in_a_variable_is_joined() {
    assert_eq!(session(Some("952665ee-2e01-4a26")), ("952665ee-2e01-4a26".to_owned(), String::new()));
}

#[test]
fn without_the_variable_it_is_a_separate_session() {
    for value in [None, Some("")] {
        let (id, said) = session(value);
        assert_eq!((id.len(), said.as_str()), (26, ""), "{id}");
    }
    let (id, said) = session(Some("no/id"));
    assert_eq!(id.len(), 26, "{id}");
    assert!(said.starts_with("warning: `THEIR_SESSION` does not hold a valid session id"), "{said}");
}

#[test]
fn a_header_comes_from_a_variable_and_is_not_on_the_command_line() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let mut command = home.scene.leash(["connect", "--header-env=X-Key=LEASH_HEADER_X_KEY", "--transport=http", &url]);
    command.env("LEASH_HEADER_X_KEY", "s3cret\n").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("cannot start leash");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}\n")
        .expect("it reads");
    let (mut stream, _) = listener.accept().expect("it connects");
    let mut request = Vec::new();
    while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let mut buffer = [0; 1024];
        let got = stream.read(&mut buffer).expect("it sends");
        assert_ne!(got, 0, "it closed early");
        request.extend_from_slice(&buffer[..got]);
    }
    let request = String::from_utf8_lossy(&request).to_lowercase();
    assert!(request.contains("\r\nx-key: s3cret\r\n"), "{request}");
    let argv = fs::read(format!("/proc/{}/cmdline", child.id())).expect("it runs");
    assert!(!String::from_utf8_lossy(&argv).contains("s3cret"));
    drop((stdin, stream));
    child.wait().expect("it is ours");
}

#[test]
fn a_header_without_its_variable_is_refused() {
    let home = Home::new();
    let answer = home.leash(&["connect", "--header-env=X-Key=NOT_SET_HERE", "http://127.0.0.1:1/mcp"]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("the variable `NOT_SET_HERE` of --header-env is not set"), "{answer:?}");
}

/// leash could not recognise the entries that it would write.
#[test]
fn a_leash_by_another_name_changes_nothing() {
    let home = Home::new();
    let other = home.scene.dir().join("other");
    fs::copy(testkit::leash::leash(), &other).expect("there is room for a copy");
    let config = home.scene.dir().join(".claude.json");
    let before = r#"{"mcpServers": {"a": {"command": "npx", "args": ["a"]}}}"#;
    fs::write(&config, before).expect("the home is ours");
    let mut command = home.scene.command(&other);
    command.args(["adopt", "--yes"]);
    let answer: Answer = command.output().expect("cannot start leash").into();
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("is not called `leash`") && answer.stderr.contains("--leash PATH"), "{answer:?}");
    assert_eq!(fs::read_to_string(&config).expect("it is there"), before);
    let answer: Answer = command.args(["--leash", "leash"]).output().expect("cannot start leash").into();
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(fs::read_to_string(&config).expect("it is there").contains(r#""command": "leash""#), "{answer:?}");
}
