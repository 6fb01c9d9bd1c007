//! `leash serve`, from outside: bad input, life and end of the gateway itself.

mod bad_input;
mod life;
