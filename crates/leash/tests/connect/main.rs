//! `leash connect` as hosts meet it: real processes, and upstreams that do what a script says.

mod ends;
mod errors;
mod fidelity;
mod host;
mod modern;
mod old;
mod order;
mod property;
mod real;
mod revive;
mod streams;
mod upstream;
