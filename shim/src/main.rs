//! The CNI plugin `dhcp`: passes a runtime's calls on to the leasehold daemon, and the daemon's answers back.
//!
//! It decides nothing about networks whose addresses come from a server. By itself it does only this: VERSION, which has to work
//! without a daemon; trying again while the daemon restarts; and keeping a DEL for a daemon that is down ([`spool`]). All verbs are
//! idempotent at the daemon, so asking again is always safe. Called as `dhcp daemon` it becomes the daemon ([`daemon`]).
//!
//! A network of type `host-local` has no daemon: `leasehold_host_local` serves its calls here.
//!
//! Its own name does not matter: it may be installed as `leasehold` and `host-local` too, for networks of these types.

mod ask;
mod daemon;
mod flags;
mod spool;

use std::env;
use std::io::{self, Read, Write};
use std::process::{self, ExitCode};

use leasehold_api::cni::{Code, Env, Error, Verb, VersionInfo, bad_env};
use leasehold_api::{MAX_BODY, to_json};
use leasehold_host_local::{Call, Host};
use serde_json::Value;

use ask::{Answer, Ask};

/// Says what this is, to people and, with [`leasehold_api::SHIM_MARK`], to `leasehold install`.
const ABOUT: &str = concat!(
    "leasehold's CNI plugin, version ",
    env!("CARGO_PKG_VERSION"),
    "\n"
);

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    match args.next() {
        Some(first) if first == "daemon" => daemon::start(args),
        Some(first) if first == "--version" => about(),
        _ => plugin(),
    }
}

fn about() -> ExitCode {
    if io::stdout().write_all(ABOUT.as_bytes()).is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Answers one call of a runtime.
fn plugin() -> ExitCode {
    let env =
        Env::collect(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()));
    let config = match read_config() {
        Ok(config) => config,
        Err(error) => return print(&failure(&error)),
    };
    // The shim is lenient with what it reads itself: the daemon checks everything.
    let parsed: Value = serde_json::from_str(&config).unwrap_or_default();
    let said = parsed["cniVersion"]
        .as_str()
        .filter(|version| !version.is_empty());
    let result = match env.command.as_deref() {
        Some("VERSION") => Ok(Answer::success(to_json(&VersionInfo::answering(said)))),
        None => Err(bad_env(
            "CNI_COMMAND",
            "not set: this is a CNI plugin, run by runtimes; the daemon is `leasehold daemon`",
        )),
        command => Verb::of(command).and_then(|verb| match ask::has_ranges(&parsed) {
            true => from_ranges(&env, &config),
            false => Ask::new(verb, env, config, &parsed)?.run(),
        }),
    };
    print(&result.unwrap_or_else(|error| {
        let version = said
            .and_then(|said| said.parse().ok())
            .unwrap_or(error.cni_version);
        failure(&error.in_version(version))
    }))
}

/// Carries out a call of a network with local ranges.
fn from_ranges(env: &Env, config: &str) -> Result<Answer, Error> {
    let call = Call::parse(env, config)?;
    for warning in call.warnings() {
        eprintln!("dhcp: {warning}");
    }
    let late = |error| {
        print(&failure(&error));
        process::exit(1);
    };
    call.run(Host::this, late).map(Answer::success)
}

/// Reads standard input, no more than fits a request.
///
/// What is not UTF-8 is not JSON either; it is passed on with replacement characters, so that the daemon refuses it.
fn read_config() -> Result<String, Error> {
    let mut bytes = Vec::new();
    match io::stdin()
        .lock()
        .take(MAX_BODY as u64 + 1)
        .read_to_end(&mut bytes)
    {
        Ok(length) if length > MAX_BODY => Err(ask::too_large()),
        Ok(_) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())),
        Err(error) => Err(Error::new(
            Code::Io,
            format!("cannot read the network configuration: {error}"),
        )),
    }
}

fn failure(error: &Error) -> Answer {
    Answer {
        success: false,
        body: to_json(error).into_bytes(),
    }
}

/// Prints the answer as plugins do: results and errors both go to standard output.
fn print(answer: &Answer) -> ExitCode {
    let mut out = io::stdout().lock();
    let end: &[u8] = if answer.body.is_empty() { b"" } else { b"\n" };
    let printed = out
        .write_all(&answer.body)
        .and_then(|()| out.write_all(end))
        .and_then(|()| out.flush());
    if answer.success && printed.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
