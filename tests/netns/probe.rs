//! `leasehold probe`: it shows what servers offer, and why none does, and takes nothing.

use std::net::Ipv4Addr;
use std::process::Command;

use netns_fixtures::model::{Config, Event};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, ModelServer};
use netns_fixtures::{Error, Lan, Need, Netns, assert_says, binary, mac_text, sandbox};
use serde_json::Value;

const OTHER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

/// Runs a probe on the host of a LAN, and returns its exit code and its output.
fn probe(host: &Netns, args: &[&str]) -> Result<(i32, String), Error> {
    let mut command = Command::new(binary("leasehold")?);
    command.arg("probe").args(args);
    let output = host.output(command, b"")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// Does the same, and returns what was printed as JSON.
fn probe_json(host: &Netns, args: &[&str]) -> Result<(i32, Value), Error> {
    let (code, text) = probe(host, &[args, &["--json"]].concat())?;
    Ok((
        code,
        serde_json::from_str(&text).map_err(|_| Error::unreadable("a probe's report", text))?,
    ))
}

/// Returns a server at another address of the LAN, with a pool of its own.
fn other() -> Config {
    let pool = (Ipv4Addr::new(10, 7, 9, 0), Ipv4Addr::new(10, 7, 9, 255));
    Config {
        id: OTHER,
        pool,
        ..Config::new(Lan::SUBNET)
    }
}

/// Checks that a server was only asked: it has offered addresses, and nothing else has happened.
fn was_only_asked(server: &ModelServer) {
    let events = server.events();
    assert!(
        !events.is_empty()
            && events
                .iter()
                .all(|event| matches!(event, Event::Offered(_))),
        "{events:?}"
    );
    assert_eq!(server.violations(), []);
}

#[test]
fn a_lan_without_a_server_is_told_with_what_can_be_seen() -> Result<(), Error> {
    let lan = Lan::new(&sandbox!(&[]))?;
    let (code, text) = probe(&lan.host, &["eth0", "--wait", "2"])?;
    assert_eq!(code, 3, "{text}");
    assert_says(&text, "No server answered 2 DISCOVERs in 2 s.");
    assert_says(&text, "\n- ");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let links = lan.host.sh("ip -o link")?;
    assert_eq!(links.lines().count(), 2, "no macvlan stays: {links}");
    Ok(())
}

#[test]
fn a_probe_shows_each_server_once_and_judges_it() -> Result<(), Error> {
    let sandbox = sandbox!(&[]);
    let lan = Lan::new(&sandbox)?;
    let extra = vec![(224, vec![1, 2])];
    let first = Config {
        domain: Some("lan.example".to_owned()),
        extra,
        ..Config::new(Lan::SUBNET)
    };
    let one = ModelServer::start(&lan, first)?;
    let machine = lan.machine("second", OTHER)?;
    let two = ModelServer::start_in(&machine, other())?;
    let networks = sandbox.dir("net.d")?;
    let config = r#"{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "eth0",
                     "ipam": {"type": "dhcp", "servers": {"deny": ["10.7.0.2"]}, "request": [{"option": "224"}]}}"#;
    std::fs::write(networks.join("10-lan.conf"), config).expect("a file in the sandbox");
    let of_network = [
        "--network",
        "lan",
        "--cni-conf-dir",
        &networks.to_string_lossy(),
    ];
    let args = [&["eth0", "--wait", "3"], &of_network[..]].concat();

    let (code, report) = probe_json(&lan.host, &args)?;
    let answers = report["answers"].as_array().cloned().unwrap_or_default();
    let find = |server: &str| {
        answers
            .iter()
            .find(|answer| answer["server"] == server)
            .expect("its answer")
    };
    let (believed, denied) = (find("10.7.0.1"), find("10.7.0.2"));
    let found = (code, answers.len(), report["network"].as_str());
    assert_eq!(found, (0, 2, Some("lan")), "{report:#}");
    let found = (&believed["believed"], &denied["believed"]);
    assert_eq!(found, (&Value::Bool(true), &Value::Bool(false)));
    assert_says(&denied["because"], "`servers` of network lan");
    let option = |code: u64| {
        believed["options"]
            .as_array()?
            .iter()
            .find(|option| option["code"] == code)
    };
    assert_eq!(option(3).expect("routers")["name"], "routers");
    assert_eq!(option(15).expect("a domain")["value"], "lan.example");
    assert_eq!(
        option(224).expect("an option without a name")["bytes"],
        "0102"
    );

    let (code, text) = probe(&lan.host, &args)?;
    assert_eq!(code, 0, "{text}");
    for part in [
        "10.7.0.1 (",
        "10.7.0.2 (",
        "routers (3)",
        "not taken: `servers` of network lan",
        "2 answers to ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    was_only_asked(&one);
    was_only_asked(&two);
    Ok(())
}

#[test]
fn a_probe_says_why_the_daemon_would_refuse_an_offer() -> Result<(), Error> {
    let lan = Lan::new(&sandbox!(&[]))?;
    let server = ModelServer::start(&lan, Config::new(Lan::SUBNET).lasting(3))?;
    let (code, text) = probe(&lan.host, &["eth0", "--wait", "4"])?;
    assert_eq!(code, 4, "{text}");
    assert_says(&text, "not taken: lease time below the minimum");
    was_only_asked(&server);
    Ok(())
}

#[test]
fn a_probe_can_ask_on_behalf_of_another_client() -> Result<(), Error> {
    let lan = Lan::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let known = "02:00:00:00:77:01";
    let more = vec![
        format!("--dhcp-host={known},10.7.1.77"),
        "--dhcp-ignore=tag:!known".to_owned(),
    ];
    let _server = Dnsmasq::start(
        &lan,
        DnsmasqConfig {
            more,
            ..DnsmasqConfig::default()
        },
    )?;
    let (code, text) = probe(&lan.host, &["eth0", "--wait", "2"])?;
    assert_eq!(code, 3, "{text}");
    let (code, text) = probe(&lan.host, &["eth0", "--wait", "2", "--mac", known])?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("offers 10.7.1.77/16"), "{text}");
    Ok(())
}

#[test]
fn a_server_in_a_macvlan_of_this_host_is_heard() -> Result<(), Error> {
    let lan = Lan::new(&sandbox!(&[]))?;
    let sibling = lan.sibling("served", OTHER)?;
    let server = ModelServer::start_in(&sibling, other())?;
    let (code, text) = probe(&lan.host, &["eth0", "--wait", "4"])?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("10.7.0.2 ("), "{text}");
    was_only_asked(&server);
    Ok(())
}

#[test]
fn a_server_is_heard_in_its_own_vlan_only() -> Result<(), Error> {
    let lan = Lan::new(&sandbox!(&[]))?;
    let untagged = ModelServer::start(&lan, Config::new(Lan::SUBNET))?;
    let in_vlan = ["eth0", "--wait", "1", "--vlan", "5"];
    let (code, text) = probe(&lan.host, &in_vlan)?;
    assert_eq!((code, untagged.events()), (3, Vec::new()), "{text}");
    drop(untagged);
    let link = [
        "link", "add", "link", "eth0", "name", "eth0.5", "type", "vlan", "id", "5",
    ];
    if lan.server.run_command("ip", &link, "").is_err() {
        // A kernel without VLANs has no link for a server in one.
        return Ok(());
    }
    lan.server.set_up("eth0.5")?;
    lan.server.add_address("eth0.5", Lan::on_lan(OTHER))?;
    let _server = ModelServer::start(&lan, other())?;
    let (code, text) = probe(&lan.host, &in_vlan)?;
    assert_eq!(code, 0, "{text}");
    Ok(())
}

#[test]
fn a_probe_asks_from_inside_under_the_containers_mac() -> Result<(), Error> {
    let lan = Lan::new(&sandbox!(&[]))?;
    let server = ModelServer::start(&lan, Config::new(Lan::SUBNET))?;
    let container = lan.container("c1")?;
    let netns = container.netns.path().to_string_lossy().into_owned();
    let inside = ["eth0", "--netns", &netns, "--wait", "1"];
    let (code, text) = probe(&lan.host, &inside)?;
    let found = (code, text.as_str());
    assert_eq!(found, (1, "leasehold: eth0 is down: ip link set eth0 up\n"));
    container.netns.set_up("eth0")?;
    let (code, report) = probe_json(&lan.host, &inside)?;
    assert_eq!(
        (code, report["mac"].as_str()),
        (0, Some(mac_text(container.mac).as_str())),
        "{report:#}"
    );
    was_only_asked(&server);
    Ok(())
}

#[test]
fn what_cannot_be_asked_is_said_and_why() -> Result<(), Error> {
    let sandbox = sandbox!(&[]);
    let lan = Lan::new(&sandbox)?;
    let (code, text) = probe(&lan.host, &["eth9"])?;
    assert!(code == 1 && text.contains("eth9"), "{code}: {text}");
    let (code, text) = probe(&lan.host, &["eth0", "--netns", "/run/netns/none"])?;
    assert!(
        code == 1 && text.contains("/run/netns/none"),
        "{code}: {text}"
    );
    let empty = sandbox.dir("empty")?;
    let (code, text) = probe(
        &lan.host,
        &[
            "eth0",
            "--network",
            "lan",
            "--cni-conf-dir",
            &empty.to_string_lossy(),
        ],
    )?;
    assert!(
        code == 1 && text.contains("no network lan in"),
        "{code}: {text}"
    );
    let (code, _) = probe(&lan.host, &["eth0", "--vlan", "4095"])?;
    assert_eq!(code, 2);
    Ok(())
}
