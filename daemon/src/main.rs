//! The daemon of leasehold, and the operator's commands.
//!
//! This file holds only arguments, logging and the choice of what to run.

mod adopt;
mod beside;
mod cannot;
mod capture;
mod cli;
mod clock;
mod cni_cache;
mod driver;
mod fresh;
mod handover;
mod health;
mod http;
mod limits;
mod listen;
mod lock;
mod log;
mod metrics;
mod net;
mod one_request;
mod options;
mod owner;
mod pid_file;
mod publish;
mod service;
#[cfg(test)]
mod skip;
mod small_file;
mod store;

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use leasehold_api::{MAX_ADD_TIMEOUT, cni, to_json};
use nix::unistd::{Uid, geteuid};

fn main() -> ExitCode {
    // A program started with no arguments but with this variable is meant to be a CNI plugin.
    if env::args_os().len() == 1 && env::var_os("CNI_COMMAND").is_some() {
        let msg = "CNI_COMMAND: this program is the leasehold daemon, not its CNI plugin: install the program dhcp here";
        println!(
            "{}",
            to_json(&cni::Error::new(cni::Code::InvalidEnvironment, msg))
        );
        return ExitCode::FAILURE;
    }
    let command = cli::Args::parse_from(cli::with_unit(env::args_os().collect())).command;
    // Whether leases were extended or ended counts more than that somebody reads of them.
    let orders = matches!(command, cli::Command::Renew(_) | cli::Command::Release(_));
    match run(command) {
        Ok(code) => code.into(),
        Err(error) if is_enough(&error) && !orders => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold: {error:#}");
            // Whoever installs an earlier release on a later one's store is told by the code.
            let is_later = error.is::<store::StoreError>();
            ExitCode::from(if is_later { 3 } else { 1 })
        }
    }
}

/// Runs a command, and returns its exit code.
fn run(command: cli::Command) -> anyhow::Result<u8> {
    let out = &mut io::stdout();
    match command {
        cli::Command::Daemon(args) => return daemon(args),
        cli::Command::Capture(args) => eprint!("{}", cli::capture(&args)?),
        cli::Command::Doctor(args) => return Ok(cli::doctor(&args, out)?),
        cli::Command::Log(args) => print(&cli::log(&args)?)?,
        cli::Command::Events(args) => cli::events(&args, out)?,
        cli::Command::Exporter(args) => cli::exporter(&args)?,
        cli::Command::Probe(args) => return Ok(cli::probe(&args, out)? as u8),
        cli::Command::Show(args) => {
            let (text, verdict) = cli::show(&args)?;
            print(&text)?;
            return Ok(verdict as u8);
        }
        cli::Command::Status(args) => {
            let (text, is_fine) = cli::status(&args)?;
            print(&text)?;
            return Ok(u8::from(!is_fine));
        }
        cli::Command::Renew(args) => return Ok(cli::renew(&args, out)? as u8),
        cli::Command::Release(args) => return Ok(cli::release(&args, out)? as u8),
        cli::Command::Install(args) => cli::install(&args, out)?,
        cli::Command::Uninstall(args) => cli::uninstall(&args, out)?,
        cli::Command::List(args) => cli::list(&args, out)?,
    }
    Ok(0)
}

/// Returns a number that nobody can guess, another one each time.
fn unguessable() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns whether a command ended because its reader has seen enough (`| head`).
fn is_enough(error: &anyhow::Error) -> bool {
    let printing = error.downcast_ref::<io::Error>();
    printing.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Runs the daemon. Once there is a log, the cause of its end is logged too.
fn daemon(args: cli::DaemonArgs) -> anyhow::Result<u8> {
    net::heap::share();
    let (_flush, filter) = log::init(args.log_format, &args.log)?;
    if args.timeout > MAX_ADD_TIMEOUT {
        tracing::warn!(
            "--timeout {} is cut to {}: no ADD may take longer",
            args.timeout.as_secs(),
            MAX_ADD_TIMEOUT.as_secs()
        );
    }
    let settings = driver::Settings {
        args,
        adopts_its_own: false,
        log: filter,
    };
    let Err(error) = driver::run(settings) else {
        return Ok(0);
    };
    tracing::error!("{}", not_started(log::chain(&error), geteuid()));
    Ok(1)
}

/// Returns why the daemon ended. What another user than root may not do needs no search for its cause.
fn not_started(why: String, user: Uid) -> String {
    if !user.is_root() && why.contains("Permission denied") {
        format!("{why}: user {user} started the daemon, which has to run as root")
    } else {
        why
    }
}

/// Prints to standard output. A reader that has seen enough (`| head`) is not an error.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_of_another_user_is_told_to_run_as_root() {
        let why = "cannot lock /x/leases.lock: Permission denied (os error 13)".to_owned();
        assert_eq!(
            not_started(why.clone(), Uid::from_raw(1000)),
            format!("{why}: user 1000 started the daemon, which has to run as root")
        );
        assert_eq!(not_started(why.clone(), Uid::from_raw(0)), why);
        let other = "cannot lock /x/leases.lock: process 7 (leasehold) has it".to_owned();
        assert_eq!(not_started(other.clone(), Uid::from_raw(1000)), other);
    }
}
