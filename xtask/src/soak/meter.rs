//! The measured quantities while sessions start and end.

use std::fs;

use rustix::process::Pid;
use testkit::gateway::Gateway;

use crate::bench::proc::{descendants, kilobytes};
use crate::step::{Failure, Outcome};

/// The name of the server whose sessions expire.
pub(crate) const BRIEF: &str = "brief";

/// One number of `leash serve`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) name: &'static str,
    /// The average amount per session that still counts as no leak.
    pub(crate) tolerated: f64,
}

/// Half of the smallest block of the allocator, in KiB. A whole session takes 1.7 KiB.
const LESS_THAN_A_BLOCK: f64 = 16.0 / 1024.0;

/// The block that holds only a session's id, in KiB. Pages are allocated and freed as buffers move, so less than this
/// cannot be seen there.
const BLOCK: f64 = 64.0 / 1024.0;

/// One in five thousand. This also detects a leak of only some sessions.
const RARE: f64 = 1.0 / 5_000.0;

/// "Processes" are those below `leash serve`.
pub(crate) const METERS: [Meter; 6] = [
    Meter { name: "heap in use, KiB", tolerated: LESS_THAN_A_BLOCK },
    Meter { name: "anonymous memory, KiB", tolerated: BLOCK },
    Meter { name: "descriptors", tolerated: RARE },
    Meter { name: "threads", tolerated: RARE },
    Meter { name: "processes", tolerated: RARE },
    Meter { name: "sessions that do not expire", tolerated: RARE },
];

/// The meters that must have the same value at the end as at the beginning.
pub(crate) const AT_REST: [&str; 2] = ["descriptors", "processes"];

/// The value of each meter.
pub(crate) type Values = [f64; METERS.len()];

/// The measurements at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Seconds since the beginning.
    pub(crate) time: f64,
    /// Sessions that had ended by then.
    pub(crate) ended: u64,
    pub(crate) values: Values,
}

/// The metrics page of the gateway.
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn of(serve: &Gateway) -> Self {
        Self(serve.ask("GET", "/metrics", &[], b"").text())
    }

    /// The sum of all lines of a family whose labels contain `label`.
    pub(crate) fn sum(&self, family: &str, label: &str) -> f64 {
        let value = |line: &str| {
            let rest = line.strip_prefix(family).filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            value.parse::<f64>().ok().filter(|_| labels.contains(label))
        };
        self.0.lines().filter_map(value).sum()
    }

    /// The number of sessions that have not ended.
    pub(crate) fn sessions(&self) -> f64 {
        self.sum("leash_sessions", "")
    }

    /// The same without sessions that expire by themselves: their number depends on the moment.
    pub(crate) fn lasting(&self) -> f64 {
        self.sessions() - self.sum("leash_sessions", &format!("server=\"{BRIEF}\""))
    }
}

pub(crate) fn look(serve: &Gateway) -> Outcome<Values> {
    let pid: Pid = serve.pid();
    if !serve.is_alive() {
        return Err(Failure::new(format!("leash serve is gone: {}", serve.said())));
    }
    let page = Page::of(serve);
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).map_or(0, Iterator::count);
    Ok([
        page.sum("leash_heap_bytes", "used") / 1024.0,
        // Not `Private_Dirty`: it includes the pages of a program that was just built, until they are written to the
        // disk.
        kilobytes(pid, "Anonymous:")?,
        serve.descriptors() as f64,
        threads as f64,
        descendants(pid).len() as f64,
        page.lasting(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_at_rest_are_measured() {
        assert!(AT_REST.iter().all(|name| METERS.iter().any(|meter| meter.name == *name)));
    }

    #[test]
    fn lines_of_a_family_are_added() {
        let page = Page(
            "# TYPE leash_sessions gauge\n\
             leash_sessions{server=\"a\",state=\"live\"} 3\nleash_sessions{server=\"b\",state=\"ending\"} 4\n\
             leash_sessions{server=\"brief\",state=\"live\"} 10\n\
             leash_sessions_opened_total{server=\"a\"} 100\nleash_deletes_pending 2\n"
                .to_owned(),
        );
        assert_eq!((page.sessions(), page.sum("leash_sessions", "server=\"b\"")), (17.0, 4.0));
        assert_eq!(page.lasting(), 7.0);
        assert_eq!((page.sum("leash_deletes_pending", ""), page.sum("nothing", "")), (2.0, 0.0));
    }
}
