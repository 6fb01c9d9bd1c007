//! leash on a desktop: real logins, systemd's user managers, cgroup2 with its controllers, swap in memory. These tests
//! create users and end their sessions, so they run in a virtual machine only: `cargo xtask box`.

#![expect(clippy::disallowed_methods, reason = "people start programs outside of the leash")]

mod budgets;
mod ends;
mod logins;
mod person;
mod reboot;
mod replay;
mod shared;
mod watch;
