//! leasehold's ranges against the real host-local: the same configurations and calls, and the same answers, files and
//! failures, except for the differences that are meant.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::cni::{BadKey, Config, Fault, File, Holder, HostLocal, Ip, Success, Version};
use leasehold_core::identity::Attachment;
use leasehold_core::range::{Allocator, BadRange, Holding, NoAddress, Said, Sets};
use leasehold_core::time::WallTime;
use leasehold_tests::hostile::asked;
use netns_fixtures::{Need, are_met};
use serde_json::{Value, json};

mod generated;

const HOST_LOCAL: &str = "/usr/lib/cni/host-local";
const NETWORK: &str = "lan";

/// Why a call fails, in words for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Unreadable,
    NoSets,
    EmptySet,
    TooSmall,
    HostBits,
    /// A start or end outside of the subnet, or a start behind the end.
    OutOfSubnet,
    ForeignGateway,
    MixedFamilies,
    Overlap,
    Version,
    Full,
    Taken,
    Gateway,
    NotInSets,
    Duplicate,
    NotHeld,
}

/// What host-local says, and what it means. The first that matches counts.
const TEXTS: [(&str, Why); 20] = [
    ("no IP ranges specified", Why::NoSets),
    ("empty range set", Why::EmptySet),
    ("too small to allocate from", Why::TooSmall),
    ("host bits set", Why::HostBits),
    ("not in network", Why::OutOfSubnet),
    ("mixed address families", Why::MixedFamilies),
    ("overlap", Why::Overlap),
    ("does not support more than 1 address per family", Why::Version),
    ("no IP addresses available", Why::Full),
    ("is not available in range set", Why::Taken),
    ("is subnet's gateway", Why::Gateway),
    ("failed to allocate all requested IPs", Why::NotInSets),
    ("duplicate allocation is not allowed", Why::Duplicate),
    ("Failed to find address", Why::NotHeld),
    ("invalid CIDR address", Why::Unreadable),
    ("invalid IP address", Why::Unreadable),
    ("not v4 nor v6", Why::Unreadable),
    ("version mismatch", Why::Unreadable),
    ("cannot unmarshal", Why::Unreadable),
    ("ARGS: ", Why::Unreadable),
];

/// A call: who makes it, with which configuration, and which `CNI_ARGS`.
#[derive(Clone, Debug)]
struct Call {
    verb: &'static str,
    config: Value,
    args: String,
    container: String,
    ifname: &'static str,
}

impl Call {
    fn new(verb: &'static str, config: &Value, container: &str) -> Self {
        Self { verb, config: config.clone(), args: String::new(), container: container.to_owned(), ifname: "eth0" }
    }

    fn add(config: &Value, container: &str) -> Self {
        Self::new("ADD", config, container)
    }
}

/// The addresses of a result, or why there are none. What has no result gives `null`.
type Outcome = Result<Value, Why>;

/// Both, side by side.
struct Both {
    dir: tempfile::TempDir,
    allocator: Option<Allocator>,
    calls: u64,
}

impl Both {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory"), allocator: None, calls: 0 }
    }

    /// Makes a call of both, and compares the outcomes and the files after it. Returns the outcome.
    fn call(&mut self, call: &Call) -> Outcome {
        let (theirs, ours) = (self.theirs(call), self.ours(call));
        assert_eq!(ours, theirs, "{call:?}");
        assert_eq!(self.our_files(), self.their_files(), "after {call:?}");
        ours
    }

    fn theirs(&self, call: &Call) -> Outcome {
        let mut config = call.config.clone();
        config["ipam"]["dataDir"] = json!(self.dir.path());
        let mut child = Command::new(HOST_LOCAL)
            .env_clear()
            .envs([
                ("CNI_COMMAND", call.verb),
                ("CNI_CONTAINERID", call.container.as_str()),
                ("CNI_IFNAME", call.ifname),
            ])
            .envs([("CNI_NETNS", "/run/netns/none"), ("CNI_PATH", "/usr/lib/cni"), ("CNI_ARGS", call.args.as_str())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("host-local starts");
        let mut stdin = child.stdin.take().expect("its input");
        stdin.write_all(config.to_string().as_bytes()).expect("host-local reads");
        drop(stdin);
        let output = child.wait_with_output().expect("host-local ends");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() {
            return Ok(addresses(said));
        }
        let text = said["msg"].as_str().unwrap_or_default();
        let why = TEXTS.into_iter().find(|(part, _)| text.contains(part));
        Err(why.unwrap_or_else(|| panic!("{call:?}: host-local says {text:?}")).1)
    }

    fn ours(&mut self, call: &Call) -> Outcome {
        let attachment = Arc::new(Attachment::cni(NETWORK, &call.container, call.ifname));
        match call.verb {
            "ADD" => self.our_add(call, &attachment),
            "CHECK" => {
                let held = self.allocator.as_ref().and_then(|ours| ours.addresses_of(&attachment).next());
                held.map(|_| Value::Null).ok_or(Why::NotHeld)
            }
            _ => {
                // Its reservation may be in the older form.
                let older = Attachment::cni(NETWORK, &call.container, "");
                if let Some(ours) = &mut self.allocator
                    && ours.release(&attachment).is_empty()
                {
                    ours.release(&older);
                }
                Ok(Value::Null)
            }
        }
    }

    fn our_add(&mut self, call: &Call, attachment: &Arc<Attachment>) -> Outcome {
        let config = Config::parse(&call.config.to_string()).map_err(|_| Why::Unreadable)?;
        let version = config.cni_version.as_deref().map_or(Ok(Version::UNSAID), str::parse).expect("a version");
        let read = config.host_local(version).map_err(why_unreadable)?;
        let asked = asked(&config, Some(&call.args)).map_err(|_| Why::Unreadable)?;
        let sets = sets(&read).map_err(why_bad)?;
        let ours = self.allocator.get_or_insert_with(|| Allocator::new(sets.clone(), 0));
        if *ours.sets() != sets {
            ours.set_ranges(sets);
        }
        self.calls += 1;
        let now = WallTime::from_epoch(Duration::from_secs(self.calls));
        let given = ours.allocate(attachment, &asked, now).map_err(why_none)?;
        let ips = given.iter().map(|given| Ip { address: given.address, gateway: Some(given.gateway) }).collect();
        let result = Success { ips, ..Success::default() }.render(version);
        Ok(addresses(serde_json::from_str(&result).expect("JSON")))
    }

    /// The files that host-local has written, as they are read.
    fn their_files(&self) -> BTreeMap<String, String> {
        let Ok(files) = fs::read_dir(self.dir.path().join(NETWORK)) else { return BTreeMap::new() };
        let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name of ASCII"));
        let named = names.filter(|name| name != "lock").map(|name| {
            let contents = fs::read(self.dir.path().join(NETWORK).join(&name)).expect("a file that is there");
            let file = File::read(&name, &contents).unwrap_or_else(|| panic!("{name} is read"));
            assert_eq!((file.name(), file.contents().into_bytes()), (name, contents));
            (file.name(), file.contents())
        });
        named.collect()
    }

    /// The files that leasehold would write.
    fn our_files(&self) -> BTreeMap<String, String> {
        let Some(ours) = &self.allocator else { return BTreeMap::new() };
        let taken = ours.taken().map(|(address, holding)| File::Taken { address, by: holder(&holding.by) });
        let last = ours.last().map(|(set, address)| File::Last { set, address });
        taken.chain(last).map(|file| (file.name(), file.contents())).collect()
    }

    /// Begins with files that are there already.
    fn take_up(&mut self, config: &Value, files: &[(&str, &str)]) {
        let config = Config::parse(&config.to_string()).expect("a configuration");
        let read = config.host_local(Version::V1_0_0).expect("ranges");
        let mut ours = Allocator::new(sets(&read).expect("good ranges"), 0);
        let dir = self.dir.path().join(NETWORK);
        fs::create_dir_all(&dir).expect("a directory");
        for (name, contents) in files {
            fs::write(dir.join(name), contents).expect("a file");
            match File::read(name, contents.as_bytes()).expect("a file that says something") {
                File::Last { set, address } => ours.begin_after(set, address),
                File::Taken { address, by } => {
                    let (container, ifname) = by.map(|by| (by.container, by.ifname)).unwrap_or_default();
                    let by = Arc::new(Attachment::cni(NETWORK, container, ifname.unwrap_or_default()));
                    assert!(ours.occupy(address, Holding { by, since: WallTime::from_epoch(Duration::ZERO) }));
                }
            }
        }
        self.allocator = Some(ours);
        assert_eq!(self.our_files(), self.their_files());
    }
}

/// The container that an attachment stands for. A name that is not known is empty.
fn holder(attachment: &Attachment) -> Option<Holder> {
    let Attachment::Cni { container, ifname, .. } = attachment else { panic!("{attachment} is none of CNI's") };
    let known = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    known(container).map(|container| Holder { container, ifname: known(ifname) })
}

/// The part of a result that tells addresses, gateways and families.
fn addresses(result: Value) -> Value {
    match result {
        Value::Object(mut result) => {
            result.retain(|key, _| matches!(key.as_str(), "cniVersion" | "ips" | "ip4" | "ip6"));
            for family in ["ip4", "ip6"] {
                if let Some(family) = result.get_mut(family).and_then(Value::as_object_mut) {
                    family.remove("routes");
                }
            }
            Value::Object(result)
        }
        other => other,
    }
}

fn sets(read: &HostLocal) -> Result<Sets, BadRange> {
    let said = |range: &leasehold_api::cni::Range| {
        let leasehold_api::cni::Range { subnet, start, end, gateway } = *range;
        Said { subnet, start, end, gateway }
    };
    Sets::new(&read.sets.iter().map(|set| set.iter().map(said).collect()).collect::<Vec<_>>())
}

fn why_unreadable(bad: BadKey) -> Why {
    if matches!(bad.fault, Fault::OneOfAFamily(_)) { Why::Version } else { Why::Unreadable }
}

fn why_bad(bad: BadRange) -> Why {
    match bad {
        BadRange::NoSets => Why::NoSets,
        BadRange::EmptySet(_) => Why::EmptySet,
        BadRange::TooSmall(_) => Why::TooSmall,
        BadRange::HostBits { .. } => Why::HostBits,
        BadRange::OutOfSubnet { .. } | BadRange::EmptyRange { .. } => Why::OutOfSubnet,
        BadRange::ForeignGateway { .. } => Why::ForeignGateway,
        BadRange::MixedFamilies(_) => Why::MixedFamilies,
        BadRange::Overlap { .. } => Why::Overlap,
    }
}

fn why_none(none: NoAddress) -> Why {
    match none {
        NoAddress::Full { .. } => Why::Full,
        NoAddress::Duplicate { .. } => Why::Duplicate,
        NoAddress::Taken { .. } => Why::Taken,
        NoAddress::Gateway(_) => Why::Gateway,
        NoAddress::NotInSets(_) => Why::NotInSets,
    }
}

/// A configuration with this `ipam`.
fn config(ipam: Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": NETWORK, "type": "bridge", "ipam": ipam})
}

/// Puts the addresses of a result in a row, for tables.
fn row(outcome: &Outcome) -> String {
    let Ok(result) = outcome else { return format!("{:?}", outcome.as_ref().expect_err("it failed")) };
    let of_list = result["ips"].as_array().into_iter().flatten().map(|ip| &ip["address"]);
    let of_pair = ["ip4", "ip6"].map(|family| &result[family]["ip"]);
    of_list.chain(of_pair).filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// Calls an ADD of each configuration, on its own, with `CNI_ARGS`.
fn each(table: &[(Value, &str, &str)]) {
    for (config, args, expected) in table {
        let call = Call { args: (*args).to_owned(), ..Call::add(config, "c1") };
        assert_eq!(row(&Both::new().call(&call)), *expected, "{call:?}");
    }
}

fn is_here() -> bool {
    are_met(&[Need::File(HOST_LOCAL)])
}

#[test]
fn configurations_are_completed_and_refused_as_host_local_does() {
    if !is_here() {
        return;
    }
    let of = |ipam| (config(ipam), "");
    let table = [
        (of(json!({"subnet": "10.0.0.0/24"})), "10.0.0.2/24"),
        (of(json!({"subnet": "10.0.0.0/30"})), "10.0.0.2/30"),
        (of(json!({"subnet": "10.0.0.0/8", "rangeStart": "10.250.0.0"})), "10.250.0.0/8"),
        (of(json!({"subnet": "10.0.0.0/8", "rangeEnd": "10.0.0.2"})), "10.0.0.2/8"),
        (of(json!({"subnet": "10.0.0.0/24", "gateway": "10.0.0.254"})), "10.0.0.1/24"),
        (of(json!({"subnet": "10.0.0.0/24", "gateway": "10.9.9.9"})), "10.0.0.1/24"),
        (of(json!({"subnet": "10.0.0.0/24", "gateway": "", "rangeStart": null})), "10.0.0.2/24"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeStart": "::ffff:10.0.0.9"})), "10.0.0.9/24"),
        (of(json!({"SUBNET": "10.0.0.0/24", "RangeStart": "10.0.0.9"})), "10.0.0.9/24"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.1", "rangeEnd": "10.0.0.1"})), "Full"),
        (of(json!({"subnet": "fd00::/64"})), "fd00::2/64"),
        (of(json!({"subnet": "fd00::/126"})), "fd00::2/126"),
        (of(json!({"subnet": "fd00:0:0:1::/64", "rangeStart": "fd00:0:0:1:0:1::"})), "fd00::1:0:1:0:0/64"),
        (of(json!({"subnet": "fd00::/64", "rangeStart": "fd00::1:0:0:1"})), "fd00::1:0:0:1/64"),
        (of(json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]})), "10.0.0.2/24 fd00::2/64"),
        (of(json!({"subnet": "10.0.0.0/24", "ranges": [[{"subnet": "10.1.0.0/24"}]]})), "10.0.0.2/24 10.1.0.2/24"),
        (of(json!({"gateway": "10.0.0.9", "ranges": [[{"subnet": "10.0.0.0/24"}]]})), "10.0.0.2/24"),
        (
            of(
                json!({"subnet": "10.0.0.0/24", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.0.0.0/8", "gw": "10.0.0.3"}]}),
            ),
            "10.0.0.2/24",
        ),
        (of(json!({})), "NoSets"),
        (of(json!({"ranges": []})), "NoSets"),
        (of(json!({"ranges": null})), "NoSets"),
        (of(json!({"ranges": [[]]})), "EmptySet"),
        (of(json!({"ranges": [null]})), "EmptySet"),
        (of(json!({"ranges": [[{}]]})), "Unreadable"),
        (of(json!({"ranges": [{"subnet": "10.0.0.0/24"}]})), "Unreadable"),
        (of(json!({"subnet": "10.0.0.0"})), "Unreadable"),
        (of(json!({"subnet": ""})), "Unreadable"),
        (of(json!({"subnet": 10})), "Unreadable"),
        (of(json!({"subnet": "::ffff:10.0.0.0/120"})), "Unreadable"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0"})), "Unreadable"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.010"})), "Unreadable"),
        (of(json!({"subnet": "10.0.0.0/31"})), "TooSmall"),
        (of(json!({"subnet": "10.0.0.5/32"})), "TooSmall"),
        (of(json!({"subnet": "fd00::/127"})), "TooSmall"),
        (of(json!({"subnet": "10.0.0.5/24"})), "HostBits"),
        (of(json!({"subnet": "fd00::5/64"})), "HostBits"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.1.9"})), "OutOfSubnet"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeEnd": "10.0.1.9"})), "OutOfSubnet"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeEnd": "fd00::9"})), "OutOfSubnet"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeEnd": "10.0.0.0"})), "OutOfSubnet"),
        (of(json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"})), "OutOfSubnet"),
        (of(json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]})), "MixedFamilies"),
        (of(json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]]})), "Overlap"),
        (of(json!({"ranges": [[{"subnet": "10.0.0.0/25"}], [{"subnet": "10.0.0.0/24"}]]})), "Overlap"),
    ];
    each(&table.map(|((config, args), expected)| (config, args, expected)));
}

#[test]
fn versions_have_as_many_addresses_as_they_can_express() {
    if !is_here() {
        return;
    }
    for version in &Version::ALL[..Version::ALL.len() - 1] {
        let of = |subnets: &[&str]| {
            let sets: Vec<_> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
            let mut config = config(json!({"ranges": sets}));
            config["cniVersion"] = json!(version.as_str());
            row(&Both::new().call(&Call::add(&config, "c1")))
        };
        let is_old = *version < Version::V0_3_0;
        assert_eq!(of(&["fd00::/64", "10.0.0.0/24"]).len(), "10.0.0.2/24 fd00::2/64".len());
        let two = of(&["10.0.0.0/24", "10.0.1.0/24"]);
        assert_eq!(two, if is_old { "Version" } else { "10.0.0.2/24 10.0.1.2/24" }, "{version}");
    }
}

#[test]
fn addresses_are_asked_for_in_three_ways() {
    if !is_here() {
        return;
    }
    let of = |args, runtime| {
        let mut config = config(json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}));
        config["args"] = args;
        config["runtimeConfig"] = runtime;
        config
    };
    let none = || of(json!(null), json!(null));
    each(&[
        (none(), "IP=10.0.0.7", "10.0.0.7/24 fd00::2/64"),
        (none(), "IP=10.0.0.7/8", "10.0.0.7/24 fd00::2/64"),
        (none(), "IgnoreUnknown=1;IP=fd00:0::7;K8S_POD_NAME=web", "10.0.0.2/24 fd00::7/64"),
        (none(), "IP=", "10.0.0.2/24 fd00::2/64"),
        (none(), "IP=::ffff:10.0.0.7", "10.0.0.7/24 fd00::2/64"),
        (none(), "IP=seven", "Unreadable"),
        (none(), "IP=10.0.0.1", "Gateway"),
        (none(), "IP=fd00::1", "Gateway"),
        (none(), "IP=10.0.0.0", "NotInSets"),
        (none(), "IP=10.0.0.255", "NotInSets"),
        (none(), "IP=10.0.1.7", "NotInSets"),
        (of(json!({"cni": {"ips": ["fd00::9", "10.0.0.9"]}}), json!(null)), "", "10.0.0.9/24 fd00::9/64"),
        (of(json!({"cni": {"ips": ["10.0.0.9/16"]}}), json!(null)), "IP=fd00::7", "10.0.0.9/24 fd00::7/64"),
        (of(json!({"cni": {"ips": [""]}}), json!(null)), "", "Unreadable"),
        (of(json!({"cni": {"ips": "10.0.0.9"}}), json!(null)), "", "Unreadable"),
        (of(json!(null), json!({"ips": ["10.0.0.9/16", "fd00::9"]})), "", "10.0.0.9/24 fd00::9/64"),
        (of(json!(null), json!({"ips": ["10.0.0.9"]})), "IP=10.0.0.9", "10.0.0.9/24 fd00::2/64"),
        (of(json!(null), json!({"ips": [""]})), "", "Unreadable"),
        (
            of(json!(null), json!({"ipRanges": [[{"subnet": "10.7.0.0/24"}]], "ips": ["10.7.0.9"]})),
            "",
            "10.7.0.9/24 10.0.0.2/24 fd00::2/64",
        ),
    ]);
    // host-local goes through what is asked for in any order: either of the two may be the last one that it gave.
    let two_of_a_set = of(json!(null), json!({"ips": ["10.0.0.9"]}));
    let call = Call { args: "IP=10.0.0.8".into(), ..Call::add(&two_of_a_set, "c1") };
    let mut both = Both::new();
    assert_eq!([row(&both.theirs(&call)), row(&both.ours(&call))], ["NotInSets"; 2]);
}

/// host-local does one thing and leasehold another: a reason, a configuration, `CNI_ARGS`, and what each says.
#[test]
fn these_differences_are_meant() {
    if !is_here() {
        return;
    }
    let other_gateway = json!([{"subnet": "10.0.0.0/24", "gateway": "10.1.0.2"}, {"subnet": "10.1.0.0/24"}]);
    let table = [
        (
            "the network's address is none for a container",
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.0"}),
            "",
            ["10.0.0.0/24", "10.0.0.2/24"],
        ),
        (
            "nor is the broadcast address, even if a range ends there",
            json!({"subnet": "10.0.0.0/24", "rangeEnd": "10.0.0.255"}),
            "IP=10.0.0.255",
            ["10.0.0.255/24", "NotInSets"],
        ),
        (
            "host-local goes on from there through all of IPv4, back to the range's end",
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.255"}),
            "",
            ["10.0.0.255/24", "OutOfSubnet"],
        ),
        (
            "a gateway is none for a container, whichever range names it",
            json!({"ranges": [other_gateway]}),
            "IP=10.1.0.2",
            ["10.1.0.2/24", "Gateway"],
        ),
        (
            "no container can use a gateway of the other family",
            json!({"subnet": "10.0.0.0/24", "gateway": "fd00::1"}),
            "",
            ["10.0.0.1/24", "ForeignGateway"],
        ),
        (
            "nor a route through one",
            json!({"subnet": "10.0.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": "fd00::1"}]}),
            "",
            ["10.0.0.2/24", "Unreadable"],
        ),
        ("host-local loses the first half of ::1", json!({"subnet": "::/0"}), "", ["Full", "::2/0"]),
        ("and of 0.0.0.1", json!({"subnet": "0.0.0.0/0"}), "", ["Full", "0.0.0.2/0"]),
        (
            "null is absent for every key",
            json!({"subnet": null, "ranges": [[{"subnet": "10.0.0.0/24"}]]}),
            "",
            ["Unreadable", "10.0.0.2/24"],
        ),
        (
            "a setting that silently does nothing is the worst fault",
            json!({"subnet": "10.0.0.0/24", "rangeEnds": "10.0.0.9"}),
            "",
            ["10.0.0.2/24", "Unreadable"],
        ),
        (
            "other plugins of the chain get the same CNI_ARGS",
            json!({"subnet": "10.0.0.0/24"}),
            "IP=10.0.0.7;K8S_POD_NAME=web",
            ["Unreadable", "10.0.0.7/24"],
        ),
        (
            "so for a network whose addresses come from a server",
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}),
            "IP=10.0.0.7,fd00::7",
            ["Unreadable", "10.0.0.7/24 fd00::7/64"],
        ),
    ];
    for (reason, ipam, args, expected) in table {
        let mut both = Both::new();
        let call = Call { args: args.to_owned(), ..Call::add(&config(ipam), "c1") };
        assert_eq!([row(&both.theirs(&call)), row(&both.ours(&call))], expected, "{reason}: {call:?}");
    }
}

/// host-local gives everything back that the container has when a second ADD of it fails. The container is using it.
#[test]
fn an_add_that_fails_gives_back_what_it_took_and_no_more() {
    if !is_here() {
        return;
    }
    let config = config(json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}));
    let mut both = Both::new();
    assert_eq!(row(&both.call(&Call::add(&config, "c1"))), "10.0.0.2/24 fd00::2/64");
    let mut again = Call::add(&config, "c1");
    again.config["runtimeConfig"] = json!({"ips": ["10.0.0.9", "fd00::1"]});
    assert_eq!([both.theirs(&again), both.ours(&again)], [Err(Why::Gateway), Err(Why::Gateway)]);
    assert_eq!(both.their_files().keys().collect::<Vec<_>>(), ["last_reserved_ip.0", "last_reserved_ip.1"]);
    let ours = both.our_files();
    let [address, name] = ["10.0.0.2", "fd00::2"];
    assert_eq!(ours.keys().collect::<Vec<_>>(), [address, name, "last_reserved_ip.0", "last_reserved_ip.1"]);
}

#[test]
fn files_of_host_local_are_taken_up() {
    if !is_here() {
        return;
    }
    let config = config(json!({"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "fd00::/125"}]]}));
    let mut both = Both::new();
    both.take_up(
        &config,
        &[
            ("10.0.0.3", "c1\r\neth0"),
            ("10.0.0.5", "c2"),
            ("10.0.0.6", ""),
            ("fd00::2", "c1\r\neth0"),
            ("10.9.9.9", "c3\r\neth0"),
            ("last_reserved_ip.0", "10.0.0.4"),
            ("last_reserved_ip.1", "fd01::9"),
        ],
    );
    let mut add = |container: &str| row(&both.call(&Call::add(&config, container)));
    assert_eq!(["c4", "c5", "c6"].map(&mut add), ["10.0.0.2/29 fd00::3/125", "10.0.0.4/29 fd00::4/125", "Full"]);
    assert_eq!(add("c1"), "Duplicate");
    for (verb, container, expected) in [
        ("CHECK", "c3", ""),
        ("DEL", "c3", ""),
        ("CHECK", "c3", "NotHeld"),
        ("DEL", "c2", ""),
        ("ADD", "c2", "10.0.0.5/29 fd00::5/125"),
    ] {
        assert_eq!(row(&both.call(&Call::new(verb, &config, container))), expected, "{verb} of {container}");
    }
}
