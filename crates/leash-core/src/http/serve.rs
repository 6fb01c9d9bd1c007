//! placeholder until the gateway's loop is written
