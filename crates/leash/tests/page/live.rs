//! The page in a real browser.

use std::ffi::OsString;

use rustix::process::Signal;
use testkit::deps::Deps;
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::browser::Browser;
use super::{cookie, link, wait_row};

/// The names in the list.
const NAMES: &str = "[...document.querySelectorAll('#rows tr.row .name')].map(e => e.textContent)";

fn has(name: &str) -> String {
    format!("{NAMES}.includes('{name}')")
}

fn has_not(name: &str) -> String {
    format!("!{}", has(name))
}

#[test]
fn rows_come_change_and_go_and_an_end_shows_its_receipt() {
    let deps = or_skip!(Deps::find());
    let mut scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &["--grace", "0"], &scene.tree("polite", ["--mcp"]));
    let mut browser = or_skip!(Browser::start(&scene));
    assert_eq!(browser.open(&link(&scene)), 200);
    browser.wait("document.getElementById('empty').textContent.startsWith('No MCP server runs here')");
    browser.wait("document.getElementById('connection').textContent === 'live'");

    // A real server of a host comes, and goes when its host is killed.
    let everything: Vec<OsString> = vec!["node".into(), deps.everything().into(), "stdio".into()];
    let mut host =
        scene.host(&Default::default(), None, &scene.run_words(["--grace", "0", "--name", "real"], &everything));
    let mail = scene.run_words(["--grace", "0", "--name", "mail"], &scene.tree("polite", ["--size", "2"]));
    let mut other = scene.host(&Default::default(), None, &mail);
    scene.census().wait_all_ready(1, LIMIT).expect("the tree did not come up");
    browser.wait(&has("real"));
    browser.wait(&has("mail"));
    browser.wait("document.getElementById('total-trees').textContent === '2'");
    // It changes: the server starts, and its memory grows while Node starts up.
    browser.wait(
        "[...document.querySelectorAll('#rows tr.row')].some(e => e.querySelector('.name').textContent === 'real' \
         && e.querySelector('.pill').textContent === 'running' && e.children[2].textContent.endsWith('MiB'))",
    );
    // The focus stays on its row while the others come and go.
    browser.read("[...document.querySelectorAll('#rows tr.row')].find(e => e.textContent.includes('mail')).focus()");
    host.signal(Signal::KILL);
    host.wait();
    browser.wait(&has_not("real"));
    browser.wait("document.querySelector('#receipts').textContent.includes('real')");
    assert_eq!(browser.read("document.activeElement.querySelector('.name').textContent"), "mail");

    // By keyboard: details, then the question, which names what ends.
    browser.press("Enter");
    browser.wait("document.querySelector('#details[open] .why')?.textContent.includes('leash')");
    browser.press("Escape");
    browser.press("e");
    let question = browser.wait("document.querySelector('#confirm[open]')?.textContent");
    let question = question.as_str().unwrap_or_default();
    assert!(
        question.contains("End the server mail") && question.contains("This ends ") && question.contains("frees "),
        "{question}"
    );
    assert!(question.contains("zoo"), "the processes are named: {question}");
    browser.press("Enter");
    browser.wait("!document.getElementById('confirm').open");
    assert!(scene.witness().is_populated(), "Enter alone ends nothing");
    let title = title_of_mail(&mut browser);
    browser.click("button", &format!("End {title}"));
    browser.wait("document.getElementById('confirm').open");
    browser.click("button", "End it");
    let receipt = browser.wait("document.querySelector('#confirm[open] .receipt-line')?.textContent");
    assert!(receipt.as_str().is_some_and(|line| line.starts_with("mail [") && line.contains("all gone")), "{receipt}");
    scene.census().wait_gone(LIMIT).expect("it is gone when the receipt is shown");
    browser.click("button", "Close");
    browser.wait(&has_not("mail"));
    browser.wait("document.querySelector('#receipts').textContent.includes('mail')");
    assert_eq!(browser.problems(), serde_json::json!([]), "errors on the console");
    other.wait();
    drop(browser);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The name of the row `mail`, as its buttons have it.
fn title_of_mail(browser: &mut Browser) -> String {
    let row = "[...document.querySelectorAll('#rows tr.row')].find(e => e.textContent.includes('mail'))";
    let id = browser.read(&format!("{row}.querySelector('.id').textContent"));
    format!("mail [{}]", id.as_str().unwrap_or_default())
}

/// Calls are counted where leash forwards them, and only the requests among the messages.
#[test]
fn calls_of_a_client_are_counted() {
    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = Gateway::in_front_of(&scene, &["--grace", "0"], fixture.url());
    check_calls(&scene, &gateway, &[LIST, INITIALIZED, LIST], 2);
    gateway.stop();
    let gateway = Gateway::single(&scene, &["--grace", "0"], &scene.tree("polite", ["--mcp"]));
    check_calls(&scene, &gateway, &[LIST, INITIALIZED, LIST, LIST], 3);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

fn check_calls(scene: &Scene, gateway: &Gateway, messages: &[&str], expected: u64) {
    let reply = gateway.post("x", None, &initialize("2025-06-18"));
    let session = reply.header("mcp-session-id").expect("a session");
    for message in messages {
        assert!(gateway.post("x", Some(session), message).status < 300, "{message}");
    }
    let cookie = cookie(scene, gateway);
    wait_row(gateway, &cookie, |row| row["calls"] == expected && row["in_flight"] == 0);
}

#[test]
fn text_of_a_server_is_never_markup() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &["--grace", "0"], &scene.tree("polite", ["--mcp"]));
    let mut browser = or_skip!(Browser::start(&scene));
    let name = "<img src=x onerror=alert(1)><b>bold</b>";
    let words = scene.run_words(["--grace", "0", "--name", name], &scene.tree("polite", [""; 0]));
    let mut host = scene.host(&Default::default(), None, &words);
    scene.census().wait_all_ready(1, LIMIT).expect("the tree did not come up");
    assert_eq!(browser.open(&link(&scene)), 200);
    browser.wait("document.querySelector('#rows tr.row .name')?.textContent.includes('<b>bold</b>')");
    browser.click("checkbox", "Processes");
    browser.press("Tab");
    browser.read("document.querySelector('#rows tr.row').focus()");
    browser.press("Enter");
    browser.wait("document.querySelector('#details[open] .why')?.textContent.includes('leash')");
    assert_eq!(browser.read("document.querySelectorAll('img, b').length"), 0);
    host.exit();
    host.wait();
    browser.wait("document.querySelector('#receipts').textContent.includes('<b>bold</b>')");
    assert_eq!(browser.read("document.querySelectorAll('img, b').length"), 0);
    assert_eq!(browser.problems(), serde_json::json!([]), "errors on the console");
    drop(browser);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn lost_connection_is_shown_and_screen_readers_get_a_table() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &["--grace", "0"], &scene.tree("polite", ["--mcp"]));
    let mut browser = or_skip!(Browser::start(&scene));
    let words = scene.run_words(["--grace", "0", "--name", "mail"], &scene.tree("polite", [""; 0]));
    let mut host = scene.host(&Default::default(), None, &words);
    scene.census().wait_all_ready(1, LIMIT).expect("the tree did not come up");
    assert_eq!(browser.open(&link(&scene)), 200);
    browser.wait(&has("mail"));
    browser.wait("document.querySelector('#rows .pill')?.textContent === 'running'");
    // A phone: the rows are cards, and still a table for screen readers.
    for (width, scheme) in [(1280, "light"), (390, "dark")] {
        browser.size(width, 800, scheme);
        let roles = browser.roles();
        assert!(roles.contains("table \"Servers\"") && roles.contains("region \"History\""), "{roles}");
        assert!(roles.contains("rowheader \"mail") && roles.contains("button \"End mail ["), "{roles}");
        let is_wide = browser.read("document.documentElement.scrollWidth > window.innerWidth");
        assert_eq!(is_wide, false, "no part is outside of a screen of {width}");
    }
    // Typing a filter runs nothing, although it has the letters of commands.
    browser.press("/");
    browser.type_text("e nothing");
    browser.wait("document.getElementById('empty').textContent === 'Nothing matches the filter.'");
    assert_eq!(browser.read("document.getElementById('confirm').open"), false);
    gateway.stop();
    browser.wait("document.getElementById('connection').textContent.startsWith('connection lost')");
    browser.wait("document.body.classList.contains('old')");
    drop(browser);
    host.exit();
    host.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}
