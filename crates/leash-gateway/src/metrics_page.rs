//! The page `/metrics`: everything that is counted, in Prometheus' text format.

use std::{cell::Cell, collections::BTreeMap, fmt::Write as _, rc::Rc};

use leash_tree::platform::linux;

use crate::control::Jobs;
use crate::metrics::{BUCKETS, Counters};
use crate::state::server::{JOBS_BUCKET, Server};

/// Writes all metrics in Prometheus' text format.
pub(crate) fn render(jobs: &Jobs, memory: &BTreeMap<String, u64>) -> String {
    let gateway = &jobs.gateway;
    let metrics = &gateway.metrics;
    let mut page = MetricsPage::default();
    let servers = metrics.servers.borrow();
    let open = |server: &Rc<Server>| server.sessions.borrow().len();
    let of_jobs: usize = jobs.servers().iter().map(open).sum();
    let live = |name: &Rc<str>| {
        let more = if **name == *JOBS_BUCKET { of_jobs } else { 0 };
        gateway.server(name).as_ref().map_or(0, open) + more
    };
    page.family("leash_sessions", "gauge", "Sessions by server and state.");
    for (name, counters) in servers.iter() {
        page.line(&[("server", name), ("state", "live")], live(name));
        page.line(&[("server", name), ("state", "ending")], counters.ending.get());
    }
    page.counters("leash_sessions_opened_total", "Sessions begun.", &servers, |counters| &counters.opened);
    page.counters(
        "leash_sessions_refused_total",
        "Sessions refused because a limit was reached.",
        &servers,
        |counters| &counters.refused,
    );
    page.family("leash_sessions_ended_total", "counter", "Sessions ended, by reason.");
    for (name, counters) in servers.iter() {
        for (reason, count) in counters.ended.borrow().iter() {
            page.line(&[("server", name), ("reason", reason)], count);
        }
    }
    page.family("leash_trees", "gauge", "Process trees that run.");
    for (name, counters) in servers.iter() {
        page.line(&[("server", name)], counters.trees.get());
    }
    page.family("leash_tree_memory_bytes", "gauge", "Memory of the trees, as last measured by their keepers.");
    for name in servers.keys() {
        page.line(&[("server", name)], memory.get(&**name).unwrap_or(&0));
    }
    page.counters("leash_trees_started_total", "Process trees started.", &servers, |counters| &counters.trees_started);
    page.counters("leash_deletes_sent_total", "DELETEs sent upstream.", &servers, |counters| &counters.deletes_sent);
    page.counters("leash_deletes_failed_total", "Upstream sessions left behind.", &servers, |counters| {
        &counters.deletes_failed
    });
    page.family("leash_control_sessions", "gauge", "Sessions of the control API that are not over.");
    page.line(&[], jobs.list().len());
    page.family("leash_deletes_pending", "gauge", "Upstream sessions being deleted.");
    page.line(&[], metrics.deletes_pending.get());
    let text = "Upstream sessions whose latest state the gateway's keeper does not know.";
    page.family("leash_keeper_backlog", "gauge", text);
    page.line(&[], gateway.keeper_link.backlog());
    page.counters("leash_garbage_lines_total", "Lines of servers that are not JSON-RPC.", &servers, |counters| {
        &counters.garbage_lines
    });
    page.counters("leash_received_bytes_total", "Bytes of requests.", &servers, |counters| &counters.bytes_in);
    page.counters("leash_sent_bytes_total", "Bytes of answers.", &servers, |counters| &counters.bytes_out);
    if let Some(heap) = linux::heap() {
        page.family("leash_heap_bytes", "gauge", "Memory of leash itself, as its allocator counts it.");
        page.line(&[("state", "used")], heap.used);
        page.line(&[("state", "free")], heap.free);
    }
    page.family("leash_held_bytes", "gauge", "Bodies of requests, and answers that clients have not read.");
    page.line(&[("of", "requests")], gateway.bodies.used());
    page.line(&[("of", "answers")], gateway.memory.held());
    page.family("leash_connections", "gauge", "Open client connections.");
    page.line(&[], metrics.connections.get());
    page.family("leash_requests_total", "counter", "Requests by status.");
    for (name, counters) in servers.iter() {
        for (status, count) in counters.answers.borrow().iter() {
            page.line(&[("server", name), ("status", &status.to_string())], count);
        }
    }
    page.latency(&servers);
    page.text
}

/// The page under construction.
#[derive(Default)]
struct MetricsPage {
    text: String,
    name: &'static str,
}

impl MetricsPage {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.sample("", labels, value);
    }

    /// Server names have only letters, digits, dots and dashes, so nothing needs escaping.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let braces = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{}{suffix}{braces} {value}", self.name);
    }

    fn counters(
        &mut self,
        name: &'static str,
        help: &str,
        servers: &BTreeMap<Rc<str>, Rc<Counters>>,
        counter: fn(&Counters) -> &Cell<u64>,
    ) {
        self.family(name, "counter", help);
        for (server, counters) in servers {
            self.line(&[("server", server)], counter(counters).get());
        }
    }

    fn latency(&mut self, servers: &BTreeMap<Rc<str>, Rc<Counters>>) {
        self.family("leash_request_seconds", "histogram", "Time to the head of the answer.");
        for (server, counters) in servers {
            let histogram = &counters.latency;
            let mut below = 0;
            for (bound, bucket) in BUCKETS.iter().zip(&histogram.buckets) {
                below += bucket.get();
                self.sample("_bucket", &[("server", server), ("le", &bound.to_string())], below);
            }
            self.sample("_bucket", &[("server", server), ("le", "+Inf")], histogram.count.get());
            self.sample("_sum", &[("server", server)], histogram.sum.get());
            self.sample("_count", &[("server", server)], histogram.count.get());
        }
    }
}
