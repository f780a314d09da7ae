//! What a kubelet makes of the DaemonSet: pods through the CRI, with what the manifest says and nothing more.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use netns_fixtures::{Cri, DEADLINE, Error, Netns, until_found};
use serde_json::{Value, json};

use super::{DIST, Shipped};

/// Where the exporter is asked.
const METRICS: &str = "127.0.0.1:9467";

/// A node with the pod of the DaemonSet, of which there may be several during an update.
pub(crate) struct Node {
    pub(crate) cri: Cri,
    host: Netns,
    image: String,
    spec: Value,
}

/// A pod of the DaemonSet.
pub(crate) struct DaemonPod {
    name: String,
    sandbox: String,
    containers: Vec<Container>,
}

/// One of its containers: its place among those of the manifest, and its id.
struct Container {
    number: usize,
    id: String,
}

impl Node {
    /// Boots a node that has the image, and reads what its pod should be.
    pub(crate) fn new(host: &Netns, network: &Value, plugin: PathBuf) -> Result<Self, Error> {
        let shipped = Shipped::new(host)?;
        let cri = Cri::start(host, network, &plugin)?;
        let file = shipped.target.join("image.tar");
        shipped.make("image/build", &[&file.to_string_lossy(), "amd64"], &[])?;
        let image = cri.import(&file)?;
        let spec = pod_of(host, "exporter")?;
        assert!(
            spec["hostNetwork"] == true && spec["hostPID"].is_null() && spec["hostIPC"].is_null()
        );
        Ok(Self {
            cri,
            host: host.clone(),
            image,
            spec,
        })
    }

    /// Starts a pod: runs the init containers to their ends, then starts the others and waits until all are ready. Returns it
    /// with what the init containers said.
    pub(crate) fn start(&self, name: &str) -> Result<(DaemonPod, String), Error> {
        let config = self.config(name);
        let mut pod = DaemonPod {
            name: name.to_owned(),
            sandbox: self.cri.run_pod(&config)?,
            containers: vec![],
        };
        let said = self.spec["initContainers"]
            .as_array()
            .expect("a list")
            .iter();
        let said = said
            .map(|container| self.run(&pod, container))
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        for (number, container) in self.spec["containers"]
            .as_array()
            .expect("a list")
            .iter()
            .enumerate()
        {
            let id = self.create(&pod, container)?;
            pod.containers.push(Container { number, id });
        }
        until_found("readiness", DEADLINE, || {
            Ok(self.probe(&pod, "startupProbe").is_ok().then_some(()))
        })?;
        self.probe(&pod, "readinessProbe")?;
        self.probe(&pod, "livenessProbe")?;
        Ok((pod, said))
    }

    /// Runs a probe of each container that has one, and returns what the probes printed.
    pub(crate) fn probe(&self, pod: &DaemonPod, name: &str) -> Result<String, Error> {
        let one = |container: &Container| {
            let command = &self.spec["containers"][container.number][name]["exec"]["command"];
            if command.is_null() {
                return Ok(String::new());
            }
            self.cri.exec(&container.id, command)
        };
        pod.containers.iter().map(one).collect()
    }

    /// Asks the daemon in a pod for its leases: `leasehold list --json`.
    pub(crate) fn list(&self, pod: &DaemonPod) -> Result<Value, Error> {
        let said = self.cri.exec(
            &pod.containers[0].id,
            &json!(["/usr/bin/leasehold", "list", "--json"]),
        )?;
        serde_json::from_str(&said).map_err(|_| Error::unreadable("a list of leases", said))
    }

    /// Returns what an exporter on the node tells Prometheus; nothing while there is none.
    pub(crate) fn metrics(&self) -> String {
        let ask = || -> std::io::Result<String> {
            let (mut stream, mut said) = (TcpStream::connect(METRICS)?, String::new());
            stream.set_read_timeout(Some(DEADLINE))?;
            write!(
                stream,
                "GET /metrics HTTP/1.1\r\nHost: {METRICS}\r\nConnection: close\r\n\r\n"
            )?;
            stream.read_to_string(&mut said).map(|_| said)
        };
        self.host.run(|| ask().unwrap_or_default())
    }

    /// Ends a pod, each of whose containers must end well on the signal that it gets.
    pub(crate) fn stop(&self, pod: &DaemonPod) -> Result<(), Error> {
        for Container { id, .. } in &pod.containers {
            let grace = &self.spec["terminationGracePeriodSeconds"];
            self.cri.call(
                "StopContainer",
                &json!({ "container_id": id, "timeout": grace }),
            )?;
            assert_eq!(self.exit_code(id)?, Some(0));
        }
        self.cri.remove_pod(&pod.sandbox)
    }

    /// Runs a command in the daemon's container, and returns what it printed.
    pub(crate) fn exec(&self, pod: &DaemonPod, command: &[&str]) -> Result<String, Error> {
        self.cri.exec(&pod.containers[0].id, &json!(command))
    }

    /// Returns the arguments of the init container with the component that uninstalls.
    pub(crate) fn uninstall(&self) -> Result<Vec<Value>, Error> {
        let spec = pod_of(&self.host, "uninstall")?;
        Ok(list(&spec["initContainers"][0]["args"]).cloned().collect())
    }

    /// Runs the init container to its end in a pod of its own, with its arguments changed. Returns its exit code and its output.
    pub(crate) fn install_with(
        &self,
        name: &str,
        change: impl Fn(&mut Vec<Value>),
    ) -> Result<(i64, String), Error> {
        let pod = DaemonPod {
            name: name.to_owned(),
            sandbox: self.cri.run_pod(&self.config(name))?,
            containers: vec![],
        };
        let mut container = self.spec["initContainers"][0].clone();
        change(container["args"].as_array_mut().expect("a list"));
        let ended = self.end_of(&pod, &container)?;
        self.cri.remove_pod(&pod.sandbox)?;
        Ok(ended)
    }

    fn config(&self, name: &str) -> Value {
        let mut config = self.cri.pod(name, 0);
        // It has the host's.
        config["hostname"].take();
        config["linux"] = json!({ "security_context": { "namespace_options": namespaces(), "seccomp": self.seccomp() } });
        config
    }

    /// Runs a container to its end, which must be a success, and returns its output.
    fn run(&self, pod: &DaemonPod, container: &Value) -> Result<String, Error> {
        let (code, said) = self.end_of(pod, container)?;
        assert_eq!(code, 0, "{said}");
        Ok(said)
    }

    /// Runs a container to its end, and returns its exit code and its output.
    fn end_of(&self, pod: &DaemonPod, container: &Value) -> Result<(i64, String), Error> {
        let id = self.create(pod, container)?;
        let code = until_found("end of an init container", DEADLINE, || self.exit_code(&id))?;
        Ok((code, self.cri.log(&log_of(pod, container))?))
    }

    /// Returns the code with which a container has ended.
    fn exit_code(&self, id: &str) -> Result<Option<i64>, Error> {
        let status = &self
            .cri
            .call("ContainerStatus", &json!({ "container_id": id }))?["status"];
        let is_over = status["state"] == "CONTAINER_EXITED";
        Ok(is_over.then(|| status["exit_code"].as_i64().unwrap_or(0)))
    }

    /// Makes and starts a container, and returns its id.
    fn create(&self, pod: &DaemonPod, container: &Value) -> Result<String, Error> {
        let security = &container["securityContext"];
        assert!(security["privileged"].is_null(), "it is not privileged");
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        let mounts = list(&container["volumeMounts"]).map(|mount| self.mount(pod, mount));
        let envs =
            list(&container["env"]).map(|env| json!({ "key": env["name"], "value": env["value"] }));
        let number = |name: &str| {
            security[name]
                .as_i64()
                .map(|value| json!({ "value": value }))
        };
        let config = json!({
            "metadata": { "name": container["name"] },
            "image": { "image": self.image },
            "command": container["command"],
            "args": container["args"],
            "envs": envs.collect::<Vec<_>>(),
            "mounts": mounts.collect::<Result<Vec<_>, _>>()?,
            "log_path": log_of(pod, container),
            "linux": { "security_context": {
                "namespace_options": namespaces(),
                "capabilities": {
                    "add_capabilities": security["capabilities"]["add"],
                    "drop_capabilities": security["capabilities"]["drop"],
                },
                "run_as_user": number("runAsUser"),
                "run_as_group": number("runAsGroup"),
                "readonly_rootfs": security["readOnlyRootFilesystem"],
                "no_new_privs": security["allowPrivilegeEscalation"] == false,
                "seccomp": self.seccomp(),
            } },
        });
        let request = json!({ "pod_sandbox_id": pod.sandbox, "config": config, "sandbox_config": self.config(&pod.name) });
        let made = self.cri.call("CreateContainer", &request)?;
        self.cri.call("StartContainer", &made)?;
        Ok(made["container_id"].as_str().unwrap_or_default().to_owned())
    }

    fn seccomp(&self) -> Value {
        json!({ "profile_type": self.spec["securityContext"]["seccompProfile"]["type"] })
    }

    /// Returns a mount in the CRI's form; makes the directory on the host first if the volume says so.
    fn mount(&self, pod: &DaemonPod, mount: &Value) -> Result<Value, Error> {
        let volume = list(&self.spec["volumes"]).find(|volume| volume["name"] == mount["name"]);
        let volume = volume.expect("each mount has a volume");
        let host_path = match volume["hostPath"]["path"].as_str() {
            Some(path) => path.to_owned(),
            // One for each pod.
            None if volume["emptyDir"].is_object() => {
                format!(
                    "/run/pods/{}/{}",
                    pod.name,
                    volume["name"].as_str().unwrap_or_default()
                )
            }
            None => panic!("{volume}: not a kind that is expected here"),
        };
        match volume["hostPath"]["type"].as_str() {
            Some("DirectoryOrCreate") => self.host.run_command("mkdir", &["-p", &host_path], "")?,
            Some("FileOrCreate") => self.host.run_command("touch", &[&host_path], "")?,
            _ => String::new(),
        };
        if volume["emptyDir"].is_object() {
            self.host
                .run_command("install", &["-d", "-m", "777", &host_path], "")?;
        }
        let propagation = match mount["mountPropagation"].as_str() {
            None => "PROPAGATION_PRIVATE",
            Some("HostToContainer") => "PROPAGATION_HOST_TO_CONTAINER",
            Some(other) => panic!("{other}: more than is needed"),
        };
        Ok(json!({
            "container_path": mount["mountPath"],
            "host_path": host_path,
            "readonly": mount["readOnly"],
            "propagation": propagation,
        }))
    }
}

/// Returns the pod of the base with a component.
fn pod_of(host: &Netns, component: &str) -> Result<Value, Error> {
    let said = host.run_command(&format!("{DIST}/kubernetes/pod"), &["base", component], "")?;
    serde_json::from_str(&said).map_err(|_| Error::unreadable("a pod", said))
}

/// Returns the elements of a list that may be missing.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the name of the file for a container's output.
fn log_of(pod: &DaemonPod, container: &Value) -> String {
    format!(
        "{}-{}.log",
        pod.name,
        container["name"].as_str().unwrap_or_default()
    )
}

/// Returns the namespaces of a container: the host's network, and otherwise its own.
fn namespaces() -> Value {
    json!({ "network": "NODE", "pid": "CONTAINER" })
}
