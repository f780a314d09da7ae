//! The daemon of leasehold, and the operator's commands.
//!
//! Only arguments, logging and the choice of what to run are here.

mod cli;
mod clock;
mod driver;
mod http;
mod listen;
mod log;
mod net;
mod owner;
mod store;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Args::parse().command {
        cli::Command::Daemon(args) => daemon(args),
        cli::Command::List(args) => said(cli::list(&args).map_err(Into::into).and_then(|text| print(&text))),
    }
}

/// Runs the daemon. Once there is a log, what ends it is in the log too.
fn daemon(args: cli::DaemonArgs) -> ExitCode {
    let cli::DaemonArgs { socket, state_dir, host_prefix, log_format, log } = args;
    if let Err(error) = log::init(log_format, &log) {
        return said(Err(format!("log filter {log:?}: {}", log::chain(&error)).into()));
    }
    match driver::run(&driver::Settings { socket, state_dir, host_prefix }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", log::chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Tells a person why a command failed.
fn said(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold: {}", log::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard output. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}
