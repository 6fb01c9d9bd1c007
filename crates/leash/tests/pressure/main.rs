//! Memory pressure: `leash watch --pressure` with `leash run --pressure-stop`, and `pressureStop` behind `leash serve`. The
//! pressure is written by the test. `desktop::replay` has the same on a machine whose memory is really short.

#![expect(clippy::disallowed_methods, reason = "the machine, and programs outside of the leash, are set up here")]

mod machine;
mod serving;
mod watching;
