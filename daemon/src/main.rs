//! The daemon of leasehold, and the operator's commands.
//!
//! Only arguments, logging and the choice of what to run are here.

mod cli;
mod http;
mod listen;
mod net;
mod owner;
mod store;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match cli::Args::parse().command {
        cli::Command::Daemon(args) => daemon(args),
        cli::Command::List(args) => cli::list(&args).map_err(Into::into).and_then(|text| print(&text)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold: {error}");
            ExitCode::FAILURE
        }
    }
}

fn daemon(args: cli::DaemonArgs) -> Result<(), Box<dyn Error>> {
    println!("{args:?}");
    Ok(())
}

/// Prints to standard output. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}
