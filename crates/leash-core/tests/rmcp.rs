//! The official SDK's client with servers on the leash.

use std::time::Duration;

use leash_core::receipt::Reason;
use leash_core::rmcp::Child;
use leash_core::{Places, Session, Spec};
use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt as _};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

/// The trees belong to this process, so the scene is set for the user that runs it.
fn me() -> Who {
    if rustix::process::geteuid().is_root() { Who::Root } else { Who::User }
}

fn places(scene: &Scene) -> Places {
    Places { program: scene.leash_path(), ..Places::below(scene.dir().join("run")) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server of the official SDK, which starts a helper on request.
fn server(scene: &mut Scene) -> Spec {
    let mut words = vec![scene.fixture_path().into_os_string(), "stdio".into(), "--census".into()];
    words.push(scene.census().path().into());
    Spec::new(words).grace(Duration::from_millis(100))
}

type Client = RunningService<RoleClient, ()>;

/// Makes the server start a helper that survives unless it is searched for.
async fn start_helper(client: &Client) {
    let result = client.call_tool(CallToolRequestParams::new("spawn_helper")).await.unwrap();
    assert_ne!(result.is_error, Some(true), "{result:?}");
}

#[test]
fn session_answers_and_ends() {
    let mut scene = or_skip!(Scene::set(me()));
    let spec = server(&mut scene);
    let receipt = runtime().block_on(async {
        let mut session = Session::new(places(&scene));
        let tree = session.start_async(spec).await.unwrap();
        let client = ().serve(tree.take_transport().unwrap()).await.unwrap();
        assert!(tree.take_transport().is_err(), "the streams were taken");
        assert!(client.list_all_tools().await.unwrap().iter().any(|tool| tool.name == "spawn_helper"));
        start_helper(&client).await;
        client.cancel().await.unwrap();
        session.end().await
    });
    assert!(!scene.census().is_populated(), "something was alive when the end was told");
    assert!(receipt.all_gone(), "{receipt:?}");
    assert!(receipt.trees().all(|tree| tree.members >= 1), "{receipt:?}");
}

#[test]
fn end_of_the_session_ends_its_client() {
    let mut scene = or_skip!(Scene::set(me()));
    let spec = server(&mut scene);
    runtime().block_on(async {
        let mut session = Session::new(places(&scene));
        let tree = session.start_async(spec).await.unwrap();
        let client = ().serve(tree.take_transport().unwrap()).await.unwrap();
        start_helper(&client).await;
        let receipt = session.end().await;
        assert!(receipt.all_gone(), "{receipt:?}");
        assert_eq!(receipt.reason, Reason::PROGRAM);
        tokio::time::timeout(wait::LIMIT, client.waiting()).await.expect("the client notices").unwrap();
    });
    assert!(!scene.census().is_populated(), "something was alive when the end was told");
}

#[test]
fn child_ends_with_its_client() {
    let mut scene = or_skip!(Scene::set(me()));
    let spec = server(&mut scene);
    runtime().block_on(async {
        let child = Child::start(spec, &places(&scene)).await.unwrap();
        assert!(child.tree().is_some());
        let client = ().serve(child).await.unwrap();
        start_helper(&client).await;
        client.cancel().await.unwrap();
    });
    scene.census().wait_gone(wait::LIMIT).unwrap();
}

#[test]
fn child_reports_its_end() {
    let mut scene = or_skip!(Scene::set(me()));
    let spec = server(&mut scene);
    runtime().block_on(async {
        let mut child = Child::start(spec, &places(&scene)).await.unwrap();
        let receipt = child.end().await.unwrap().unwrap();
        assert!(receipt.all_gone(), "{receipt:?}");
        assert_eq!(receipt.reason, Reason::PROGRAM);
        assert!(child.end().await.is_none() && child.tree().is_none(), "it ends once");
    });
    assert!(!scene.census().is_populated(), "something was alive when the end was told");
}

#[test]
fn a_child_that_is_dropped_with_its_runtime_ends_too() {
    let mut scene = or_skip!(Scene::set(me()));
    let spec = server(&mut scene);
    let runtime = runtime();
    let client = runtime.block_on(async {
        let client = ().serve(Child::start(spec, &places(&scene)).await.unwrap()).await.unwrap();
        start_helper(&client).await;
        client
    });
    drop(runtime);
    scene.census().wait_gone(wait::LIMIT).unwrap();
    drop(client);
}

#[test]
fn public_types_are_send() {
    fn send<T: Send + 'static>() {}
    send::<Child>();
    send::<leash_core::rmcp::Transport>();
}
