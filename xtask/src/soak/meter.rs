//! What is looked at while sessions come and go.

use std::fs;

use rustix::process::Pid;
use testkit::gateway::Gateway;

use crate::bench::proc::{descendants, kilobytes};
use crate::step::{Failure, Outcome};

/// The server whose sessions expire.
pub(crate) const BRIEF: &str = "brief";

/// One number of `leash serve`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) name: &'static str,
    /// What a session may leave behind, on average, and still be said to leave nothing.
    pub(crate) tolerated: f64,
}

/// Half of the smallest block that the allocator has, in KiB. A whole session takes 1.7 KiB.
const LESS_THAN_A_BLOCK: f64 = 16.0 / 1024.0;

/// The block that holds a session's id alone, in KiB. Pages come and go as buffers move about, so that less is not seen there.
const BLOCK: f64 = 64.0 / 1024.0;

/// One of five thousand. What is left behind by some sessions only is seen as well.
const RARE: f64 = 1.0 / 5_000.0;

/// Processes are those below `leash serve`.
pub(crate) const METERS: [Meter; 6] = [
    Meter { name: "heap in use, KiB", tolerated: LESS_THAN_A_BLOCK },
    Meter { name: "anonymous memory, KiB", tolerated: BLOCK },
    Meter { name: "descriptors", tolerated: RARE },
    Meter { name: "threads", tolerated: RARE },
    Meter { name: "processes", tolerated: RARE },
    Meter { name: "sessions that do not expire", tolerated: RARE },
];

/// Of these as many must be left at the end as there were at the beginning.
pub(crate) const AT_REST: [&str; 2] = ["descriptors", "processes"];

/// The value of each meter.
pub(crate) type Values = [f64; METERS.len()];

/// What was seen at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Seconds since the beginning.
    pub(crate) time: f64,
    /// Sessions that had ended by then.
    pub(crate) ended: u64,
    pub(crate) values: Values,
}

/// What the gateway says of itself.
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn of(serve: &Gateway) -> Self {
        Self(serve.ask("GET", "/metrics", &[], b"").text())
    }

    /// All lines of a family whose labels hold `label`, together.
    pub(crate) fn sum(&self, family: &str, label: &str) -> f64 {
        let value = |line: &str| {
            let rest = line.strip_prefix(family).filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            value.parse::<f64>().ok().filter(|_| labels.contains(label))
        };
        self.0.lines().filter_map(value).sum()
    }

    /// Sessions that are not over.
    pub(crate) fn sessions(&self) -> f64 {
        self.sum("leash_sessions", "")
    }

    /// Sessions that are not over, without those that expire by themselves: how many of those there are is a matter of the moment.
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
        // Not what is private and dirty: that has the pages of a program that was just built, until they are on the disk.
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
    fn what_must_be_at_rest_is_looked_at() {
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
