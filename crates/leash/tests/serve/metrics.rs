//! The page `/metrics`.

use std::collections::BTreeSet;

use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{LIST, both, open};

/// The series of the page, without their values.
fn series(gateway: &Gateway) -> BTreeSet<String> {
    let page = gateway.ask("GET", "/metrics", &[], b"").text();
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
}

#[test]
fn every_series_of_a_fresh_gateway_is_there_with_zero() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, "");
    let fresh = series(&gateway);
    for name in ["stdio", "http", "session"] {
        for zero in [
            format!("leash_sessions{{server=\"{name}\",state=\"live\"}}"),
            format!("leash_sessions_opened_total{{server=\"{name}\"}}"),
            format!("leash_sessions_ended_total{{server=\"{name}\",reason=\"client_deleted\"}}"),
            format!("leash_sessions_ended_total{{server=\"{name}\",reason=\"owner_gone\"}}"),
            format!("leash_requests_total{{server=\"{name}\",status=\"200\"}}"),
            format!("leash_requests_total{{server=\"{name}\",status=\"503\"}}"),
            format!("leash_tree_memory_bytes{{server=\"{name}\"}}"),
            format!("leash_request_seconds_count{{server=\"{name}\"}}"),
        ] {
            assert_eq!(gateway.metric(&zero), Some(0.0), "{zero}");
        }
    }
    for name in ["stdio", "http"] {
        let session = open(&gateway, name);
        assert_eq!(gateway.post(name, Some("unknown"), LIST).status, 404);
        gateway.ask("DELETE", &format!("/{name}/mcp"), &[("mcp-session-id", &session)], b"");
        gateway.wait_metric(&format!("leash_sessions_ended_total{{server=\"{name}\",reason=\"client_deleted\"}}"), 1.0);
    }
    assert_eq!(series(&gateway), fresh, "use adds no series");
}
