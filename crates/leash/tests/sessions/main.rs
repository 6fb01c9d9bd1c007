//! Sessions that several processes share by name: joined from anywhere, listed as one, ended as one.

mod daemon;
mod end;
mod environments;
mod hook;
mod list;
mod name;
mod stage;
mod users;
