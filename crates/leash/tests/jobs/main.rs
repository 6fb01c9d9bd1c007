//! One job, one session: workers that make a session per job over the control API, with the modules of `clients/`.
//!
//! Sizes are those of the suite. All that issue 4 asks for is
//! `LEASH_JOBS=1000 LEASH_JOBS_IN_A_ROW=1000 LEASH_JOB_KILLS=50 cargo test --release --package mcp-leash --test jobs`.

mod examples;
mod kills;
mod load;
mod modules;
mod stage;
