//! Addresses from local ranges: with real main plugins, beside host-local and in its place, and where files cannot be written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;

use netns_fixtures::{
    CallError, Container, DEADLINE, Error, Lab, Member, Need, Netns, Sandbox, Shim, binary,
    sandbox, until_found,
};
use serde_json::{Value, json};

use crate::host_local::HOST_LOCAL;

/// A host with our plugin installed under the name of host-local.
struct Host {
    lab: Lab,
    ours: Shim,
    theirs: Shim,
    data_dir: PathBuf,
}

impl Host {
    /// Gives addresses of a subnet to its one network, which no link of the host carries.
    fn new(sandbox: &Sandbox, subnet: &str) -> Result<Self, Error> {
        let mut lab = Lab::new(sandbox)?;
        let (plugins, data_dir) = (sandbox.dir("plugins")?, sandbox.dir("data")?);
        let program = plugins.join("host-local");
        symlink(binary("dhcp")?, &program).expect("a link");
        let [ours, theirs] =
            [program, HOST_LOCAL.into()].map(|program| Shim::at(&lab.lan.host, program));
        lab.config = json!({
            "cniVersion": "1.0.0",
            "name": "pods",
            "type": "ptp",
            "ipam": {
                "type": "host-local", "daemonSocketPath": lab.daemon().socket(), "dataDir": data_dir, "subnet": subnet,
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        Ok(Self {
            lab,
            ours,
            theirs,
            data_dir,
        })
    }

    fn container(&self, id: &str) -> Result<Container, Error> {
        Ok(Container::new(
            id,
            Netns::new(self.lab.lan.host.sandbox(), id)?,
            "eth0",
            [0; 6],
        ))
    }

    fn add(&self, plugin: &Shim, container: &Container) -> Result<Value, CallError> {
        plugin.add(container, &self.lab.config)
    }

    /// Asks our plugin for an address of a container.
    fn address(&self, container: &Container) -> Result<String, CallError> {
        Ok(address(&self.add(&self.ours, container)?))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data_dir.join("pods").join(name)
    }

    /// Returns the files of addresses, and the holder of each.
    fn files(&self) -> BTreeMap<String, String> {
        let files = fs::read_dir(self.file("")).into_iter().flatten().flatten();
        let named = files.map(|file| file.file_name().into_string().expect("a name of ASCII"));
        let read = |name: String| {
            let holder = fs::read_to_string(self.file(&name)).ok()?;
            Some((
                name,
                holder.split("\r\n").next().unwrap_or_default().to_owned(),
            ))
        };
        named
            .filter(|name| name.starts_with("10."))
            .filter_map(read)
            .collect()
    }

    fn wait_for_files(
        &self,
        awaited: &str,
        as_expected: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Result<(), Error> {
        until_found(awaited, DEADLINE, || {
            Ok(as_expected(&self.files()).then_some(()))
        })
    }
}

fn address(result: &Value) -> String {
    result["ips"][0]["address"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn ready() -> Option<Sandbox> {
    sandbox(&[Need::File(HOST_LOCAL)])
}

#[test]
fn main_plugins_get_an_address_and_give_it_back() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let mut host = Host::new(&sandbox, "10.9.0.0/24")?;
    let mains = [
        ("bridge", json!({"bridge": "cni1", "isGateway": true})),
        ("ptp", json!({})),
        ("macvlan", json!({"master": "eth0"})),
    ];
    for (index, (main, keys)) in mains.into_iter().enumerate() {
        let name = format!("{main}-net");
        let (config, keys) = (
            &mut host.lab.config,
            keys.as_object().cloned().unwrap_or_default(),
        );
        config["type"] = main.into();
        config["name"] = name.clone().into();
        config["ipam"]["subnet"] = format!("10.9.{index}.0/24").into();
        config.as_object_mut().expect("an object").extend(keys);
        let plugin = host.ours.under(Path::new("/usr/lib/cni").join(main));
        let container = host.container(&format!("in-{main}"))?;

        let result = host.add(&plugin, &container)?;
        let expected = format!("10.9.{index}.2/24");
        assert_eq!(address(&result), expected, "{result}");
        assert_eq!(
            container.addresses()?,
            [expected.parse().expect("an address")],
            "{main}"
        );
        plugin.check(&container, &host.lab.config, &result)?;
        plugin.del(&container, &host.lab.config)?;
        plugin.del(&container, &host.lab.config)?;
        assert_eq!(container.netns.addresses("eth0").unwrap_or_default(), []);
        let file = host.data_dir.join(&name).join(format!("10.9.{index}.2"));
        until_found("the file to go", DEADLINE, || {
            Ok((!file.exists()).then_some(()))
        })?;
    }
    host.lab.daemon().wait_until_nothing_is_taken()?;
    Ok(())
}

/// An administrator puts our plugin in host-local's place under two hundred running containers, and then puts host-local back.
#[test]
fn two_hundred_containers_move_in_and_out_again() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let mut host = Host::new(&sandbox, "10.9.0.0/23")?;
    let mut members = Vec::new();
    for number in 0..200 {
        let container = host.container(&format!("c{number}"))?;
        let result = host.add(&host.theirs, &container)?;
        let address = address(&result)
            .split('/')
            .next()
            .unwrap_or_default()
            .parse()
            .expect("an address");
        let member = Member {
            container,
            result,
            address,
        };
        host.lab.cache(&member)?;
        members.push(member);
    }
    let before = host.files();
    assert_eq!(before.len(), 200);
    // Its runtime crashed, and nobody gave its address back.
    let Member {
        container,
        address: leaked,
        ..
    } = members.remove(17);
    drop(container);

    let newcomer = host.container("new")?;
    assert_eq!(host.address(&newcomer)?, "10.9.0.202/23");
    host.wait_for_files("the leaked address to be free", |files| {
        !files.contains_key(&leaked.to_string())
    })?;
    let (first, second) = (&members[0], &members[1]);
    host.ours
        .check(&first.container, &host.lab.config, &first.result)?;
    host.ours.del(&first.container, &host.lab.config)?;
    host.wait_for_files("the address of a DEL to be free", |files| {
        !files.contains_key(&first.address.to_string())
    })?;
    // Killed and started again, it looks at the files anew.
    host.lab.kill9()?;
    host.lab.start_daemon()?;
    let newer = host.container("newer")?;
    assert_eq!(host.address(&newer)?, "10.9.0.203/23");
    assert_eq!(host.files().len(), 200);

    // Back again: host-local gives nothing twice, and knows our containers.
    host.lab.terminate()?;
    assert_eq!(
        address(&host.add(&host.theirs, &host.container("newest")?)?),
        "10.9.0.204/23"
    );
    host.theirs.check(&newcomer, &host.lab.config, &json!({}))?;
    host.theirs.del(&newcomer, &host.lab.config)?;
    host.theirs.del(&second.container, &host.lab.config)?;
    assert_eq!(host.files().len(), 199);
    Ok(())
}

#[test]
fn a_stray_host_local_and_we_never_give_one_address_twice() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let host = Host::new(&sandbox, "10.9.0.0/24")?;
    let containers: Vec<_> = (0..40)
        .map(|number| host.container(&format!("c{number}")))
        .collect::<Result<_, _>>()?;
    let add = |(number, container): (usize, &Container)| {
        let plugin = if number.is_multiple_of(2) {
            &host.ours
        } else {
            &host.theirs
        };
        let call = plugin.start("ADD", container, &host.lab.config);
        call.map_err(CallError::from)
    };
    let calls: Vec<_> = containers
        .iter()
        .enumerate()
        .map(add)
        .collect::<Result<_, _>>()?;
    let results: Vec<_> = calls
        .into_iter()
        .map(|call| call.wait())
        .collect::<Result<_, _>>()?;
    let addresses: BTreeSet<_> = results.iter().map(address).collect();
    assert_eq!(addresses.len(), containers.len(), "{addresses:?}");
    host.wait_for_files("the file of each", |files| files.len() == containers.len())?;
    Ok(())
}

#[test]
fn a_full_range_says_by_what_and_is_free_when_a_container_ends() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let host = Host::new(&sandbox, "10.9.0.0/29")?;
    let mut containers: Vec<_> = (0..5)
        .map(|number| host.container(&format!("c{number}")))
        .collect::<Result<_, _>>()?;
    for container in &containers {
        host.address(container)?;
    }
    let late = host.container("late")?;
    let error = host.address(&late).expect_err("there are five").cni();
    assert_eq!(error.code, 11, "{error}");
    assert!(
        error.msg.contains("no IP addresses available in range set") && error.msg.contains("c0"),
        "{error}"
    );
    // No DEL comes for it.
    drop(containers.remove(3));
    host.wait_for_files("its address to be free", |files| files.len() == 4)?;
    assert_eq!(host.address(&late)?, "10.9.0.5/29");
    Ok(())
}

#[test]
fn a_reboot_leaves_nothing_taken() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let mut host = Host::new(&sandbox, "10.9.0.0/30")?;
    let old = host.container("old")?;
    assert_eq!(host.address(&old)?, "10.9.0.2/30");
    host.lab.kill9()?;
    drop(old);
    host.lab.lose_power()?;
    host.lab.start_daemon()?;
    let new = host.container("new")?;
    assert_eq!(host.address(&new)?, "10.9.0.2/30");
    host.wait_for_files("its file", |files| {
        files.get("10.9.0.2").is_some_and(|holder| holder == "new")
    })?;
    Ok(())
}

/// Files that cannot be written make no ADD fail, and are written later.
#[test]
fn a_directory_that_is_full_or_locked_fails_nothing() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let mut host = Host::new(&sandbox, "10.9.0.0/24")?;
    let place = host.data_dir.to_string_lossy().into_owned();
    host.lab.lan.host.run_command(
        "mount",
        &["-t", "tmpfs", "-o", "size=16k", "none", &place],
        "",
    )?;
    let fill = format!("mkdir {place}/pods && cat /dev/zero > {place}/zeros || true");
    host.lab.lan.host.run_command("sh", &["-c", &fill], "")?;
    let first = host.container("first")?;
    assert_eq!(host.address(&first)?, "10.9.0.2/24");
    host.lab.wait_for_line("files cannot be kept there now")?;
    host.lab
        .lan
        .host
        .run_command("rm", &[&format!("{place}/zeros")], "")?;
    host.wait_for_files("the file", |files| files.contains_key("10.9.0.2"))?;

    fs::write(host.file("lock"), "").expect("a lock");
    let theirs = fs::File::open(host.file("lock")).expect("the lock");
    theirs.lock().expect("nobody has it");
    let second = host.container("second")?;
    assert_eq!(host.address(&second)?, "10.9.0.3/24");
    host.ours.del(&first, &host.lab.config)?;
    host.wait_for_files("what is done in spite of a lock", |files| {
        files.keys().eq(["10.9.0.3"])
    })?;
    Ok(())
}

#[test]
fn a_pod_that_is_recreated_gets_its_address_again() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let mut host = Host::new(&sandbox, "10.9.0.0/24")?;
    host.lab.config["ipam"]["clientId"] = "pod".into();
    let pod = |name: &str| format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}");
    let add = |host: &Host, container: &Container, args: &str| {
        let netns = container.netns.path().to_string_lossy().into_owned();
        let env = [
            ("CNI_CONTAINERID", container.id.as_str()),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", args),
        ];
        let call = host
            .ours
            .start_with("ADD", &env, host.lab.config.to_string().as_bytes())?;
        call.wait().map(|result| address(&result))
    };
    let [first, other, again] = ["c1", "c2", "c3"].map(|id| host.container(id));
    let (first, other, again) = (first?, other?, again?);
    assert_eq!(add(&host, &first, &pod("db-0"))?, "10.9.0.2/24");
    host.ours.del(&first, &host.lab.config)?;
    assert_eq!(add(&host, &other, &pod("web"))?, "10.9.0.3/24");
    assert_eq!(add(&host, &again, &pod("db-0"))?, "10.9.0.2/24");
    host.ours.del(&again, &host.lab.config)?;

    // The next daemon knows it too.
    host.lab.kill9()?;
    host.lab.start_daemon()?;
    let [between, last] = ["c4", "c5"].map(|id| host.container(id));
    let (between, last) = (between?, last?);
    assert_eq!(add(&host, &between, &pod("job"))?, "10.9.0.4/24");
    assert_eq!(add(&host, &last, &pod("db-0"))?, "10.9.0.2/24");
    Ok(())
}

/// The shim keeps the DEL beside the socket.
#[test]
fn a_del_while_no_daemon_runs_gives_the_address_back_at_the_next_start_and_its_file()
-> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let mut host = Host::new(&sandbox, "10.9.0.0/24")?;
    let [gone, stays] = ["gone", "stays"].map(|id| host.container(id));
    let (gone, stays) = (gone?, stays?);
    assert_eq!(
        (host.address(&gone)?, host.address(&stays)?),
        ("10.9.0.2/24".to_owned(), "10.9.0.3/24".to_owned())
    );
    host.lab.kill9()?;
    host.ours.del(&gone, &host.lab.config)?;
    assert!(host.file("10.9.0.2").exists(), "nobody has done it yet");
    host.lab.start_daemon()?;
    host.wait_for_files("the file to go", |files| files.keys().eq(["10.9.0.3"]))?;
    let third = host.container("third")?;
    assert_eq!(
        host.address(&third)?,
        "10.9.0.4/24",
        "the next after the last"
    );
    Ok(())
}

/// Returns a bridge of the host, with a neighbour at one of its ports that uses addresses without asking.
fn bridged(sandbox: &Sandbox, addresses: &[&str]) -> Result<(Host, Netns), Error> {
    let mut host = Host::new(sandbox, "10.9.0.0/24")?;
    host.lab.config["type"] = "bridge".into();
    host.lab.config["bridge"] = "cni1".into();
    let neighbour = Netns::new(sandbox, "neighbour")?;
    let at = neighbour.path().to_string_lossy().into_owned();
    let wire = format!(
        "ip link add cni1 type bridge && ip link set cni1 up && ip link add port0 type veth peer name eth0 netns {at} && \
         ip link set port0 master cni1 up"
    );
    host.lab.lan.host.run_command("sh", &["-c", &wire], "")?;
    for address in addresses {
        neighbour.run_command("ip", &["addr", "add", address, "dev", "eth0"], "")?;
    }
    neighbour.run_command("ip", &["link", "set", "eth0", "up"], "")?;
    Ok((host, neighbour))
}

#[test]
fn an_address_that_a_station_on_the_bridge_uses_is_passed_over() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let (mut host, _neighbour) = bridged(&sandbox, &["10.9.0.2/24", "10.9.0.4/24"])?;
    let plugin = host.ours.under("/usr/lib/cni/bridge".into());
    for (detection, expected) in [("optimistic", "10.9.0.3/24"), ("strict", "10.9.0.5/24")] {
        host.lab.config["ipam"]["conflictDetection"] = detection.into();
        let container = host.container(detection)?;
        let result = host.add(&plugin, &container)?;
        assert_eq!(address(&result), expected);
    }
    host.lab.daemon().wait_for_event("conflict")?;
    Ok(())
}

/// CNI 1.1.0 has GC and STATUS, which host-local lacks.
#[test]
fn gc_gives_back_what_no_runtime_knows() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let mut host = Host::new(&sandbox, "10.9.0.0/24")?;
    let [stray, kept, gone] = ["stray", "kept", "gone"].map(|id| host.container(id));
    let (stray, kept, gone) = (stray?, kept?, gone?);
    host.add(&host.theirs, &stray)?;
    host.lab.config["cniVersion"] = "1.1.0".into();
    for container in [&kept, &gone] {
        host.address(container)?;
    }
    host.ours
        .start_with("STATUS", &[], host.lab.config.to_string().as_bytes())?
        .wait()?;
    let mut config = host.lab.config.clone();
    config["cni.dev/valid-attachments"] = json!([{"containerID": "kept", "ifname": "eth0"}]);
    host.ours
        .start_with("GC", &[], config.to_string().as_bytes())?
        .wait()?;
    host.wait_for_files("what was collected to go", |files| {
        files.keys().eq(["10.9.0.3"])
    })?;
    Ok(())
}

#[test]
fn many_calls_at_once_get_an_address_each() -> Result<(), CallError> {
    let Some(sandbox) = ready() else {
        return Ok(());
    };
    let host = Host::new(&sandbox, "10.9.0.0/24")?;
    let containers: Vec<_> = (0..64)
        .map(|number| host.container(&format!("c{number}")))
        .collect::<Result<_, _>>()?;
    let addresses: Result<BTreeSet<_>, CallError> = thread::scope(|scope| {
        let calls: Vec<_> = containers
            .iter()
            .map(|container| scope.spawn(|| host.address(container)))
            .collect();
        calls
            .into_iter()
            .map(|call| call.join().expect("no caller panics"))
            .collect()
    });
    assert_eq!(addresses?.len(), containers.len());
    Ok(())
}
