//! `leash connect` as hosts use it: real processes, and scripted upstreams.

mod ends;
mod errors;
mod fidelity;
mod guard;
mod host;
mod http_sse;
mod modern;
mod order;
mod property;
mod real;
mod revive;
mod streams;
mod upstream;
