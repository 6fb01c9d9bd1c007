//! The ways from a client through leash to the fixture, and the checks at their end.

use std::ffi::OsString;

use testkit::client::{Client, Order, Target};
use testkit::deps::Deps;
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::relay::Relay;
use testkit::scene::Scene;
use testkit::user::Who;

/// A way through leash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// client ~ HTTP ~ `leash serve` - the fixture.
    ServeStdio,
    /// client ~ HTTP ~ `leash serve` ~ HTTP ~ the fixture.
    ServeHttp,
    /// client - `leash connect` ~ HTTP ~ the fixture.
    Connect,
    /// client - `leash connect` ~ HTTP ~ `leash serve` - the fixture.
    Both,
}

/// leash, and the fixture behind it.
#[derive(Debug)]
pub(crate) struct Road {
    pub(crate) target: Target,
    pub(crate) gateway: Option<Gateway>,
    /// The fixture, if it is an HTTP server.
    pub(crate) fixture: Option<Fixture>,
    /// The relay between leash and an HTTP fixture.
    pub(crate) relay: Option<Relay>,
    pub(crate) scene: Scene,
}

/// leash considers a client without connection as gone at once: otherwise each test would take seconds.
const OPTIONS: [&str; 4] = ["--linger", "100ms", "--grace", "500ms"];

impl Way {
    pub(crate) fn build(self) -> Result<Road, String> {
        self.build_with(&[])
    }

    /// The same with these options of the fixture.
    pub(crate) fn build_with(self, options: &[&str]) -> Result<Road, String> {
        let scene = Scene::set(Who::me())?;
        let fixture = matches!(self, Self::ServeHttp | Self::Connect).then(|| Fixture::http(options));
        let relay = fixture.as_ref().map(|fixture| Relay::to(fixture.address()));
        let url = relay.as_ref().zip(fixture.as_ref()).map(|(relay, fixture)| relay.url(fixture.url()));
        let gateway = match (self, &url) {
            (Self::ServeHttp, Some(url)) => Some(Gateway::in_front_of(&scene, &OPTIONS, url)),
            (Self::ServeStdio | Self::Both, _) => Some(Gateway::single(&scene, &OPTIONS, &stdio(&scene, options))),
            _ => None,
        };
        let url = gateway.as_ref().map(|gateway| gateway.url("x")).or(url).expect("there is one or the other");
        let target = match self {
            Self::ServeStdio | Self::ServeHttp => Target::Http(url),
            Self::Connect | Self::Both => Target::Stdio(vec![scene.leash_path().into(), "connect".into(), url.into()]),
        };
        Ok(Road { target, gateway, fixture, relay, scene })
    }

    /// True if two calls without a session reach the same process.
    pub(crate) fn ends_in_a_process(self) -> bool {
        matches!(self, Self::ServeStdio | Self::Both)
    }
}

fn stdio(scene: &Scene, options: &[&str]) -> Vec<OsString> {
    let census = scene.dir().join("census").into_os_string();
    let words = [scene.fixture_path().into(), "stdio".into(), "--census".into(), census];
    words.into_iter().chain(options.iter().map(OsString::from)).collect()
}

impl Road {
    /// Starts a client on this way.
    pub(crate) fn start(&self, deps: &Deps, order: Order<'_>) -> Client {
        Client::start_on(&self.scene, deps, &Order { target: self.target.clone(), ..order })
    }

    /// Checks that everything of the clients is gone: leash has no session, every session at the server was deleted
    /// once, and no process is left. Returns the reasons in the receipts, oldest first.
    pub(crate) fn check_end(self, sessions: u64) -> Vec<String> {
        if let Some(gateway) = &self.gateway {
            gateway.wait_empty("x");
        }
        if let Some(fixture) = &self.fixture {
            assert_eq!(fixture.wait_deleted(), sessions);
        }
        self.check_stop(sessions)
    }

    /// The same if sessions may be left until the end of the gateway.
    pub(crate) fn check_stop(self, sessions: u64) -> Vec<String> {
        if let Some(gateway) = self.gateway {
            gateway.stop();
        }
        if let Some(fixture) = &self.fixture {
            assert_eq!(fixture.wait_deleted(), sessions);
        }
        self.scene.wait_gone(&[]).expect("nothing is left");
        assert!(self.scene.ledger().is_empty(), "{:?}", self.scene.ledger());
        let history = self.scene.answer(["history", "--json"]).json();
        let mut receipts = history["receipts"].as_array().cloned().unwrap_or_default();
        receipts.sort_by_key(|receipt| receipt["ended"].as_str().map(str::to_owned));
        for holding in receipts.iter().flat_map(|receipt| receipt["holdings"].as_array().into_iter().flatten()) {
            assert_eq!(holding["fate"], "gone", "{history:#}");
        }
        receipts.iter().map(|receipt| receipt["reason"]["kind"].as_str().unwrap_or_default().to_owned()).collect()
    }
}
