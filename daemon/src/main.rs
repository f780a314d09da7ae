//! The daemon of leasehold, and the operator's commands.
//!
//! This file holds only arguments, logging and the choice of what to run.

mod adopt;
mod beside;
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
mod store;

use std::env;
use std::error::Error;
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
    match cli::Args::parse_from(cli::with_unit(env::args_os().collect())).command {
        cli::Command::Daemon(args) => daemon(args),
        cli::Command::Capture(args) => match cli::capture(&args) {
            Ok(told) => {
                eprint!("{told}");
                ExitCode::SUCCESS
            }
            Err(error) => said(Err(error.into())),
        },
        cli::Command::Doctor(args) => match cli::doctor(&args, io::stdout().lock()) {
            Ok(code) => code.into(),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => said(Err(error.into())),
        },
        cli::Command::Log(args) => said(
            cli::log(&args)
                .map_err(Into::into)
                .and_then(|text| print(&text)),
        ),
        cli::Command::Events(args) => {
            said(cli::events(&args, &mut io::stdout().lock()).map_err(Into::into))
        }
        cli::Command::Exporter(args) => said(cli::exporter(&args).map_err(Into::into)),
        cli::Command::Probe(args) => match cli::probe(&args, io::stdout().lock()) {
            Ok(verdict) => verdict.code().into(),
            Err(error) if error.is_end_of_reader() => ExitCode::SUCCESS,
            Err(error) => said(Err(error.into())),
        },
        cli::Command::Show(args) => match cli::show(&args) {
            Ok((text, verdict)) => printed(&text, verdict as u8),
            Err(error) => said(Err(error.into())),
        },
        cli::Command::Status(args) => match cli::status(&args) {
            Ok((text, is_fine)) => printed(&text, u8::from(!is_fine)),
            Err(error) => said(Err(error.into())),
        },
        cli::Command::Renew(args) => ordered(cli::renew(&args, io::stdout().lock())),
        cli::Command::Release(args) => ordered(cli::release(&args, io::stdout().lock())),
        cli::Command::Install(args) => match cli::install(&args, &mut io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let code = error.code();
                said(Err(error.into()));
                code.into()
            }
        },
        cli::Command::Uninstall(args) => {
            said(cli::uninstall(&args, &mut io::stdout().lock()).map_err(Into::into))
        }
        cli::Command::List(args) => match cli::list(&args, &mut io::stdout().lock()) {
            Err(error) if error.is_end_of_reader() => ExitCode::SUCCESS,
            listed => said(listed.map_err(Into::into)),
        },
    }
}

/// Runs the daemon. Once there is a log, the cause of its end is logged too.
fn daemon(args: cli::DaemonArgs) -> ExitCode {
    net::heap::share();
    let (_flush, filter) = match log::init(args.log_format, &args.log) {
        Ok(started) => started,
        Err(error) => return said(Err(error.into())),
    };
    if args.timeout > MAX_ADD_TIMEOUT {
        tracing::warn!(
            "--timeout {} is cut to {}: no ADD may take longer",
            args.timeout.as_secs(),
            MAX_ADD_TIMEOUT.as_secs()
        );
    }
    let settings = driver::Settings {
        socket: args.socket,
        plugin_dir: args.docker_plugin_dir.map(|path| listen::PluginDir {
            path,
            requires_mac: args.docker_requires_mac,
        }),
        read_socket: args.read_socket.map(|path| listen::ReadSocket {
            path,
            gid: args.read_gid,
        }),
        docker_netns_dir: args.docker_netns_dir,
        state_dir: args.state_dir,
        other_state_dir: args.other_state_dir,
        adopts_its_own: false,
        runtime_dir: args.runtime_dir,
        host_prefix: args.host_prefix,
        pid_file: args.pid_file,
        cni_caches: args.cni_cache,
        add_timeout: args.timeout.min(MAX_ADD_TIMEOUT),
        broadcast: args.broadcast,
        log: filter,
    };
    match driver::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", not_started(log::chain(&error), geteuid()));
            ExitCode::FAILURE
        }
    }
}

/// Returns why the daemon ended. What another user than root may not do needs no search for its cause.
fn not_started(why: String, user: Uid) -> String {
    if !user.is_root() && why.contains("Permission denied") {
        format!("{why}: user {user} started the daemon, which has to run as root")
    } else {
        why
    }
}

/// Prints to standard output, and returns the exit code.
fn printed(text: &str, code: u8) -> ExitCode {
    match print(text) {
        Ok(()) => code.into(),
        Err(error) => said(Err(error)),
    }
}

/// Returns the exit code of an order.
fn ordered(result: Result<cli::Verdict, cli::OrderError>) -> ExitCode {
    match result {
        Ok(verdict) => (verdict as u8).into(),
        Err(error) => said(Err(error.into())),
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

/// Prints to standard output. A reader that has seen enough (`| head`) is not an error.
fn print(text: &str) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
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
