//! The demo: a LAN in this process's own namespaces, a daemon and its shim on it, and what they do, told as it happens.
//!
//! It needs Linux and Rust, no other package: the DHCP server is the model of this crate. It runs as root or as anyone
//! who may make user namespaces. Whatever happens to it, nothing stays behind.

use std::env;
use std::error::Error;
use std::io::{self, IsTerminal};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use netns_fixtures::model::{Config, Event, Purpose};
use netns_fixtures::server::ModelServer;
use netns_fixtures::{Container, Daemon, Home, Lan, Sandbox, Shim, result_addresses};
use serde_json::Value;

/// Short, so that a renewal can be watched.
const LEASE: Duration = Duration::from_secs(16);

fn main() -> ExitCode {
    match build().and_then(|()| show()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe demo failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the daemon and the shim into the directory that this program runs from.
fn build() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--package", "leasehold", "--package", "leasehold-shim"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    match command.status()? {
        status if status.success() => Ok(()),
        status => Err(format!("cargo build ended with {status}").into()),
    }
}

fn show() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::enter()?;
    let lan = Lan::new(&sandbox)?;
    say("A LAN of network namespaces: a switch, a host, and a DHCP server at 10.7.0.1 whose leases last 16 seconds.");
    let server = ModelServer::start(&lan, Config { lease: LEASE.as_secs() as u32, ..Config::new(Lan::SUBNET) })?;

    say("The daemon runs on the host: `leasehold daemon`.");
    let home = Home::new(&lan.host)?;
    let daemon = Daemon::start(&lan.host, &home)?;
    let shim = Shim::new(&lan.host)?;
    let config = Lan::cni_config(&daemon.socket());

    let blue = add(&lan, &shim, &config, "blue")?;
    let green = add(&lan, &shim, &config, "green")?;

    say("What the daemon holds: `leasehold list`.");
    indented(&daemon.operator(&["list"])?);

    say(&format!("Half a lease later the daemon renews {}, by unicast from the leased address.", blue.address));
    let renewed = |event: &Event| (*event == Event::Granted(blue.address, Purpose::Renew)).then_some(());
    server.wait_for("renewal", 0, LEASE, renewed)?;
    indented("The server has renewed it for another 16 seconds.");

    say("The daemon is killed with SIGKILL and started again. It sends nothing, and knows everything.");
    daemon.kill9()?;
    let daemon = Daemon::start(&lan.host, &home)?;
    shim.check(&blue.container, &config, &blue.result)?;
    indented(&daemon.operator(&["list"])?);
    let seen = server.events().len();
    let renewed = |event: &Event| (*event == Event::Granted(green.address, Purpose::Renew)).then_some(());
    server.wait_for("renewal by the next daemon", seen, LEASE, renewed)?;
    indented(&format!("The new daemon has renewed {} in its turn.", green.address));

    say("Both containers end. The runtime runs the shim with DEL, and the server has its addresses back.");
    for member in [&blue, &green] {
        shim.del(&member.container, &config)?;
        let released = |event: &Event| (*event == Event::Released(member.address)).then_some(());
        server.wait_for("release", 0, LEASE, released)?;
        indented(&format!("{} came back from {}", member.address, member.container.id));
    }
    match (server.leases().len(), server.violations().as_slice()) {
        (0, []) => {}
        (left, violations) => return Err(format!("{left} leases left, {violations:?}").into()),
    }
    daemon.terminate()?;
    say("That was all. Nothing of it was visible outside, and nothing is left.");
    Ok(())
}

/// A container with its lease.
struct Member {
    container: Container,
    address: Ipv4Addr,
    result: Value,
}

/// Makes a container, asks the shim for its address as a runtime does, and configures its interface.
fn add(lan: &Lan, shim: &Shim, config: &Value, id: &str) -> Result<Member, Box<dyn Error>> {
    say(&format!("A runtime starts container `{id}` on a macvlan and runs the shim: CNI ADD. The answer:"));
    let container = lan.container(id)?;
    let result = shim.add(&container, config)?;
    indented(&serde_json::to_string_pretty(&result)?);
    container.configure(&result)?;
    let (address, _) = *result_addresses(&result)?.first().ok_or("the result has no address")?;
    Ok(Member { container, address: address.addr(), result })
}

fn say(headline: &str) {
    let (bold, plain) = if io::stdout().is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    println!("\n{bold}{headline}{plain}");
}

fn indented(text: &str) {
    text.lines().for_each(|line| println!("    {line}"));
}
