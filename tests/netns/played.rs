//! The played dockerd itself, with a plugin that only records its calls.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use netns_fixtures::engine::played::{Driver, EngineVersion, NetworkPlan, Played, RunPlan};
use netns_fixtures::{Dockerd, Error, Lan, Need, mac, mac_text, sandbox};
use serde_json::{Value, json};

type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers every call as a driver with a single address would.
fn plugin() -> Calls {
    fs::create_dir_all(Dockerd::PLUGINS).expect("an empty /run takes directories");
    let listener = UnixListener::bind(Path::new(Dockerd::PLUGINS).join("one.sock"))
        .expect("nobody else listens");
    let calls = Calls::default();
    let noted = calls.clone();
    thread::spawn(move || {
        listener
            .incoming()
            .flatten()
            .for_each(|stream| answer(stream, &noted))
    });
    calls
}

fn answer(mut stream: UnixStream, calls: &Calls) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket can be cloned"));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(
            lines
                .read_line(&mut head)
                .expect("a caller sends a whole head"),
            0,
            "{head}"
        );
    }
    assert!(
        head.contains("\r\nHost: plugin.moby.localhost\r\n"),
        "{head}"
    );
    let method = head.split(' ').nth(1).unwrap_or_default();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    lines
        .read_exact(&mut body)
        .expect("a caller sends a whole body");
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let said = match method {
        "/Plugin.Activate" => json!({ "Implements": ["IpamDriver"] }),
        "/IpamDriver.GetDefaultAddressSpaces" => json!({ "LocalDefaultAddressSpace": "here" }),
        "/IpamDriver.RequestPool" => json!({ "PoolID": "p", "Pool": "10.7.0.0/16" }),
        "/IpamDriver.RequestAddress" if asked["Address"] == "10.7.0.9" => {
            json!({ "Error": "taken" })
        }
        "/IpamDriver.RequestAddress" if !asked["Options"]["RequestAddressType"].is_null() => {
            json!({ "Address": "10.7.0.1/16" })
        }
        "/IpamDriver.RequestAddress" if asked["Address"] == "" => {
            json!({ "Address": "10.7.1.1/16" })
        }
        "/IpamDriver.RequestAddress" => {
            json!({ "Address": format!("{}/16", asked["Address"].as_str().unwrap_or("")) })
        }
        _ => json!({}),
    };
    calls
        .lock()
        .expect("nobody panics")
        .push((method.replace("/IpamDriver.", ""), asked));
    let body = said.to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("a caller listens");
}

#[test]
fn a_played_docker_calls_and_moves_links_as_docker_does() -> Result<(), Error> {
    let sandbox = sandbox!(&[Need::Program("busybox")]);
    let lan = Lan::new(&sandbox)?;
    let calls = plugin();
    let docker = Played::start(&lan.host, EngineVersion::V29, "one")?;
    let plan = NetworkPlan::new(Driver::Macvlan(Lan::IFNAME.to_owned())).with_subnet(Lan::SUBNET);
    let network = docker.network_create(&NetworkPlan {
        gateway: Some(Lan::SERVER),
        ..plan.clone()
    })?;
    let address = mac(77);
    let c1 = docker.run(
        &network,
        "c1",
        RunPlan {
            mac: Some(address),
            ..RunPlan::default()
        },
    )?;
    assert_eq!(
        c1.container.addresses()?,
        [Lan::on_lan([10, 7, 1, 1].into())]
    );
    let path = c1.container.netns.path().to_owned();
    assert!(
        path.starts_with(Dockerd::NETNS) && path.exists(),
        "{}",
        path.display()
    );
    let inside = c1
        .container
        .netns
        .run_command("busybox", &["ip", "link", "show", "eth0"], "")?;
    assert!(inside.contains(&mac_text(address)), "{inside}");
    c1.container.netns.run_command(
        "busybox",
        &["ping", "-c", "1", "-W", "10", &Lan::SERVER.to_string()],
        "",
    )?;
    docker.stop(c1)?;
    assert!(!path.exists());
    let refused = docker.run(
        &network,
        "c2",
        RunPlan {
            address: Some([10, 7, 0, 9].into()),
            ..RunPlan::default()
        },
    );
    assert!(refused.is_err_and(|error| error.to_string() == "IpamDriver.RequestAddress: taken"));
    docker.network_rm(network)?;

    let made = std::mem::take(&mut *calls.lock().expect("nobody panics"));
    let methods: Vec<_> = made.iter().map(|(method, _)| &**method).collect();
    let (asking, giving) = ("RequestAddress", "ReleaseAddress");
    let spaces = "GetDefaultAddressSpaces";
    let expected = [
        &[
            "/Plugin.Activate",
            "GetCapabilities",
            spaces,
            spaces,
            "RequestPool",
        ][..],
        &[asking, asking, giving, asking, giving, "ReleasePool"],
    ];
    assert_eq!(methods, expected.concat());
    let endpoint = json!({
        "com.docker.network.endpoint.macaddress": mac_text(address),
        "com.docker.network.endpoint.name": "c1",
    });
    assert_eq!(
        made[6].1,
        json!({ "PoolID": "p", "Address": "", "Options": endpoint })
    );
    assert_eq!(made[7].1, json!({ "PoolID": "p", "Address": "10.7.1.1" }));
    Ok(())
}

#[test]
fn each_played_docker_calls_as_its_version_does() -> Result<(), Error> {
    let sandbox = sandbox!(&[]);
    let lan = Lan::new(&sandbox)?;
    let calls = plugin();
    let plan = NetworkPlan::new(Driver::Macvlan(Lan::IFNAME.to_owned()));
    let (spaces, asking, giving) = (
        "GetDefaultAddressSpaces",
        "RequestAddress",
        "ReleaseAddress",
    );
    for (version, at_start, of_a_network, mounts_late) in [
        (
            EngineVersion::V25,
            &[spaces][..],
            &["RequestPool", asking][..],
            true,
        ),
        (
            EngineVersion::V27,
            &[],
            &[spaces, spaces, "RequestPool", asking],
            true,
        ),
        (
            EngineVersion::V28,
            &[],
            &[spaces, spaces, "RequestPool", asking],
            false,
        ),
        (
            EngineVersion::V29,
            &[],
            &[spaces, spaces, "RequestPool"],
            false,
        ),
    ] {
        let docker = Played::start(&lan.host, version, "one")?;
        let network = docker.network_create(&plan)?;
        let c1 = docker.request(&network, "c1", RunPlan::default())?;
        let path = c1.container.netns.path().to_owned();
        assert_eq!(path.exists(), !mounts_late, "{version:?}");
        docker.join(&c1)?;
        assert!(
            path.exists() && c1.container.addresses()? == [c1.address],
            "{version:?}"
        );
        docker.stop(c1)?;
        docker.network_rm(network)?;
        let made = std::mem::take(&mut *calls.lock().expect("nobody panics"));
        let methods: Vec<_> = made.iter().map(|(method, _)| &**method).collect();
        let gateway = &[giving][..usize::from(version < EngineVersion::V29)];
        let expected = [
            &["/Plugin.Activate", "GetCapabilities"],
            at_start,
            of_a_network,
            &[asking, giving],
            gateway,
            &["ReleasePool"],
        ];
        assert_eq!(methods, expected.concat(), "{version:?}");
    }
    Ok(())
}
