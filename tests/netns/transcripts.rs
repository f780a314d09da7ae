//! The transcripts of `daemon/docs/operations.md`: what the commands print when something is wrong. `LEASEHOLD_WRITE=1` rewrites
//! them. Numbers, times and addresses differ from one run to the next, and are not compared.

use std::fs;
use std::path::Path;
use std::process::Command;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, DEADLINE, Error, Lab, Need, binary, sandbox, until_found};

const DOCUMENT: &str = "../daemon/docs/operations.md";

/// Runs an operator's command. Returns the command with its output, as at a prompt.
fn prompt(lab: &Lab, line: &str) -> Result<String, Error> {
    let mut command = Command::new(binary("leasehold")?);
    let args: Vec<_> = line.split(' ').collect();
    command.args(&args);
    if args[0] != "probe" {
        command.arg("--socket").arg(lab.home().socket());
    }
    let output = lab.lan.host.output(command, b"")?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let places = [
        (lab.home().socket(), "/run/cni/dhcp.sock"),
        (lab.home().state_dir(), "/var/lib/leasehold"),
    ];
    let text = places.iter().fold(text, |text, (path, known)| {
        text.replace(&*path.to_string_lossy(), known)
    });
    let netns = lab
        .lan
        .host
        .path()
        .parent()
        .unwrap_or(Path::new("/"))
        .to_string_lossy();
    let text = text.replace(&*netns, "/run/netns");
    Ok(format!("# leasehold {line}\n{text}"))
}

/// Compares the transcript under a heading of the document with the output, or writes it there.
fn documented(heading: &str, transcript: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let text = fs::read_to_string(&path).expect("the document");
    let (before, section) = text
        .split_once(&format!("\n### {heading}\n"))
        .unwrap_or_else(|| panic!("no {heading}"));
    let (prose, rest) = section.split_once("```text\n").expect("a transcript");
    let (kept, rest) = rest.split_once("```").expect("its end");
    if std::env::var_os("LEASEHOLD_WRITE").is_some() {
        let text = format!("{before}\n### {heading}\n{prose}```text\n{transcript}```{rest}");
        return fs::write(&path, text).expect("the document can be written");
    }
    assert_eq!(
        shape(kept),
        shape(transcript),
        "{heading}: run this test with LEASEHOLD_WRITE=1\n{transcript}"
    );
}

/// Returns the words of a transcript, line by line, with a placeholder for each that contains a number.
fn shape(transcript: &str) -> Vec<Vec<String>> {
    let of_word = |word: &str| {
        if word.contains(|c: char| c.is_ascii_digit()) {
            "#".to_owned()
        } else {
            word.to_owned()
        }
    };
    transcript
        .lines()
        .map(|line| line.split_whitespace().map(of_word).collect())
        .collect()
}

#[test]
fn pods_get_no_address_after_a_switch_was_replaced() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("web1")?;
    // As behind a port in another VLAN.
    drop(server);
    let unanswered = || -> Result<Option<String>, Error> {
        let text = prompt(&lab, "renew web1")?;
        Ok(text.contains("not extended").then_some(text))
    };
    let renewed = until_found("a renewal without an answer", DEADLINE, unanswered)?;
    let probed = prompt(&lab, "probe eth0 --wait 4")?;
    documented(
        "Pods get no address after a switch was replaced",
        &format!("{renewed}\n{probed}"),
    );
    lab.check(&member)
}

#[test]
fn a_container_does_not_answer_at_its_address() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("web1")?;
    let address = format!("{}/16", member.address);
    member
        .container
        .netns
        .run_command("ip", &["addr", "del", &address, "dev", "eth0"], "")?;
    lab.daemon().wait_for_event(" address_removed ")?;
    documented(
        "A container does not answer at its address",
        &prompt(&lab, "show web1")?,
    );
    lab.detach(&member)
}

#[test]
fn an_address_has_to_go_back_before_its_container_ends() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("web1")?;
    let transcript = format!(
        "{}\n{}",
        prompt(&lab, "release web1")?,
        prompt(&lab, "release web1 --force")?
    );
    documented(
        "An address has to go back before its container ends",
        &transcript,
    );
    lab.detach(&member)
}

#[test]
fn something_is_wrong_and_nobody_knows_what() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let members = [lab.attach("web1")?, lab.attach("web2")?];
    let transcript = format!("{}\n{}", prompt(&lab, "status")?, prompt(&lab, "list")?);
    documented("Something is wrong, and nobody knows what", &transcript);
    members.iter().try_for_each(|member| lab.detach(member))
}
