//! Kubernetes' manifests: they are valid, and the DaemonSet is run as a kubelet would run it, beside pods whose addresses it
//! holds.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;

use ipnet::Ipv4Net;
use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, Grants};
use netns_fixtures::{
    Capture, Cri, DEADLINE, Error, Incumbent, Lan, Need, are_met, assert_says, sandbox, until_found,
};
use serde_json::json;

use super::DIST;
use super::kubelet::{DaemonPod, Node};

/// What reads the manifests.
const TOOLS: Need = Need::Installed("daemon/dist/kubernetes/tools");

/// The capabilities of the manifest as the kernel shows them: `NET_BIND_SERVICE` is 10, then `NET_BROADCAST`, `NET_ADMIN`, `NET_RAW`;
/// `SYS_PTRACE` is 19 and `SYS_ADMIN` 21 (linux/capability.h).
const CAPABILITIES: u64 = 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 19 | 1 << 21;

/// The base and the overlays, in the order in which they are checked.
const WHAT_IS_APPLIED: [&str; 6] = [
    "base",
    "overlays/k3s",
    "overlays/microk8s",
    "overlays/openshift",
    "overlays/rke2",
    "overlays/talos",
];

/// Renders the base with the exporter and a patch. The argument is the folder of the manifests.
const APPLY: &str = r#"
    kubectl=$("$0/tools")/kubectl dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    cd "$dir"
    here=$(realpath --relative-to . "$0")
    printf '%s\n' "resources: [$here/base]" "components: [$here/exporter]" >kustomization.yaml
    cat >>kustomization.yaml <<'END'
PATCH
END
    "$kubectl" kustomize ."#;

/// Puts the store on a disk of its own.
const SMALL_DISK: &str = "
    mkdir /run/disk
    mount -t tmpfs -o size=4m,mode=0700 tmpfs /run/disk
    ln -s /run/disk /var/lib/leasehold";

#[test]
fn every_manifest_is_valid_for_every_kubernetes() {
    if !are_met(&[TOOLS]) {
        return;
    }
    let check = std::process::Command::new(format!("{DIST}/kubernetes/check"))
        .output()
        .expect("it can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&check.stdout);
    assert!(check.status.success(), "{said}{}", text(&check.stderr));
    let all = WHAT_IS_APPLIED
        .map(|name| {
            [
                name.to_owned(),
                format!("{name} with exporter"),
                format!("{name} with uninstall"),
            ]
        })
        .concat();
    assert_eq!(
        said.lines()
            .filter_map(|line| line.split(": ").next())
            .collect::<Vec<_>>(),
        all
    );
    for line in said.lines() {
        assert!(
            line.contains(" 1.28.0 ") && line.ends_with(" 1.37.0"),
            "{line}"
        );
    }
}

#[test]
fn only_the_documented_patch_lifts_apparmor() -> Result<(), std::io::Error> {
    if !are_met(&[TOOLS]) {
        return Ok(());
    }
    let document = document();
    let (_, after) = document
        .split_once("That last path counts as tracing")
        .expect("where it is lifted");
    let manifests = patched(after)?;
    let found = manifests.to_lowercase().matches("apparmor").count();
    assert_eq!(found, 1, "{manifests}");
    // No other container adds capabilities.
    let of_the_daemon = "appArmorProfile:\n            type: Unconfined\n          capabilities:\n            add:\n";
    assert_says(&manifests, of_the_daemon);
    assert_says(&manifests, "hostPID: true");
    for what in WHAT_IS_APPLIED {
        let rendered = format!("{DIST}/kubernetes/rendered");
        let output = std::process::Command::new(rendered)
            .args([what, "exporter"])
            .output()?;
        let manifests = String::from_utf8_lossy(&output.stdout).to_lowercase();
        assert!(
            output.status.success() && manifests.contains("kind: daemonset"),
            "{what}: {manifests}"
        );
        // The field, and the annotation before Kubernetes 1.30.
        assert!(!manifests.contains("apparmor"), "{what}: {manifests}");
    }
    Ok(())
}

#[test]
fn no_network_of_the_document_takes_a_pods_default_route() {
    let document = document();
    let ipams: Vec<_> = document
        .lines()
        .filter(|line| line.contains(r#""ipam": {"#))
        .collect();
    assert!(ipams.len() > 1, "{ipams:?}");
    for ipam in ipams {
        assert!(ipam.contains(r#""suppressDefaultRoute": true"#), "{ipam}");
    }
}

#[test]
fn the_documented_patch_updates_a_tenth_of_the_nodes() -> Result<(), std::io::Error> {
    if !are_met(&[TOOLS]) {
        return Ok(());
    }
    let document = document();
    let (_, after) = document
        .split_once("which takes hours for 1,000 nodes")
        .expect("why");
    let manifests = patched(after)?;
    assert_says(&manifests, "maxSurge: 10%");
    assert_says(&manifests, "maxUnavailable: 0");
    Ok(())
}

/// Renders the base with the exporter and the first block of a text, which must be a patch.
fn patched(text: &str) -> Result<String, std::io::Error> {
    let patch = text
        .split("```")
        .nth(1)
        .and_then(|block| block.strip_prefix("yaml\n"))
        .expect("how");
    let script = APPLY.replace("PATCH", patch);
    let kubernetes = format!("{DIST}/kubernetes");
    let output = std::process::Command::new("bash")
        .args(["-euc", &script, &kubernetes])
        .output()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A user's pod. Nothing holds its namespace, which must end with the pod or the node.
struct Pod {
    id: String,
    address: Ipv4Net,
}

impl Pod {
    fn run(node: &Node, name: &str, attempt: u32) -> Result<Self, Error> {
        let id = node.cri.run_pod(&node.cri.pod(name, attempt))?;
        let [address] = node.cri.netns(&id)?.addresses(Lan::IFNAME)?[..] else {
            panic!("no address, or several")
        };
        Ok(Self { id, address })
    }

    fn has_its_address(&self, node: &Node) -> Result<bool, Error> {
        Ok(node.cri.netns(&self.id)?.addresses(Lan::IFNAME)? == [self.address])
    }
}

/// Waits until the daemon of a pod holds exactly these addresses, tells its exporter so, and has one of them renewed.
fn holds(node: &Node, by: &DaemonPod, seen: &mut Capture, pods: &[&Pod]) -> Result<(), Error> {
    let mut expected: Vec<_> = pods.iter().map(|pod| pod.address.to_string()).collect();
    expected.sort();
    until_found(&format!("{expected:?} at the daemon"), DEADLINE, || {
        // While one daemon follows another there may be no answer.
        let Ok(listed) = node.list(by) else {
            return Ok(None);
        };
        let bindings = listed["bindings"].as_array().into_iter().flatten();
        let bound = bindings.filter(|binding| binding["state"] == "BOUND");
        let mut addresses: Vec<_> = bound
            .filter_map(|binding| binding["address"].as_str())
            .collect();
        addresses.sort_unstable();
        Ok((addresses == expected).then_some(()))
    })?;
    let held = format!(
        r#"leasehold_leases{{door="cni",network="lan",source="server",state="BOUND"}} {}.0"#,
        pods.len()
    );
    until_found(&held, DEADLINE, || {
        Ok(node
            .metrics()
            .lines()
            .any(|line| line == held)
            .then_some(()))
    })?;
    let renewed = |address: Ipv4Addr| pods.iter().any(|pod| pod.address.addr() == address);
    seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| {
        renewed(m.ciaddr) && m.is_unicast()
    })?;
    for pod in pods {
        assert!(pod.has_its_address(node)?, "{}", pod.address);
    }
    Ok(())
}

/// Runs in a pod what the document runs there.
fn an_operator_looks(node: &Node, pod: &DaemonPod) -> Result<(), Error> {
    let document = document();
    let run = |command: &str| {
        let command = format!("/usr/bin/leasehold {command}");
        assert!(document.contains(&format!("-- {command}")), "{command}");
        // The document's link, and a shorter time.
        let command = command.replace("eth1", Lan::IFNAME).replace("1m", "1s");
        node.exec(pod, &command.split(' ').collect::<Vec<_>>())
    };
    let offered = run("probe eth1")?;
    assert!(offered.contains(" offers "), "{offered}");
    // It is not text.
    run("capture --all -w - --for 1m")?;
    // It ends with a code other than 0: the disk is small.
    let looked = run("doctor").unwrap_or_else(|said| said.to_string());
    for said in [
        "unseen   replaced plugin: ",
        "ok       CNI plugin: /host/cni-bin/dhcp is ",
        "ok       network: lan (/etc/cni/net.d/",
        "warning  machine id: ",
    ] {
        assert!(looked.contains(said), "{looked}");
    }
    Ok(())
}

fn document() -> String {
    fs::read_to_string(format!("{DIST}/../docs/kubernetes.md")).expect("it is there")
}

#[test]
fn the_daemon_set_serves_pods_over_updates_and_a_reboot() -> Result<(), Error> {
    let needs = [
        Cri::NEEDS,
        &[
            TOOLS,
            Need::Program("dnsmasq"),
            Need::File(Incumbent::PLUGIN),
        ],
    ]
    .concat();
    let lan = Lan::new(&sandbox!(&needs))?;
    let mut server = Dnsmasq::start(&lan, Grants::default().renewed(5, 60))?;
    let mut seen = Capture::start(&lan.server, Lan::IFNAME)?;
    let mut network = Lan::cni_config(Path::new("/run/cni/dhcp.sock"));
    network["ipam"] = json!({ "type": "dhcp", "clientId": "pod", "grace": 10 });
    let mut node = Node::new(&lan.host, &network, Incumbent::PLUGIN.into())?;
    lan.host.sh(SMALL_DISK)?;
    // A node that has none gets an empty one.
    lan.host.sh("rm /etc/machine-id")?;

    let (one, said) = node.start("one")?;
    assert_says(&said, "/host/cni-bin/dhcp: installed");
    assert_says(&said, "dhcp.before-leasehold");
    for (name, capabilities, user) in [("daemon", CAPABILITIES, 0), ("exporter", 0, 65532)] {
        let look =
            format!("cd /proc/$(pgrep -f '^/usr/bin/leasehold {name}') && cat status mountinfo");
        let found = lan.host.sh(&look)?;
        let rights = [
            format!("Uid:\t{user}\t"),
            format!("CapBnd:\t{capabilities:016x}\n"),
            "Seccomp:\t2\n".to_owned(),
        ];
        assert!(
            rights.iter().all(|right| found.contains(right)) && found.contains(" / / ro,"),
            "{found}"
        );
    }
    // Its namespace is younger than the daemon.
    let web = Pod::run(&node, "web", 0)?;
    holds(&node, &one, &mut seen, &[&web])?;
    an_operator_looks(&node, &one)?;

    // A surge: the new one waits, and is ready by the old one's answers.
    let (two, _) = node.start("two")?;
    node.stop(&one)?;
    holds(&node, &two, &mut seen, &[&web])?;
    // A recreation: for a while there is none, and a pod that starts waits.
    node.stop(&two)?;
    let (late, three) = thread::scope(|s| {
        let late = s.spawn(|| Pod::run(&node, "late", 0));
        let three = node.start("three").map(|(pod, _)| pod);
        Ok::<_, Error>((late.join().expect("it does not panic")?, three?))
    })?;
    holds(&node, &three, &mut seen, &[&web, &late])?;

    // Before the daemon is back, a kubelet forgets the pods of the previous boot and starts those that are still wanted.
    node.cri.lose_power()?;
    let (again, four) = thread::scope(|s| {
        let again = s.spawn(|| {
            node.cri.remove_pod(&late.id)?;
            node.cri.remove_pod(&web.id)?;
            Pod::run(&node, "web", 1)
        });
        let four = node.start("four").map(|(pod, _)| pod);
        Ok::<_, Error>((again.join().expect("it does not panic")?, four?))
    })?;
    assert_eq!(
        again.address, web.address,
        "its client identifier is that of the pod"
    );
    holds(&node, &four, &mut seen, &[&again])?;

    // A server that is silent hears of no release.
    until_found("release of what the reboot ended", DEADLINE, || {
        Ok((server.leases()?.len() == 1).then_some(()))
    })?;
    // Neither a silent server nor a full disk is a reason to end the daemon.
    fs::write("/run/disk/ballast", vec![1; 64 << 20]).expect_err("it is small");
    server.stop()?;
    let patient = thread::scope(|s| {
        let patient = s.spawn(|| Pod::run(&node, "patient", 0));
        seen.wait_for_dhcp(Kind::Discover, DEADLINE, |_| true)?;
        for name in ["readinessProbe", "livenessProbe"] {
            node.probe(&four, name)?;
        }
        fs::remove_file("/run/disk/ballast").expect("it is there");
        server.restart(None)?;
        patient.join().expect("it does not panic")
    })?;
    holds(&node, &four, &mut seen, &[&again, &patient])?;

    node.cri.remove_pod(&patient.id)?;
    node.cri.remove_pod(&again.id)?;
    server.wait_until_free()?;
    node.stop(&four)?;
    let uninstall = node.uninstall()?;
    let (code, said) = node.install_with("uninstall", |args| args.clone_from(&uninstall))?;
    assert_eq!(code, 0, "{said}");
    let is_the_incumbents = || {
        lan.host
            .run_command(
                "cmp",
                &[Incumbent::PLUGIN, &format!("{}/dhcp", Cri::PLUGINS)],
                "",
            )
            .map(drop)
    };
    is_the_incumbents()?;
    // Without the manifest's `--force`, another's plugin stays, and the pod does not start.
    let (code, said) = node.install_with("refused", |args| args.retain(|arg| arg != "--force"))?;
    assert!(
        code == 1 && said.contains("/host/cni-bin/dhcp: not leasehold's. --force replaces it"),
        "{code}: {said}"
    );
    is_the_incumbents()
}
