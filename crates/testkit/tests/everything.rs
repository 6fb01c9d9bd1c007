//! `server-everything` starts with both of its transports over HTTP.

use testkit::deps::Deps;
use testkit::everything::{Everything, Transport};
use testkit::get;
use testkit::or_skip;

#[test]
fn both_transports_listen() {
    let deps = or_skip!(Deps::find());
    for (transport, path) in [(Transport::StreamableHttp, "/mcp"), (Transport::Sse, "/sse")] {
        let everything = Everything::start(&deps, transport);
        let address = everything.url().strip_prefix("http://").and_then(|rest| rest.strip_suffix(path)?.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {}", everything.url()));
        // Identifies the server: only Express answers this way.
        let page = get::get(address, "/nowhere");
        assert_eq!((page.status, page.header("x-powered-by")), (404, Some("Express")));
    }
}
