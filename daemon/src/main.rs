//! The daemon of leasehold, and the operator's commands.
//!
//! Only arguments, logging and the choice of what to run are here.

mod cli;
mod http;
mod listen;
mod net;
mod owner;
mod store;

use clap::Parser;

fn main() {
    let args = cli::Args::parse();
    println!("{args:?}");
}
