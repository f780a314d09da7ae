//! leasehold in host-local's place: the same configurations and calls give the same results, files and failures, except for
//! intended differences.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use leasehold_api::cni::Version;
use netns_fixtures::{CallError, Need, Netns, Sandbox, Shim, sandbox};
use serde_json::{Value, json};

mod generated;

pub(crate) const HOST_LOCAL: &str = "/usr/lib/cni/host-local";

/// Why a call fails, in words for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Unreadable,
    NoSets,
    EmptySet,
    TooSmall,
    HostBits,
    /// A start or end outside the subnet, or a start behind the end.
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

/// What both plugins say, and what it means. The first match counts.
const TEXTS: [(&str, Why); 19] = [
    ("no IP ranges specified", Why::NoSets),
    ("empty range set", Why::EmptySet),
    ("too small to allocate from", Why::TooSmall),
    ("host bits set", Why::HostBits),
    ("not in network", Why::OutOfSubnet),
    ("mixed address families", Why::MixedFamilies),
    ("overlap", Why::Overlap),
    ("no IP addresses available", Why::Full),
    ("Failed to find address", Why::NotHeld),
    ("is not available in range set", Why::Taken),
    ("is subnet's gateway", Why::Gateway),
    ("failed to allocate all requested IPs", Why::NotInSets),
    ("duplicate allocation is not allowed", Why::Duplicate),
    ("invalid CIDR address", Why::Unreadable),
    ("invalid IP address", Why::Unreadable),
    ("not v4 nor v6", Why::Unreadable),
    ("version mismatch", Why::Unreadable),
    ("cannot unmarshal", Why::Unreadable),
    ("ARGS: ", Why::Unreadable),
];

/// The wording of each plugin.
const THEIR_TEXTS: [(&str, Why); 1] = [(
    "does not support more than 1 address per family",
    Why::Version,
)];
const OUR_TEXTS: [(&str, Why); 10] = [
    ("more than one set of a family", Why::Version),
    ("no address for a container from", Why::OutOfSubnet),
    ("is not of the family of subnet", Why::ForeignGateway),
    ("it must be", Why::Unreadable),
    ("missing", Why::Unreadable),
    ("is not a subnet", Why::Unreadable),
    ("is not an IP address", Why::Unreadable),
    ("is not a host address", Why::Unreadable),
    ("is not a whole number", Why::Unreadable),
    ("more than 256", Why::Unreadable),
];

/// A call: its caller, its configuration, and its `CNI_ARGS`.
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
        Self {
            verb,
            config: config.clone(),
            args: String::new(),
            container: container.to_owned(),
            ifname: "eth0",
        }
    }

    fn add(config: &Value, container: &str) -> Self {
        Self::new("ADD", config, container)
    }
}

/// A result, or why there is none. A call without a result gives `null`.
type Outcome = Result<Value, Why>;

/// A host with both plugins.
struct Ground {
    host: Netns,
    plugins: [Shim; 2],
    networks: Cell<u32>,
}

impl Ground {
    /// Returns the ground; `None` if the test is skipped.
    fn new() -> Option<Self> {
        let sandbox = sandbox(&[Need::File(HOST_LOCAL)])?;
        let ready = |sandbox: &Sandbox| {
            let host = Netns::new(sandbox, "host")?;
            let plugins = [Shim::at(&host, HOST_LOCAL.into()), Shim::new(&host)?];
            Ok(Self {
                host,
                plugins,
                networks: Cell::new(0),
            })
        };
        Some(ready(&sandbox).unwrap_or_else(|error: netns_fixtures::Error| panic!("{error}")))
    }

    /// Returns a network of their own for both plugins.
    fn both(&self) -> Both<'_> {
        let number = self.networks.get();
        self.networks.set(number + 1);
        let network = format!("lan{number}");
        let dir = self.host.sandbox().dir("data").expect("a directory");
        Both {
            ground: self,
            network,
            data_dirs: ["theirs", "ours"].map(|name| dir.join(name)),
        }
    }
}

/// Both plugins, side by side, in one network.
struct Both<'a> {
    ground: &'a Ground,
    network: String,
    data_dirs: [PathBuf; 2],
}

const THEIRS: usize = 0;
const OURS: usize = 1;

impl Both<'_> {
    /// Makes a call to both plugins, and compares the outcomes and the files afterwards. Returns the outcome.
    fn call(&self, call: &Call) -> Outcome {
        let (theirs, ours) = (self.theirs(call), self.ours(call));
        assert_eq!(ours, theirs, "{call:?}");
        assert_eq!(self.files(OURS), self.files(THEIRS), "after {call:?}");
        ours
    }

    fn theirs(&self, call: &Call) -> Outcome {
        self.of(THEIRS, call, &THEIR_TEXTS)
    }

    fn ours(&self, call: &Call) -> Outcome {
        self.of(OURS, call, &OUR_TEXTS)
    }

    fn of(&self, which: usize, call: &Call, texts: &[(&str, Why)]) -> Outcome {
        let mut config = call.config.clone();
        config["name"] = json!(self.network);
        config["ipam"]["dataDir"] = json!(self.data_dirs[which]);
        // Its namespace lives.
        let netns = self.ground.host.path().to_string_lossy();
        let env = [
            ("CNI_CONTAINERID", call.container.as_str()),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", call.ifname),
            ("CNI_ARGS", &call.args),
        ];
        let called =
            self.ground.plugins[which].start_with(call.verb, &env, config.to_string().as_bytes());
        match called.expect("the plugin starts").wait() {
            Ok(result) => Ok(plain(result)),
            Err(CallError::Cni { error, .. }) => {
                let why = TEXTS
                    .iter()
                    .chain(texts)
                    .find(|(part, _)| error.msg.contains(part));
                Err(why.unwrap_or_else(|| panic!("{call:?}: {error}")).1)
            }
            Err(error) => panic!("{call:?}: {error}"),
        }
    }

    /// Returns the files of a side, without those that only ours has.
    fn files(&self, which: usize) -> BTreeMap<String, Vec<u8>> {
        let Ok(files) = fs::read_dir(self.data_dirs[which].join(&self.network)) else {
            return BTreeMap::new();
        };
        let names = files.map(|file| {
            file.expect("a file")
                .file_name()
                .into_string()
                .expect("a name of ASCII")
        });
        let read = |name: String| Some((name.clone(), fs::read(self.path(which, &name)).ok()?));
        names
            .filter(|name| name != "lock" && !name.contains(".by.") && !name.starts_with("swept."))
            .filter_map(read)
            .collect()
    }

    fn path(&self, which: usize, name: &str) -> PathBuf {
        self.data_dirs[which].join(&self.network).join(name)
    }

    /// Puts these files in place before the first call.
    fn put(&self, files: &[(&str, &str)]) {
        for which in [THEIRS, OURS] {
            fs::create_dir_all(self.path(which, "")).expect("a directory");
            for (name, contents) in files {
                fs::write(self.path(which, name), contents).expect("a file");
            }
        }
    }
}

/// A result without its empty fields.
fn plain(mut result: Value) -> Value {
    if let Some(keys) = result.as_object_mut() {
        keys.retain(|key, value| key != "dns" || *value != json!({}));
    }
    result
}

/// A configuration with this `ipam`.
fn config(ipam: Value) -> Value {
    let mut config = json!({"cniVersion": "1.0.0", "type": "ptp", "ipam": ipam});
    config["ipam"]["type"] = json!("host-local");
    config
}

/// Joins the addresses of a result, for use in tables.
fn row(outcome: &Outcome) -> String {
    let Ok(result) = outcome else {
        return format!("{:?}", outcome.as_ref().expect_err("it failed"));
    };
    let of_list = result["ips"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|ip| &ip["address"]);
    let of_pair = ["ip4", "ip6"].map(|family| &result[family]["ip"]);
    of_list
        .chain(of_pair)
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Makes an ADD for each row of a table, on its own: the addresses or why there are none, `CNI_ARGS`, and what makes the
/// configuration. A row goes on where a line begins with spaces.
fn each(ground: &Ground, table: &str, config: impl Fn(Value) -> Value) {
    for line in table.trim().replace("\n    ", " ").lines() {
        let columns: Vec<_> = line.splitn(3, '|').map(str::trim).collect();
        let [expected, args, said] = columns[..] else {
            panic!("{line}")
        };
        let said = serde_json::from_str(said).expect("each row has JSON");
        let mut call = Call::add(&config(said), "c1");
        call.args = args.to_owned();
        assert_eq!(row(&ground.both().call(&call)), expected, "{call:?}");
    }
}

/// Whole ranges and parts of them, keys and their values, and what is wrong.
const CONFIGURATIONS: &str = r#"
10.0.0.2/24 | | {"subnet": "10.0.0.0/24"}
10.0.0.2/30 | | {"subnet": "10.0.0.0/30"}
10.250.0.0/8 | | {"subnet": "10.0.0.0/8", "rangeStart": "10.250.0.0"}
10.0.0.2/8 | | {"subnet": "10.0.0.0/8", "rangeEnd": "10.0.0.2"}
10.0.0.1/24 | | {"subnet": "10.0.0.0/24", "gateway": "10.0.0.254"}
10.0.0.1/24 | | {"subnet": "10.0.0.0/24", "gateway": "10.9.9.9"}
10.0.0.2/24 | | {"subnet": "10.0.0.0/24", "gateway": "", "rangeStart": null}
10.0.0.9/24 | | {"subnet": "10.0.0.0/24", "rangeStart": "::ffff:10.0.0.9"}
10.0.0.9/24 | | {"SUBNET": "10.0.0.0/24", "RangeStart": "10.0.0.9"}
Full | | {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.1", "rangeEnd": "10.0.0.1"}
fd00::2/64 | | {"subnet": "fd00::/64"}
fd00::2/126 | | {"subnet": "fd00::/126"}
fd00::1:0:1:0:0/64 | | {"subnet": "fd00:0:0:1::/64", "rangeStart": "fd00:0:0:1:0:1::"}
fd00::1:0:0:1/64 | | {"subnet": "fd00::/64", "rangeStart": "fd00::1:0:0:1"}
10.0.0.2/24 fd00::2/64 | | {"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}
10.0.0.2/24 10.1.0.2/24 | | {"subnet": "10.0.0.0/24", "ranges": [[{"subnet": "10.1.0.0/24"}]]}
10.0.0.2/24 | | {"gateway": "10.0.0.9", "ranges": [[{"subnet": "10.0.0.0/24"}]]}
10.0.0.2/24 | | {"subnet": "10.0.0.0/24",
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.1.2.3/8", "gw": "10.0.0.3"}, {"dst": "::/0", "gw": ""}]}
10.0.0.2/24 | | {"subnet": "10.0.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": "fd00::1"}]}
NoSets | | {}
NoSets | | {"ranges": []}
NoSets | | {"ranges": null}
EmptySet | | {"ranges": [[]]}
EmptySet | | {"ranges": [null]}
Unreadable | | {"ranges": [[{}]]}
Unreadable | | {"ranges": [{"subnet": "10.0.0.0/24"}]}
Unreadable | | {"subnet": "10.0.0.0"}
Unreadable | | {"subnet": ""}
Unreadable | | {"subnet": 10}
Unreadable | | {"subnet": "::ffff:10.0.0.0/120"}
Unreadable | | {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0"}
Unreadable | | {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.010"}
TooSmall | | {"subnet": "10.0.0.0/31"}
TooSmall | | {"subnet": "10.0.0.5/32"}
TooSmall | | {"subnet": "fd00::/127"}
HostBits | | {"subnet": "10.0.0.5/24"}
HostBits | | {"subnet": "fd00::5/64"}
OutOfSubnet | | {"subnet": "10.0.0.0/24", "rangeStart": "10.0.1.9"}
OutOfSubnet | | {"subnet": "10.0.0.0/24", "rangeEnd": "10.0.1.9"}
OutOfSubnet | | {"subnet": "10.0.0.0/24", "rangeEnd": "fd00::9"}
OutOfSubnet | | {"subnet": "10.0.0.0/24", "rangeEnd": "10.0.0.0"}
OutOfSubnet | | {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"}
MixedFamilies | | {"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]}
Overlap | | {"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]]}
Overlap | | {"ranges": [[{"subnet": "10.0.0.0/25"}], [{"subnet": "10.0.0.0/24"}]]}
"#;

#[test]
fn configurations_are_read_as_host_local_reads_them() {
    let Some(ground) = Ground::new() else { return };
    each(&ground, CONFIGURATIONS, config);
}

#[test]
fn versions_have_as_many_addresses_as_they_can_express() {
    let Some(ground) = Ground::new() else { return };
    for version in &Version::ALL[..Version::ALL.len() - 1] {
        let of = |subnets: &[&str]| {
            let sets: Vec<_> = subnets
                .iter()
                .map(|subnet| json!([{"subnet": subnet}]))
                .collect();
            let mut config = config(json!({"ranges": sets}));
            config["cniVersion"] = json!(version.as_str());
            row(&ground.both().call(&Call::add(&config, "c1")))
        };
        let is_old = *version < Version::V0_3_0;
        let found = of(&["fd00::/64", "10.0.0.0/24"]).len();
        assert_eq!(found, "10.0.0.2/24 fd00::2/64".len());
        let two = of(&["10.0.0.0/24", "10.0.1.0/24"]);
        assert_eq!(
            two,
            if is_old {
                "Version"
            } else {
                "10.0.0.2/24 10.0.1.2/24"
            },
            "{version}"
        );
    }
}

const ASKED_FOR: &str = r#"
10.0.0.7/24 fd00::2/64 | IP=10.0.0.7 | {}
10.0.0.7/24 fd00::2/64 | IP=10.0.0.7/8 | {}
10.0.0.2/24 fd00::7/64 | IgnoreUnknown=1;IP=fd00:0::7;K8S_POD_NAME=web | {}
10.0.0.2/24 fd00::2/64 | IP= | {}
10.0.0.7/24 fd00::2/64 | IP=::ffff:10.0.0.7 | {}
Unreadable | IP=seven | {}
Gateway | IP=10.0.0.1 | {}
Gateway | IP=fd00::1 | {}
NotInSets | IP=10.0.0.0 | {}
NotInSets | IP=10.0.0.255 | {}
NotInSets | IP=10.0.1.7 | {}
10.0.0.9/24 fd00::9/64 | | {"args": {"cni": {"ips": ["fd00::9", "10.0.0.9"]}}}
10.0.0.9/24 fd00::7/64 | IP=fd00::7 | {"args": {"cni": {"ips": ["10.0.0.9/16"]}}}
Unreadable | | {"args": {"cni": {"ips": [""]}}}
Unreadable | | {"args": {"cni": {"ips": "10.0.0.9"}}}
10.0.0.9/24 fd00::9/64 | | {"runtimeConfig": {"ips": ["10.0.0.9/16", "fd00::9"]}}
10.0.0.9/24 fd00::2/64 | IP=10.0.0.9 | {"runtimeConfig": {"ips": ["10.0.0.9"]}}
Unreadable | | {"runtimeConfig": {"ips": [""]}}
10.7.0.9/24 10.0.0.2/24 fd00::2/64 | | {"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/24"}]], "ips": ["10.7.0.9"]}}
"#;

#[test]
fn addresses_are_asked_for_in_three_ways() {
    let Some(ground) = Ground::new() else { return };
    let of = |args, runtime| {
        let mut config =
            config(json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}));
        config["args"] = args;
        config["runtimeConfig"] = runtime;
        config
    };
    each(&ground, ASKED_FOR, |said| {
        of(said["args"].clone(), said["runtimeConfig"].clone())
    });
    // host-local goes through what is asked for in any order: either of the two may be the last one that it gave.
    let two_of_a_set = of(json!(null), json!({"ips": ["10.0.0.9"]}));
    let mut call = Call::add(&two_of_a_set, "c1");
    call.args = "IP=10.0.0.8".into();
    let both = ground.both();
    assert_eq!(
        [row(&both.theirs(&call)), row(&both.ours(&call))],
        ["NotInSets"; 2]
    );
}

/// Where host-local does one thing and leasehold another: a reason, a configuration, `CNI_ARGS`, and what each says.
#[test]
fn these_differences_are_meant() {
    let Some(ground) = Ground::new() else { return };
    let other_gateway =
        json!([{"subnet": "10.0.0.0/24", "gateway": "10.1.0.2"}, {"subnet": "10.1.0.0/24"}]);
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
            "host-local loses the first half of ::1",
            json!({"subnet": "::/0"}),
            "",
            ["Full", "::2/0"],
        ),
        (
            "and of 0.0.0.1",
            json!({"subnet": "0.0.0.0/0"}),
            "",
            ["Full", "0.0.0.2/0"],
        ),
        (
            "null is absent for every key",
            json!({"subnet": null, "ranges": [[{"subnet": "10.0.0.0/24"}]]}),
            "",
            ["Unreadable", "10.0.0.2/24"],
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
        let both = ground.both();
        let mut call = Call::add(&config(ipam), "c1");
        call.args = args.to_owned();
        assert_eq!(
            [row(&both.theirs(&call)), row(&both.ours(&call))],
            expected,
            "{reason}: {call:?}"
        );
    }
}

/// host-local gives back everything that the container has when its second ADD fails, although the container is using it.
#[test]
fn an_add_that_fails_gives_back_what_it_took_and_no_more() {
    let Some(ground) = Ground::new() else { return };
    let config =
        config(json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}));
    let both = ground.both();
    let found = row(&both.call(&Call::add(&config, "c1")));
    assert_eq!(found, "10.0.0.2/24 fd00::2/64");
    let mut again = Call::add(&config, "c1");
    again.config["runtimeConfig"] = json!({"ips": ["10.0.0.9", "fd00::1"]});
    assert_eq!(
        [both.theirs(&again), both.ours(&again)],
        [Err(Why::Gateway), Err(Why::Gateway)]
    );
    let found = both.files(THEIRS).into_keys().collect::<Vec<_>>();
    assert_eq!(found, ["last_reserved_ip.0", "last_reserved_ip.1"]);
    let ours = both.files(OURS);
    let [address, name] = ["10.0.0.2", "fd00::2"];
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        [address, name, "last_reserved_ip.0", "last_reserved_ip.1"]
    );
}

#[test]
fn files_of_host_local_are_taken_up() {
    let Some(ground) = Ground::new() else { return };
    let config =
        config(json!({"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "fd00::/125"}]]}));
    let both = ground.both();
    both.put(&[
        ("10.0.0.3", "c1\r\neth0"),
        ("10.0.0.5", "c2"),
        ("10.0.0.6", ""),
        ("fd00::2", "c1\r\neth0"),
        ("10.9.9.9", "c3\r\neth0"),
        ("last_reserved_ip.0", "10.0.0.4"),
        ("last_reserved_ip.1", "fd01::9"),
    ]);
    let add = |container: &str| row(&both.call(&Call::add(&config, container)));
    assert_eq!(
        ["c4", "c5", "c6"].map(add),
        ["10.0.0.2/29 fd00::3/125", "10.0.0.4/29 fd00::4/125", "Full"]
    );
    assert_eq!(add("c1"), "Duplicate");
    for (verb, container, expected) in [
        ("CHECK", "c3", ""),
        ("DEL", "c3", ""),
        ("CHECK", "c3", "NotHeld"),
        ("DEL", "c2", ""),
        ("ADD", "c2", "10.0.0.5/29 fd00::5/125"),
    ] {
        let found = row(&both.call(&Call::new(verb, &config, container)));
        assert_eq!(found, expected, "{verb} of {container}");
    }
}
