//! The program as an operator meets it: starting, stopping, and what it says when it cannot.
//!
//! Each daemon runs in a network namespace of its own, so that nothing of the host's is touched.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod home;
mod life;
mod limits;
mod socket;
mod state;
