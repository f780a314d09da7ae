//! The commands in the documents that need no service manager: each is run as printed, beside a container with that name.

use std::collections::BTreeSet;
use std::io;
use std::process::Command;

use leasehold_tests::documents::{block, commands, text};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, DEADLINE, Lab, Lan, Need, binary, sandbox, until_found};

/// What users read.
const DOCUMENTS: [&str; 7] = [
    "README.md",
    "daemon/docs/cni.md",
    "daemon/docs/docker.md",
    "daemon/docs/kubernetes.md",
    "daemon/docs/metrics.md",
    "daemon/docs/operations.md",
    "daemon/docs/reference.md",
];

/// Verbs whose procedures other tests run, on a host of their own. The last is the beginning of an error.
const ELSEWHERE: [&str; 4] = ["daemon", "install", "uninstall", "keeps"];

/// Returns the commands of ours that stand in sentences, and those that are run in a pod, as they are run beside the container web.
fn in_sentences(socket: &str) -> BTreeSet<String> {
    let sentences = DOCUMENTS
        .iter()
        .flat_map(|document| commands(document, "leasehold"));
    let kubernetes = text("daemon/docs/kubernetes.md");
    let in_pods = kubernetes.lines().filter_map(|line| {
        let (_, command) = line.split_once(" -- /usr/bin/")?;
        Some(command.split(['`', '>']).next()?.trim().to_owned())
    });
    let filled = |command: String| {
        command
            .replace("/run/docker/plugins/ID/control.sock", socket)
            .replace("FILE.pcapng", "web.pcapng")
            .replace("LINK", Lan::IFNAME)
            .replace("eth1", Lan::IFNAME)
            .replace("NAME", "web")
            .replace("10m", "1s")
            .replace("1m", "1s")
    };
    let is_whole = |command: &String| {
        let verb = command.split(' ').nth(1).unwrap_or_default();
        !ELSEWHERE.contains(&verb) && !command.ends_with("--network")
    };
    let all = sentences.chain(in_pods).map(filled);
    all.filter(is_whole).collect()
}

#[test]
fn each_command_of_the_documents_does_as_they_say() -> Result<(), CallError> {
    let programs = ["dnsmasq", "tshark", "curl", "timeout"].map(Need::Program);
    let sandbox = sandbox!(&programs);
    let lab = Lab::with_read_socket(&sandbox)?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let _web = lab.attach("web")?;
    let blocks = [
        block("README.md", "\n## Day to day\n"),
        block("daemon/docs/operations.md", "\n### Frames\n"),
        block("daemon/docs/metrics.md", "\n"),
    ]
    .concat();
    let socket = lab.home().socket().to_string_lossy().into_owned();
    let in_blocks = blocks.lines().map(|line| {
        let command = line.split('#').next().unwrap_or_default().trim();
        let command = command.replace("NAME", "web").replace("10m", "1s");
        (command.replace("/run/cni/dhcp.sock", &socket), true)
    });
    let in_sentences = in_sentences(&socket);
    assert!(in_sentences.len() > 8, "{in_sentences:?}");
    let in_sentences = in_sentences.into_iter().map(|command| (command, false));
    let (leasehold, here) = (binary("leasehold")?, sandbox.dir("here")?);
    let path = format!(
        "{}:{}",
        leasehold.parent().expect("a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut count = 0;
    for (command, is_in_a_block) in in_blocks.chain(in_sentences) {
        // The journal is the host's.
        if command.starts_with("journalctl") {
            continue;
        }
        let is_capture = command.contains("capture") && !command.contains("--for");
        let is_endless = is_capture
            || ["--follow", "exporter"]
                .iter()
                .any(|word| command.contains(word));
        let mut shell = Command::new("timeout");
        shell.args([if is_endless { "1" } else { "60" }, "sh", "-ec", &command]);
        shell.current_dir(&here).env("PATH", &path);
        shell.env("LEASEHOLD_SOCKET", &socket);
        shell.env("LEASEHOLD_READ_SOCKET", lab.home().read_socket());
        let output = lab.lan.host.output(shell, b"y\n")?;
        // What doctor and status find here is theirs to say: 1, 3 and 4. A sentence may name what is refused for a container that
        // runs.
        let looks = ["doctor", "status"]
            .iter()
            .any(|word| command.contains(word));
        let code = output.status.code();
        let expected = match (is_endless, looks || !is_in_a_block) {
            (true, _) => [124].as_slice(),
            (_, true) => &[0, 1, 3, 4],
            _ => &[0],
        };
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(
            code.is_some_and(|code| expected.contains(&code)),
            "{command}: {code:?}: {said}"
        );
        assert!(!said.contains("error:"), "{command}: {said}");
        count += 1;
    }
    assert!(count > 20, "{count}");
    Ok(())
}

#[test]
fn a_macvlan_of_the_host_reaches_containers() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&["dnsmasq", "busybox"].map(Need::Program)))?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let web = lab.attach("web")?;
    let address = web.address.to_string();
    let lines = block("daemon/docs/docker.md", "* **The host** does not reach");
    let lines = lines
        .replace("192.168.1.250", "10.7.0.250")
        .replace("192.168.1.10", &address);
    lab.lan.host.sh(&lines)?;
    let ping = ["ping", "-c", "1", "-W", "1", &address];
    until_found("an answer to the host", DEADLINE, || {
        Ok(lab.lan.host.run_command("busybox", &ping, "").ok())
    })?;
    Ok(())
}

#[test]
fn a_reader_who_has_seen_enough_ends_a_command_quietly() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let _web = lab.attach("web")?;
    let commands = [
        "probe eth0 --wait 1",
        "doctor",
        "list",
        "show web",
        "status",
        "events",
    ];
    for words in commands {
        let mut command = Command::new(binary("leasehold")?);
        command.args(words.split(' '));
        command.env("LEASEHOLD_SOCKET", lab.home().socket());
        let (reader, writer) = io::pipe().expect("there are descriptors");
        drop(reader);
        let output = lab.lan.host.run(|| command.stdout(writer).output());
        let said = output.expect("it is there").stderr;
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said, "", "{words}");
    }
    Ok(())
}
