//! An operator has a running daemon extend leases and give them back, with a real server.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;

use netns_fixtures::model::{Config, Event, Purpose};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, ModelServer};
use netns_fixtures::{CallError, DEADLINE, Error, Lab, Lan, Need, binary, sandbox, until_found};
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
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
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
    assert_eq!(
        one.container.netns.addresses("eth0")?,
        [],
        "it is off before the lease goes back"
    );
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

#[test]
fn a_renewal_says_that_no_server_answers() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("c1")?;
    drop(server);
    let unanswered = || -> Result<Option<String>, Error> {
        let (code, text) = run(&lab, &["renew", "c1"])?;
        Ok((code == Some(3)).then_some(text))
    };
    let text = until_found("a renewal without an answer", DEADLINE, unanswered)?;
    assert!(
        text.contains("  not extended\n  no server answered; it is held as before"),
        "{text}"
    );
    lab.check(&member)
}

#[test]
fn renewals_go_on_beside_a_thousand_stuck_callers() -> Result<(), CallError> {
    let sandbox = sandbox!(&[]);
    let lab = Lab::new(&sandbox)?;
    let server = ModelServer::start(
        &lab.lan,
        Config::new(Lan::SUBNET).lasting(20).renewed(3, None),
    )?;
    let member = lab.attach("c1")?;
    let asks = [
        "/v1/bindings",
        "/v1/show?name=c1",
        "/v1/status",
        "/v1/events?wait=60",
        "/v1/capture?wait=60",
        "/metrics",
        "/readyz",
    ];
    let call = |n: usize| -> std::io::Result<UnixStream> {
        let mut stream = UnixStream::connect(lab.home().socket())?;
        let head = format!("GET {} HTTP/1.1\r\nHost: x\r\n", asks[n % asks.len()]);
        let whole = if n.is_multiple_of(2) { "\r\n" } else { "" };
        stream.write_all(format!("{head}{whole}").as_bytes())?;
        Ok(stream)
    };
    let mut callers = Vec::new();
    for n in 0..1000 {
        callers.push(call(n).expect("the daemon listens"));
    }
    let mut renewals = 0;
    server.wait_for("three renewals", 0, DEADLINE, |event| {
        renewals += usize::from(matches!(event, Event::Granted(_, Purpose::Renew)));
        (renewals == 3).then_some(())
    })?;
    let (code, text) = run(&lab, &["list"])?;
    assert!(code == Some(0) && text.contains("lan/c1/eth0"), "{text}");
    drop(callers);
    lab.check(&member)?;
    lab.detach(&member)?;
    assert_eq!(server.violations(), []);
    Ok(())
}

#[test]
fn one_lease_and_the_daemon_are_shown_as_they_are() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("web1")?;
    let (code, text) = run(&lab, &["show", "web1"])?;
    assert_eq!(code, Some(0), "{text}");
    for fact in [
        "lan/web1/eth0\n",
        &format!("  address           {}/16\n", member.address),
        "  state             BOUND\n",
        "  server            10.7.0.1, at ",
        "  client            its container (",
        " is up, MTU 1500, addresses 10.7.",
        "\nOptions that the daemon remembers:\n",
        "  dhcp-lease-time (51)",
        "\nLast events:\n  20",
        " acquired 10.7.",
    ] {
        assert!(text.contains(fact), "no {fact:?}: {text}");
    }
    let (code, text) = run(&lab, &["show", "web1", "--json"])?;
    let story: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (code, &story["lease"]["binding"]["name"]),
        (Some(0), &"web1".into()),
        "{text}"
    );
    let (code, text) = run(&lab, &["show", "nobody"])?;
    assert!(
        code == Some(4) && text.starts_with("There is no lease called nobody"),
        "{text}"
    );

    let (code, text) = run(&lab, &["list", "--network", "lan", "--state", "bound"])?;
    assert!(
        code == Some(0) && text.starts_with("NAME  ATTACHMENT     ADDRESS"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let (_, text) = run(&lab, &["list", "--network", "other"])?;
    assert_eq!(text, "NAME  ATTACHMENT  ADDRESS  STATE  LEFT\n");
    let (_, text) = run(&lab, &["list", "-o", "wide"])?;
    assert!(text.contains(" 00:web1/lan/eth0 "), "{text}");

    let (code, text) = run(&lab, &["status"])?;
    assert!(
        code == Some(0) && text.contains("leases by state  1 BOUND\n"),
        "{text}"
    );
    assert!(
        text.contains("\n10.7.0.1  ") && text.ends_with("Nothing needs attention.\n"),
        "{text}"
    );
    drop(server);
    // A lease that is lost, and for which no server has another.
    let (code, text) = run(&lab, &["release", "web1", "--force"])?;
    assert_eq!(code, Some(0), "{text}");
    lab.terminate()?;
    for verb in ["status", "list"] {
        let (code, text) = run(&lab, &[verb])?;
        assert!(
            code == Some(1) && text.starts_with("leasehold: no leasehold daemon at "),
            "{text}"
        );
    }
    Ok(())
}
