//! Who only reads: members of the read-only socket's group, and whoever reads a log or a list.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{CallError, Error, Lab, Lan, Need, binary, sandbox};

/// A group of no other use, and a user who is in no other group.
const GROUP: u32 = 4242;
const NOBODY: &str = "65534";

/// What a member may use without a flag.
const COMMANDS: [&[&str]; 4] = [&["list"], &["show", "c1"], &["status"], &["events"]];

#[test]
fn members_of_the_read_sockets_group_need_no_flag() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::RealRoot, Need::Program("setpriv")]);
    let lab = Lab::with_read_socket(&sandbox)?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let member = lab.attach("c1")?;
    let read_socket = lab.home().read_socket();
    chown(&read_socket, None, Some(GROUP)).expect("root may");
    // Who builds may be the only one who may look into the directory of what was built.
    let dir = sandbox.dir("programs")?;
    let program = dir.join("leasehold");
    fs::copy(binary("leasehold")?, &program).expect("there is room");
    for path in [&dir, &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let run = |groups: &str, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--groups", groups])
            .arg(&program)
            .args(args)
            .env("LEASEHOLD_SOCKET", lab.daemon().socket())
            .env("LEASEHOLD_READ_SOCKET", &read_socket);
        let output = lab.lan.host.output(command, b"")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok::<_, Error>((output.status.success(), text))
    };
    let both = format!("{NOBODY},{GROUP}");
    for args in COMMANDS {
        let (done, text) = run(&both, args)?;
        let says = match args {
            ["status"] => "Nothing needs attention.",
            _ => "lan/c1/eth0",
        };
        assert!(done && text.contains(says), "{args:?}: {text}");
        let (done, text) = run(NOBODY, args)?;
        let refused = text.starts_with("leasehold: no permission to ask the daemon at ")
            && text.contains("be root, or, for `list`, `show`, `status` and `events`, a member of the group of its read-only socket");
        assert!(!done && refused, "{args:?}: {text}");
    }
    let (done, text) = run(&both, &["release", "c1", "--force"])?;
    assert!(!done && text.contains("no permission"), "{text}");
    lab.detach(&member)
}

#[test]
fn callers_control_characters_reach_no_log_or_list() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[]))?;
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let container = lab.lan.container("c1")?;
    let netns = container.netns.path().to_string_lossy().into_owned();
    const EVIL: &str = "x\u{1b}[2Jy\nERROR z\r\u{7}";
    let pod = format!("K8S_POD_NAMESPACE={EVIL};K8S_POD_NAME={EVIL}");
    let evil_path = format!("{netns}{EVIL}");
    let usual = [
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", netns.as_str()),
        ("CNI_IFNAME", "eth0"),
    ];
    for (name, value) in [
        ("CNI_CONTAINERID", EVIL),
        ("CNI_NETNS", evil_path.as_str()),
        ("CNI_IFNAME", EVIL),
        ("CNI_ARGS", EVIL),
        ("CNI_ARGS", pod.as_str()),
    ] {
        for verb in ["ADD", "CHECK", "DEL"] {
            let env = [&usual[..], &[(name, value)]].concat();
            let call = lab
                .shim
                .start_with(verb, &env, lab.config.to_string().as_bytes())?;
            // Whether it is refused or not, this is for a person to read.
            if let Err(CallError::Cni { error, .. }) = call.wait() {
                assert!(is_plain(&error.to_string()), "{name}: {error:?}");
            }
            for args in [&["list", "-o", "wide"][..], &["events"], &["status"]] {
                let said = lab.daemon().operator(args)?;
                assert!(said.lines().all(is_plain), "{name}, {args:?}: {said:?}");
            }
        }
    }
    let log = lab.daemon().log().lines();
    let raw = log
        .iter()
        .find(|line| !is_plain(line) || line.starts_with("ERROR z"));
    assert_eq!(raw, None);
    assert!(!log.is_empty());
    Ok(())
}

/// Returns whether a terminal shows this as it is.
fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}
