//! An operator has a running daemon extend leases and give them back, with a real server.

use std::process::Command;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, DEADLINE, Error, Lab, Need, binary, sandbox, until_found};
use serde_json::Value;

/// Runs one of the operator's commands, and returns its exit code and what it prints on both outputs.
fn run(lab: &Lab, args: &[&str]) -> Result<(Option<i32>, String), Error> {
    let mut command = Command::new(binary("leasehold")?);
    command.args(args).arg("--socket").arg(lab.home().socket());
    let output = lab.lan.host.output(command, b"")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

#[test]
fn an_operator_renews_and_releases_leases() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let [one, two, other] = ["web1", "web2", "db"].map(|id| lab.attach(id));
    let (one, two, other) = (one?, two?, other?);

    // A lease that is ten seconds old is extended.
    let extended = |name: &str| -> Result<Option<String>, Error> {
        let (code, text) = run(&lab, &["renew", name])?;
        assert_eq!(code, Some(0), "{text}");
        Ok(text.contains("  extended, ").then_some(text))
    };
    let text = until_found("an extended lease", DEADLINE, || extended("lan/web1/eth0"))?;
    assert!(
        text.starts_with(&format!("lan/web1/eth0  {}/16  extended, ", one.address)),
        "{text}"
    );
    until_found("an extended lease", DEADLINE, || {
        extended(&two.address.to_string())
    })?;

    let (code, text) = run(&lab, &["release", "web", "--force"])?;
    assert!(
        code == Some(4)
            && text.starts_with("Nothing was done: 2 leases match the name.\n  lan/web1/eth0"),
        "{text}"
    );
    let (code, text) = run(&lab, &["renew", "nobody"])?;
    assert!(
        code == Some(4)
            && text == "There is no such lease called nobody: `leasehold list` shows all.\n",
        "{text}"
    );
    let (code, text) = run(&lab, &["renew"])?;
    assert!(
        code == Some(1) && text.starts_with("leasehold: say which leases you mean"),
        "{text}"
    );
    let (code, text) = run(&lab, &["release", "--all", "--force"])?;
    assert!(
        code == Some(1) && text.contains("nothing was done: confirm --all with y, or give --yes"),
        "{text}"
    );

    let (code, text) = run(&lab, &["release", "web1"])?;
    assert!(
        code == Some(3) && text.contains("  not given back\n  its container runs: with --force"),
        "{text}"
    );
    assert_eq!(one.container.netns.addresses("eth0")?.len(), 1);
    let (code, text) = run(&lab, &["release", "web1", "--force"])?;
    assert!(code == Some(0) && text.contains("  given back\n"), "{text}");
    // It is off before the lease goes back.
    assert_eq!(one.container.netns.addresses("eth0")?, []);
    lab.detach(&one)?;

    let (code, text) = run(
        &lab,
        &[
            "release",
            "--address",
            "10.7.0.0/16",
            "--state",
            "bound",
            "--force",
            "--json",
        ],
    )?;
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    let outcomes: Vec<_> = answer["leases"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|lease| &lease["outcome"])
        .collect();
    assert!(
        code == Some(0) && outcomes == ["returned", "returned"],
        "{text}"
    );
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    lab.detach(&two)?;
    lab.detach(&other)?;

    lab.terminate()?;
    let (code, text) = run(&lab, &["release", "--all", "--yes"])?;
    assert!(
        code == Some(1) && text.starts_with("leasehold: no leasehold daemon at "),
        "{text}"
    );
    Ok(())
}
