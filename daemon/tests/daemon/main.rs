//! The program as an operator sees it: starting, stopping, and what it says when it cannot.
//!
//! Each daemon runs in its own network namespace, so the host is not touched.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod capture;
mod docker;
mod doctor;
mod home;
mod install;
mod life;
mod limits;
mod log;
#[path = "../../src/skip.rs"]
mod skip;
mod socket;
mod state;
