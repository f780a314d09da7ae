//! Addresses from local ranges, without a daemon: with real main plugins, and beside host-local on the same directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;

use netns_fixtures::{
    CallError, Container, Error, Lan, Need, Netns, Sandbox, Shim, assert_says, binary, sandbox,
};
use serde_json::{Value, json};

use crate::host_local::HOST_LOCAL;

mod storage;

const NEEDS: &[Need] = &[Need::File(HOST_LOCAL)];

/// A host with our plugin installed under the name of host-local.
struct Host {
    lan: Lan,
    config: Value,
    ours: Shim,
    theirs: Shim,
    data_dir: PathBuf,
}

impl Host {
    /// Gives addresses of a subnet to its one network, which no link of the host carries.
    fn new(sandbox: &Sandbox, subnet: &str) -> Result<Self, Error> {
        let lan = Lan::new(sandbox)?;
        let (plugins, data_dir) = (sandbox.dir("plugins")?, sandbox.dir("data")?);
        let program = plugins.join("host-local");
        symlink(binary("dhcp")?, &program).expect("a link");
        let [ours, theirs] =
            [program, HOST_LOCAL.into()].map(|program| Shim::at(&lan.host, program));
        let config = json!({
            "cniVersion": "1.0.0",
            "name": "pods",
            "type": "ptp",
            "ipam": {
                "type": "host-local", "daemonSocketPath": "/nowhere/dhcp.sock", "dataDir": data_dir, "subnet": subnet,
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        Ok(Self {
            lan,
            config,
            ours,
            theirs,
            data_dir,
        })
    }

    fn container(&self, id: &str) -> Result<Container, Error> {
        Ok(Container::new(
            id,
            Netns::new(self.lan.host.sandbox(), id)?,
            "eth0",
            [0; 6],
        ))
    }

    fn containers(&self, count: usize) -> Result<Vec<Container>, Error> {
        (0..count)
            .map(|number| self.container(&format!("c{number}")))
            .collect()
    }

    fn add(&self, plugin: &Shim, container: &Container) -> Result<Value, CallError> {
        plugin.add(container, &self.config)
    }

    /// Asks our plugin for an address of a container.
    fn address(&self, container: &Container) -> Result<String, CallError> {
        Ok(address(&self.add(&self.ours, container)?))
    }

    /// Returns the files of addresses, and the holder of each.
    fn files(&self) -> BTreeMap<String, String> {
        let directory = self.data_dir.join("pods");
        let files = fs::read_dir(&directory).into_iter().flatten().flatten();
        let named = files.map(|file| file.file_name().into_string().expect("a name of ASCII"));
        let read = |name: String| {
            let holder = fs::read_to_string(directory.join(&name)).ok()?;
            Some((
                name,
                holder.split("\r\n").next().unwrap_or_default().to_owned(),
            ))
        };
        named
            .filter(|name| name.starts_with("10.") && !name.contains(".by."))
            .filter_map(read)
            .collect()
    }
}

fn address(result: &Value) -> String {
    result["ips"][0]["address"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn main_plugins_get_an_address_and_give_it_back() -> Result<(), CallError> {
    let mut host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    let mains = [
        ("bridge", json!({"bridge": "cni1", "isGateway": true})),
        ("ptp", json!({})),
        ("macvlan", json!({"master": "eth0"})),
    ];
    for (index, (main, keys)) in mains.into_iter().enumerate() {
        let name = format!("{main}-net");
        let keys = keys.as_object().cloned().unwrap_or_default();
        host.config["type"] = main.into();
        host.config["name"] = name.clone().into();
        host.config["ipam"]["subnet"] = format!("10.9.{index}.0/24").into();
        host.config.as_object_mut().expect("an object").extend(keys);
        let plugin = host.ours.under(Path::new("/usr/lib/cni").join(main));
        let container = host.container(&format!("in-{main}"))?;

        let result = host.add(&plugin, &container)?;
        let expected = format!("10.9.{index}.2/24");
        assert_eq!(address(&result), expected, "{result}");
        let found = container.addresses()?;
        assert_eq!(found, [expected.parse().expect("an address")], "{main}");
        plugin.check(&container, &host.config, &result)?;
        plugin.del(&container, &host.config)?;
        plugin.del(&container, &host.config)?;
        assert_eq!(container.netns.addresses("eth0").unwrap_or_default(), []);
        let file = host.data_dir.join(&name).join(format!("10.9.{index}.2"));
        assert!(!file.exists(), "{main}");
    }
    Ok(())
}

/// An administrator puts our plugin in host-local's place under running containers, and then puts host-local back.
#[test]
fn containers_move_in_and_out_again() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    let mut members = host.containers(20)?;
    for container in &members {
        host.add(&host.theirs, container)?;
    }
    // Its runtime crashed. Only a GC can tell that nobody has its address: host-local wrote no note.
    drop(members.remove(17));
    let newcomer = host.container("new")?;
    assert_eq!(host.address(&newcomer)?, "10.9.0.22/24");
    let (first, second) = (&members[0], &members[1]);
    host.ours.check(first, &host.config, &json!({}))?;
    host.ours.del(first, &host.config)?;
    assert_eq!(host.files().len(), 20);

    let newest = host.container("newest")?;
    assert_eq!(address(&host.add(&host.theirs, &newest)?), "10.9.0.23/24");
    host.theirs.check(&newcomer, &host.config, &json!({}))?;
    host.theirs.del(&newcomer, &host.config)?;
    host.theirs.del(second, &host.config)?;
    assert_eq!(host.files().len(), 19);
    Ok(())
}

#[test]
fn host_local_and_we_never_give_one_address_twice() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    let containers = host.containers(64)?;
    let mut rounds = BTreeSet::new();
    for _ in 0..2 {
        let each = |verb: &'static str| {
            let of = |(number, container): (usize, &Container)| {
                let ours = number.is_multiple_of(2);
                let plugin = if ours { &host.ours } else { &host.theirs };
                plugin.start(verb, container, &host.config)
            };
            let calls: Vec<_> = containers
                .iter()
                .enumerate()
                .map(of)
                .collect::<Result<_, _>>()?;
            let results = calls.into_iter().map(|call| call.wait());
            results.collect::<Result<Vec<_>, CallError>>()
        };
        let addresses: BTreeSet<_> = each("ADD")?.iter().map(address).collect();
        assert_eq!(addresses.len(), containers.len(), "{addresses:?}");
        assert_eq!(host.files().len(), containers.len());
        rounds.extend(addresses);
        each("DEL")?;
        assert_eq!(host.files().len(), 0);
    }
    assert_eq!(rounds.len(), 2 * containers.len(), "round and round");
    Ok(())
}

/// Whatever an ADD had done when it was killed, nothing is given twice, and its DEL leaves nothing.
#[test]
fn a_killed_add_gives_nothing_twice_and_its_del_finds_it() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    let containers = host.containers(40)?;
    for (number, container) in containers.iter().enumerate() {
        let call = host.ours.start("ADD", container, &host.config)?;
        thread::sleep(std::time::Duration::from_micros(200 * number as u64));
        call.kill()?;
    }
    let witness = host.container("witness")?;
    let address = host.address(&witness)?;
    let taken = host.files();
    assert_eq!(
        taken
            .get(address.trim_end_matches("/24"))
            .map(String::as_str),
        Some("witness"),
        "{taken:?}"
    );
    for container in containers.iter().chain([&witness]) {
        host.ours.del(container, &host.config)?;
    }
    let names = fs::read_dir(host.data_dir.join("pods")).expect("a directory");
    let left: Vec<_> = names
        .map(|file| {
            file.expect("a file")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .filter(|name| name.starts_with("10."))
        .collect();
    assert_eq!(left, [""; 0]);
    Ok(())
}

#[test]
fn a_full_range_says_by_what_and_takes_from_the_dead() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(NEEDS), "10.9.0.0/29")?;
    let mut containers = host.containers(5)?;
    for container in &containers {
        host.address(container)?;
    }
    let late = host.container("late")?;
    let error = host.address(&late).expect_err("there are five").cni();
    assert_eq!(error.code, 11, "{error}");
    assert_says(&error.msg, "no IP addresses available in range set");
    assert_says(&error.msg, "by c0; 5 belong to running containers");
    // No DEL comes for it.
    drop(containers.remove(3));
    assert_eq!(host.address(&late)?, "10.9.0.5/29");
    Ok(())
}

/// CNI 1.1.0 has GC and STATUS, which host-local lacks.
#[test]
fn gc_gives_back_what_no_runtime_knows() -> Result<(), CallError> {
    let mut host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    let [stray, kept, gone] = ["stray", "kept", "gone"].map(|id| host.container(id));
    let (stray, kept, gone) = (stray?, kept?, gone?);
    host.add(&host.theirs, &stray)?;
    host.config["cniVersion"] = "1.1.0".into();
    for container in [&kept, &gone] {
        host.address(container)?;
    }
    host.ours
        .start_with("STATUS", &[], host.config.to_string().as_bytes())?
        .wait()?;
    let mut config = host.config.clone();
    config["cni.dev/valid-attachments"] = json!([{"containerID": "kept", "ifname": "eth0"}]);
    host.ours
        .start_with("GC", &[], config.to_string().as_bytes())?
        .wait()?;
    assert!(host.files().keys().eq(["10.9.0.3"]), "{:?}", host.files());
    Ok(())
}
