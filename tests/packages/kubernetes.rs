//! Kubernetes' manifests: valid, and the DaemonSet run as a kubelet would run it.

use std::path::Path;
use std::time::Duration;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    CallError, Capture, Containerd, DEADLINE, Engine, Error, Incumbent, Lan, Need, Netns, Shim, are_met, sandbox,
    until_found,
};
use serde_json::Value;

use super::{DIST, Shipped};

/// What reads the manifests.
const TOOLS: Need = Need::Installed("daemon/dist/kubernetes/tools");

/// The capabilities that containerd gives a container unless told otherwise.
const USUAL: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// Where the runtime of this host looks for plugins.
const PLUGINS: &str = "/usr/lib/cni";

#[test]
fn the_base_and_each_overlay_are_valid_for_each_kubernetes() {
    if !are_met(&[TOOLS]) {
        return;
    }
    let check = std::process::Command::new(format!("{DIST}/kubernetes/check")).output().expect("it can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&check.stdout);
    assert!(check.status.success(), "{said}{}", text(&check.stderr));
    for of in ["base", "k3s", "microk8s", "openshift", "rke2", "talos"] {
        let line = said.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of}: {said}"));
        assert!(line.contains(" 1.28.0 ") && line.contains(" 1.37.0"), "{line}");
    }
}

/// The pod of the DaemonSet on this node, as containerd runs it.
struct Node {
    host: Netns,
    containerd: Containerd,
    image: String,
    spec: Value,
}

impl Node {
    fn new(host: &Netns, network: &Value) -> Result<Self, Error> {
        let shipped = Shipped::new(host)?;
        let containerd = Containerd::start(host, network, Incumbent::PLUGIN.as_ref())?;
        let file = shipped.target.join("image.tar");
        shipped.make("image/build", &[&file.to_string_lossy(), "amd64"], &[])?;
        let image = containerd.import(&file)?;
        let said = host.run_command(&format!("{DIST}/kubernetes/pod"), &["base"], "")?;
        let spec = serde_json::from_str(&said).map_err(|_| Error::Unreadable { what: "a pod", text: said })?;
        Ok(Self { host: host.clone(), containerd, image, spec })
    }

    /// Runs the init containers to their ends.
    fn init(&self) -> Result<String, Error> {
        let containers = self.spec["initContainers"].as_array().expect("a list");
        let ran = containers.iter().map(|container| self.run("init", container, &["--rm"]));
        ran.collect::<Result<Vec<_>, _>>().map(|said| said.concat())
    }

    /// Starts the one container, and waits until its readiness probe succeeds.
    fn start(&self, id: &str) -> Result<(), Error> {
        let [container] = &self.spec["containers"].as_array().expect("a list")[..] else { panic!("one container") };
        self.run(id, container, &["--detach"])?;
        until_found("readiness", DEADLINE, || Ok(self.probe(id, "startupProbe").is_ok().then_some(())))?;
        self.probe(id, "readinessProbe")?;
        self.probe(id, "livenessProbe").map(drop)
    }

    /// Runs a probe of the one container in a running one.
    fn probe(&self, id: &str, name: &str) -> Result<String, Error> {
        let command = texts(&self.spec["containers"][0][name]["exec"]["command"]);
        let exec = format!("{name}-{}", command.len());
        let own = ["tasks", "exec", "--exec-id", &exec, id];
        self.containerd.ctr(&[&own[..], &command].concat())
    }

    /// Ends a container as a kubelet does.
    fn stop(&self, id: &str) -> Result<(), Error> {
        self.containerd.ctr(&["tasks", "kill", "--signal", "SIGTERM", id])?;
        until_found("end of a container", DEADLINE, || {
            let listed = self.containerd.ctr(&["tasks", "list"])?;
            Ok(listed.lines().any(|line| line.starts_with(id) && line.contains("STOPPED")).then_some(()))
        })?;
        self.containerd.ctr(&["tasks", "delete", id])?;
        self.containerd.ctr(&["containers", "delete", id]).map(drop)
    }

    /// Runs a container with what the manifest says, and nothing more.
    fn run(&self, id: &str, container: &Value, how: &[&str]) -> Result<String, Error> {
        let security = &container["securityContext"];
        assert_eq!(self.spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert!(self.spec["hostNetwork"] == true && self.spec["hostPID"].is_null() && security["privileged"].is_null());
        assert_eq!(texts(&security["capabilities"]["drop"]), ["ALL"]);
        let mut args: Vec<String> = how.iter().map(|arg| (*arg).to_owned()).collect();
        args.extend(["--cgroup", "", "--net-host", "--seccomp"].map(str::to_owned));
        args.extend((security["readOnlyRootFilesystem"] == true).then(|| "--read-only".to_owned()));
        args.extend((security["allowPrivilegeEscalation"] != false).then(|| "--allow-new-privs".to_owned()));
        let added = texts(&security["capabilities"]["add"]);
        let dropped = USUAL.iter().filter(|name| !added.contains(name));
        args.extend(dropped.flat_map(|name| ["--cap-drop".to_owned(), format!("CAP_{name}")]));
        let further = added.iter().filter(|name| !USUAL.contains(name));
        args.extend(further.flat_map(|name| ["--cap-add".to_owned(), format!("CAP_{name}")]));
        for mount in container["volumeMounts"].as_array().expect("a list") {
            args.extend(["--mount".to_owned(), self.mount(mount)?]);
        }
        args.extend([self.image.clone(), id.to_owned(), "/usr/bin/leasehold".to_owned()]);
        args.extend(texts(&container["args"]).into_iter().map(str::to_owned));
        self.containerd.ctr(&[&["run"], &args.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat())
    }

    /// Returns one mount as ctr takes it; makes the directory on the host first, as a kubelet does.
    fn mount(&self, mount: &Value) -> Result<String, Error> {
        let volumes = self.spec["volumes"].as_array().expect("a list");
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("each mount has a volume");
        let host_path = &volume["hostPath"];
        let source = match volume["name"].as_str() {
            Some("cni-bin") => PLUGINS,
            _ => host_path["path"].as_str().expect("a path"),
        };
        if host_path["type"] == "DirectoryOrCreate" {
            self.host.run_command("mkdir", &["-p", source], "")?;
        }
        let propagation = match mount["mountPropagation"].as_str() {
            None => "rprivate",
            Some("HostToContainer") => "rslave",
            Some(other) => panic!("{other}: more than is needed"),
        };
        let access = if mount["readOnly"] == true { "ro" } else { "rw" };
        let target = mount["mountPath"].as_str().expect("a path");
        Ok(format!("type=bind,src={source},dst={target},options=rbind:{propagation}:{access}"))
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

#[test]
fn the_daemon_set_installs_runs_updates_and_holds_leases_with_no_right_but_its_own() -> Result<(), CallError> {
    let tools = [TOOLS, Need::Program("dnsmasq"), Need::File(Incumbent::PLUGIN)];
    let Some(sandbox) = sandbox(&[Containerd::NEEDS, &tools[..]].concat()) else { return Ok(()) };
    let lan = Lan::new(&sandbox)?;
    let timers = Some((Duration::from_secs(5), Duration::from_secs(20)));
    let server = Dnsmasq::start(&lan, DnsmasqConfig { timers, ..DnsmasqConfig::default() })?;
    let mut seen = Capture::start(&lan.server, Lan::IFNAME)?;
    let config = Lan::cni_config(Path::new("/run/cni/dhcp.sock"));
    let node = Node::new(&lan.host, &config)?;
    let said = node.init()?;
    assert!(said.contains("/host/cni-bin/dhcp: installed") && said.contains("dhcp.before-leasehold"), "{said}");
    let shim = Shim::at(&lan.host, format!("{PLUGINS}/dhcp").into());
    node.start("one")?;

    // Its namespace is younger than the daemon.
    let pod = lan.container("pod")?;
    let result = shim.add(&pod, &config)?;
    pod.configure(&result)?;
    let address = seen.wait_for_dhcp(Kind::Ack, DEADLINE, |_| true)?.yiaddr;
    seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| m.ciaddr == address && m.is_unicast())?;
    let holds = |id: &str| Ok::<_, Error>(node.probe(id, "livenessProbe")?.contains(&format!("{address}/16")));

    // A surge: the new one waits, and is ready by the old one's answers.
    node.start("two")?;
    shim.check(&pod, &config, &result)?;
    node.stop("one")?;
    until_found("lease at the new daemon", DEADLINE, || Ok(holds("two").unwrap_or_default().then_some(())))?;
    shim.check(&pod, &config, &result)?;
    // A recreation: for a while there is none.
    node.stop("two")?;
    let late = lan.container("late")?;
    let add = shim.start("ADD", &late, &config)?;
    node.start("three")?;
    let result_of_late = add.wait()?;
    late.configure(&result_of_late)?;
    assert!(holds("three")?);
    shim.check(&pod, &config, &result)?;

    shim.del(&pod, &config)?;
    shim.del(&late, &config)?;
    server.wait_until_free()?;
    node.stop("three")?;
    Ok(())
}
