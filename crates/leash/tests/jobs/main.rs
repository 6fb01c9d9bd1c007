//! One job, one session: workers that create a session per job over the control API, with the modules of `clients/`.
//!
//! The default sizes are small. The sizes of issue 4 are `LEASH_JOBS=1000 LEASH_JOBS_IN_A_ROW=1000 LEASH_JOB_KILLS=50
//! cargo test --release --package mcp-leash --test jobs`.

mod examples;
mod kills;
mod load;
mod modules;
mod sdk;
mod stage;
