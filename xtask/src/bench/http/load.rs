//! Generates load on one thread: one call after the other, or many at a time.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;

use super::super::now;
use super::super::stats::quantile;
use super::client::{Connection, Endpoint, Session};
use crate::step::{Failure, Outcome};

/// The same concurrency as in the published numbers of the peers.
pub(super) const AT_ONCE: usize = 16;

/// Work that takes this much longer than its time has stalled.
const STALL: Duration = Duration::from_secs(60);

/// The thread that drives all connections of the bench.
pub(super) struct Driver {
    runtime: Runtime,
    tasks: LocalSet,
}

impl Driver {
    pub(super) fn new() -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
        Ok(Self { runtime, tasks: LocalSet::new() })
    }

    /// Runs `work`, which should take no longer than `time`.
    pub(super) fn run<T>(&self, time: Duration, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.tasks.block_on(&self.runtime, async {
            let done = timeout(time + STALL, work).await;
            done.unwrap_or_else(|_| Err(Failure::new(format!("no answer within {STALL:?}"))))
        })
    }
}

/// Round-trip times of calls that were made one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundTrip {
    /// In microseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// The number of calls.
    pub(super) calls: usize,
}

impl RoundTrip {
    pub(super) fn of(mut micros: Vec<f64>) -> Self {
        micros.sort_by(f64::total_cmp);
        Self { p50: quantile(&micros, 0.5), p99: quantile(&micros, 0.99), calls: micros.len() }
    }
}

/// One session, and the operations on it.
pub(super) struct Lane {
    endpoint: Endpoint,
    session: Session,
}

impl Lane {
    pub(super) async fn open(endpoint: &Endpoint) -> Outcome<Self> {
        let session = Connection::open(endpoint).await?.initialize(endpoint).await?;
        Ok(Self { endpoint: endpoint.clone(), session })
    }

    /// Opens a connection and makes one call. New for every sample, because some peers close idle connections between
    /// two samples.
    async fn connect(&self) -> Outcome<Connection> {
        let mut connection = Connection::open(&self.endpoint).await?;
        connection.call(&self.endpoint, &self.session).await?;
        Ok(connection)
    }

    /// Makes one call after the other for `time`, on one connection.
    pub(super) async fn one_by_one(&self, time: Duration) -> Outcome<RoundTrip> {
        let mut connection = self.connect().await?;
        let mut micros = Vec::new();
        let start = now();
        let mut before = start;
        while before - start < time {
            connection.call(&self.endpoint, &self.session).await?;
            let after = now();
            micros.push((after - before).as_secs_f64() * 1e6);
            before = after;
        }
        Ok(RoundTrip::of(micros))
    }

    /// Makes as many calls as the gateway answers within `time`, on many connections. Returns their number, and the
    /// time it took.
    pub(super) async fn at_once(&self, time: Duration) -> Outcome<(u64, Duration)> {
        let mut connections = Vec::new();
        while connections.len() < AT_ONCE {
            connections.push(self.connect().await?);
        }
        let start = now();
        let mut callers = JoinSet::new();
        for mut connection in connections {
            let (endpoint, session) = (self.endpoint.clone(), self.session.clone());
            callers.spawn_local(async move {
                let mut calls = 0;
                while now() - start < time {
                    connection.call(&endpoint, &session).await?;
                    calls += 1;
                }
                Ok::<u64, Failure>(calls)
            });
        }
        let mut total = 0;
        while let Some(done) = callers.join_next().await {
            total += done.map_err(|error| Failure::new(error.to_string()))??;
        }
        Ok((total, now() - start))
    }

    /// Ends the session, so that the gateway has nothing left to end.
    pub(super) async fn close(self) -> Outcome {
        Connection::open(&self.endpoint).await?.delete(&self.endpoint, &self.session).await
    }
}
