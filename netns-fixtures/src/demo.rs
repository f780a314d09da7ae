//! The demo: a LAN in this process's own namespaces, with a daemon and its shim, and a running commentary on what they
//! do.
//! It needs Linux and Rust, and no other package: the DHCP server is this crate's model. It runs as root, or as any user who may
//! create user namespaces. Whatever happens, it leaves nothing behind.

use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use netns_fixtures::model::{Config, Event, Purpose};
use netns_fixtures::server::ModelServer;
use netns_fixtures::{Lab, Lan, Member, Sandbox, build};

/// Short, so that a renewal can be watched.
const LEASE: Duration = Duration::from_secs(16);

fn main() -> ExitCode {
    match build().map_err(Into::into).and_then(|()| show()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe demo failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::enter()?;
    say(
        "A LAN of network namespaces: a switch, a host, and a DHCP server at 10.7.0.1 whose leases last 16 seconds.",
    );
    say("The daemon runs on the host: `leasehold daemon`.");
    let mut lab = Lab::new(&sandbox)?;
    let server = ModelServer::start(
        &lab.lan,
        Config {
            lease: LEASE.as_secs() as u32,
            ..Config::new(Lan::SUBNET)
        },
    )?;

    let blue = attach(&lab, "blue")?;
    let green = attach(&lab, "green")?;

    say("What the daemon holds: `leasehold list`.");
    indented(&lab.daemon().operator(&["list"])?);

    say("Half a lease later the daemon renews both, each by unicast from the leased address.");
    for member in [&blue, &green] {
        let renewed = |event: &Event| {
            (*event == Event::Granted(member.address, Purpose::Renew)).then_some(())
        };
        server.wait_for("renewal", 0, LEASE, renewed)?;
        indented(&format!("the server has renewed {}", member.address));
    }
    indented(&lab.daemon().operator(&["list"])?);

    say(
        "The daemon is killed with SIGKILL and started again. It sends nothing, and knows everything.",
    );
    lab.kill9()?;
    let seen = server.events().len();
    lab.start_daemon()?;
    indented(&lab.daemon().operator(&["list"])?);
    lab.check(&blue)?;
    if server.events().len() > seen {
        return Err("the new daemon sent something".into());
    }
    let renewed =
        |event: &Event| (*event == Event::Granted(green.address, Purpose::Renew)).then_some(());
    server.wait_for("renewal by the next daemon", seen, LEASE, renewed)?;
    indented(&format!(
        "the new daemon has renewed {} in its turn",
        green.address
    ));

    say(
        "Both containers end. The runtime runs the shim with DEL, and the server has its addresses back.",
    );
    for member in [&blue, &green] {
        lab.detach(member)?;
        let released = |event: &Event| (*event == Event::Released(member.address)).then_some(());
        server.wait_for("release", 0, LEASE, released)?;
        indented(&format!(
            "{} is back from {}",
            member.address, member.container.id
        ));
    }
    match (server.leases().len(), server.violations().as_slice()) {
        (0, []) => {}
        (left, violations) => return Err(format!("{left} leases left, {violations:?}").into()),
    }
    lab.terminate()?;
    say("That was all. Nothing of it was visible outside, and nothing is left.");
    Ok(())
}

/// Attaches a container as a runtime does, and shows what the shim answers.
fn attach(lab: &Lab, id: &str) -> Result<Member, Box<dyn Error>> {
    say(&format!(
        "A runtime starts container `{id}` on a macvlan and runs the shim: CNI ADD. The answer:"
    ));
    let member = lab.attach(id)?;
    indented(&serde_json::to_string_pretty(&member.result)?);
    Ok(member)
}

fn say(headline: &str) {
    let (bold, plain) = if io::stdout().is_terminal() {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    println!("\n{bold}{headline}{plain}");
}

fn indented(text: &str) {
    text.lines().for_each(|line| println!("    {line}"));
}
