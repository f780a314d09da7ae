//! Shell completions and manual pages are made from the arguments, kept in `daemon/dist`, and compared here: the program itself
//! does not contain the code that makes them. `LEASEHOLD_WRITE=1 cargo test -p leasehold shipped` rewrites them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::args::Args;

/// Returns the files by their names below `daemon/dist`.
fn made() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut command = Args::command();
    command.build();
    for (shell, name) in [
        (Shell::Bash, "leasehold.bash"),
        (Shell::Zsh, "_leasehold"),
        (Shell::Fish, "leasehold.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "leasehold", &mut text);
        files.insert(format!("completions/{name}"), text);
    }
    let verbs: Vec<_> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    files.insert(
        "man/leasehold.8".to_owned(),
        page(command.clone(), "leasehold", &verbs),
    );
    for verb in command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        let name: &str = format!("leasehold-{}", verb.get_name()).leak();
        files.insert(
            format!("man/{name}.8"),
            page(verb.clone().name(name), verb.get_name(), &[]),
        );
    }
    files
}

/// What each command is used for: the command, what one types, and what that does.
const EXAMPLES: &str = "
    leasehold => leasehold status => says how the daemon is doing, and what needs attention
    leasehold => leasehold list => shows all leases
    daemon => leasehold daemon --timeout 60 --log debug => runs in the foreground, as without systemd
    list => leasehold list --network lan --state kept => shows the leases of one network that wait for a successor
    list => leasehold list --json => prints all that is known about each lease
    show => leasehold show shop/web-0 => shows the lease of a pod
    status => leasehold status || systemctl status leasehold => tells a script whether something needs attention
    events => leasehold events web --since 2h => shows what happened to one lease lately
    events => leasehold events --kind lost,expired -n 20 --follow => shows the last leases that were lost, and goes on
    renew => leasehold renew --network lan => extends all leases of a network, each in turn
    release => leasehold release 10.0.0.7 --force => gives back an address that a running container has
    doctor => leasehold doctor => checks this host, and says how to fix each fault
    capture => leasehold capture web -w web.pcapng --for 10m => writes the frames of one lease to a file
    log => leasehold log debug --for 5m => logs more for a while, without a restart
    exporter => leasehold exporter --listen 0.0.0.0:9467 --host node1.example => serves metrics and the page to others
    probe => leasehold probe eth0 --network lan => asks the servers of a LAN as a container of that network would
    probe => leasehold probe eth0 --netns web => asks from inside a container's namespace
    install => leasehold install --systemd => installs the plugin, and the daemon as a service
    uninstall => leasehold uninstall --systemd => removes both, and puts back what they replaced
";

/// The files that all commands know.
const FILES: [(&str, &str); 4] = [
    ("/run/cni/dhcp.sock", "the daemon's socket, for root"),
    (
        "/run/leasehold-read/leasehold.sock",
        "its read-only socket, for the group leasehold and for monitors",
    ),
    ("/var/lib/leasehold/leases.redb", "the store of leases"),
    (
        "/etc/default/leasehold",
        "variables for the daemon under systemd, which the other commands read too",
    ),
];

/// Returns a manual page: these are commands for administrators.
fn page(command: Command, verb: &str, verbs: &[&str]) -> Vec<u8> {
    let mut text = Vec::new();
    Man::new(command).section("8").render(&mut text).unwrap();
    let rows = EXAMPLES.lines().filter_map(|line| {
        let [of, what, why] = <[&str; 3]>::try_from(line.split(" => ").collect::<Vec<_>>()).ok()?;
        (of.trim() == verb).then_some((what, why))
    });
    let examples: Vec<_> = rows.collect();
    assert!(!examples.is_empty(), "{verb} has no example");
    let others = verbs
        .iter()
        .filter(|verb| **verb != "help")
        .map(|verb| format!("leasehold-{verb}"));
    let others: Vec<_> = match verb {
        "leasehold" => others.collect(),
        _ => vec!["leasehold".to_owned()],
    };
    let mut more = section("EXAMPLES", &examples) + &section("FILES", &FILES);
    let others: Vec<_> = others
        .iter()
        .map(|page| format!("\\fB{page}\\fR(8)"))
        .collect();
    more += &format!(".SH SEE ALSO\n{}\n", others.join(", ").replace('-', "\\-"));
    text.extend(more.into_bytes());
    text
}

/// Returns a section with an item for each row.
fn section(title: &str, rows: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.replace('-', "\\-").replace('\'', "\\(aq");
    let item =
        |(what, why): &(&str, &str)| format!(".TP\n\\fB{}\\fR\n{}\n", escaped(what), escaped(why));
    format!(".SH {title}\n{}", rows.iter().map(item).collect::<String>())
}

#[test]
fn what_is_shipped_is_made_from_the_arguments() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist");
    let made = made();
    if env::var_os("LEASEHOLD_WRITE").is_some() {
        for (file, text) in &made {
            fs::create_dir_all(dist.join(file).parent().unwrap()).unwrap();
            fs::write(dist.join(file), text).unwrap();
        }
    }
    let again = "run LEASEHOLD_WRITE=1 cargo test -p leasehold shipped";
    for (file, text) in &made {
        let kept = fs::read(dist.join(file)).unwrap_or_default();
        assert!(
            kept == *text,
            "daemon/dist/{file} is not what the arguments make: {again}"
        );
    }
    let folders = ["completions", "man"].map(|folder| dist.join(folder));
    let kept = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let strange: Vec<PathBuf> = kept
        .map(|entry| entry.unwrap().path())
        .filter(|path| !made.keys().any(|file| path.ends_with(file)))
        .collect();
    assert!(strange.is_empty(), "nothing makes {strange:?}: remove them");
}
