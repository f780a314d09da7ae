//! Arguments and environment variables.

mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use leasehold_api::control::{self, Which};
use leasehold_core::event::EventKind;
use leasehold_core::wire::Mac;

use self::values::{directory, moment, net, netns, seconds, span};
use crate::log::{self, LogFormat};

// Defaults of flags that several commands have.
const SOCKET: &str = "/run/cni/dhcp.sock";
const STATE_DIR: &str = "/var/lib/leasehold";
const RUNTIME_DIR: &str = "/run/leasehold";
const DOCKER_NETNS_DIR: &str = "/run/docker/netns";
const CNI_CONF_DIR: &str = "/etc/cni/net.d";

/// What separates the values of a list.
const COMMA: char = ',';

/// One daemon per host that holds the DHCP leases of its containers.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold leases until told to stop
    Daemon(DaemonArgs),
    /// Show all leases
    List(ListArgs),
    /// Show everything about one lease: its server and options, what is on its interface, its last events
    ///
    /// Exit codes: 0 if it is shown, 4 if no lease or several match the name, 1 if the daemon could not be asked.
    Show(ShowArgs),
    /// Show how the daemon is doing, and what needs attention
    ///
    /// Exit codes: 0 if nothing needs attention, 1 if something does, or the daemon could not be asked.
    Status(StatusArgs),
    /// Show what happened to leases: the last 10,000 events
    Events(EventsArgs),
    /// Extend leases now, each in turn
    ///
    /// Exit codes: 0 if each was extended, 3 if one was not, 4 if no lease or several match the name, 1 if the daemon could not be
    /// asked.
    Renew(OrderArgs),
    /// Give leases back to their servers
    ///
    /// Exit codes: 0 if each is being given back, 3 if one is not, 4 if no lease or several match the name, 1 if the daemon
    /// could not be asked.
    Release(ReleaseArgs),
    /// Check this host as an installer would: one line per check, and how to fix each fault
    ///
    /// Exit codes: 0 if all is well, 3 if there are warnings, 4 if there is a failure, 1 if nothing can be printed.
    Doctor(DoctorArgs),
    /// Write the DHCP and ARP frames of leases to a file that Wireshark opens, from now until stopped
    Capture(CaptureArgs),
    /// Show what the daemon logs, or change it for a while
    Log(LogArgs),
    /// Serve metrics for Prometheus, and a web page, over TCP; needs no privilege
    Exporter(ExporterArgs),
    /// Ask the DHCP servers of a LAN what they offer, without taking it; needs no daemon
    ///
    /// Exit codes: 0 if a server offers an address that the daemon would take, 3 if none answered, 4 if there were answers but
    /// none that the daemon would take, 1 if nothing could be asked.
    Probe(ProbeArgs),
    /// Put the plugin where this host's runtimes look for it
    Install(InstallArgs),
    /// Remove the plugin, and put back what it replaced
    Uninstall(UninstallArgs),
}

/// How the daemon runs.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// The socket that the shim asks; not used when systemd passes one
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
    /// Docker's plugin directory (/run/docker/plugins), for the drivers leasehold and leasehold-ipvlan
    #[arg(long, env = "LEASEHOLD_DOCKER_PLUGIN_DIR", value_name = "DIR")]
    pub(crate) docker_plugin_dir: Option<PathBuf>,
    /// Whether Docker gives each container of the driver leasehold an Ethernet address; false for ipvlan, if Docker runs the
    /// daemon as a plugin, which has only one driver
    #[arg(
        long,
        env = "LEASEHOLD_DOCKER_REQUIRES_MAC",
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set
    )]
    pub(crate) docker_requires_mac: bool,
    /// A second, read-only socket for monitors; not used when systemd passes one
    #[arg(long, env = "LEASEHOLD_READ_SOCKET", value_name = "PATH")]
    pub(crate) read_socket: Option<PathBuf>,
    /// The id of the group that may connect to that socket; by default the daemon's own group
    #[arg(long, env = "LEASEHOLD_READ_GID", value_name = "GID")]
    pub(crate) read_gid: Option<u32>,
    /// Where Docker keeps its containers' network namespaces
    #[arg(long, env = "LEASEHOLD_DOCKER_NETNS_DIR", value_name = "DIR", default_value = DOCKER_NETNS_DIR)]
    pub(crate) docker_netns_dir: PathBuf,
    /// Where leases are stored
    #[arg(long, env = "LEASEHOLD_STATE_DIR", value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Where leases are stored instead while a daemon with another socket has that directory, and from then on
    #[arg(
        long,
        env = "LEASEHOLD_OTHER_STATE_DIR",
        value_name = "DIR",
        hide = true
    )]
    pub(crate) other_state_dir: Option<PathBuf>,
    /// Where the name servers of each lease are published, in a file like /etc/resolv.conf
    #[arg(long, env = "LEASEHOLD_RUNTIME_DIR", value_name = "DIR", default_value = RUNTIME_DIR)]
    pub(crate) runtime_dir: PathBuf,
    /// Where a daemon in a container sees the host's root directory; it is put before each netns path
    #[arg(
        long,
        env = "LEASEHOLD_HOST_PREFIX",
        value_name = "DIR",
        default_value = "/"
    )]
    pub(crate) host_prefix: PathBuf,
    /// Where to write the process id; the file is removed at the end
    #[arg(long, env = "LEASEHOLD_PID_FILE", value_name = "PATH")]
    pub(crate) pid_file: Option<PathBuf>,
    /// How long an ADD may take, in seconds, unless its network says otherwise
    #[arg(long, env = "LEASEHOLD_TIMEOUT", value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Ask DHCP servers to answer by broadcast, unless a network says otherwise
    #[arg(long, env = "LEASEHOLD_BROADCAST")]
    pub(crate) broadcast: bool,
    /// Where libcni caches attachments: a daemon without leases adopts the containers in there; empty for none
    #[arg(
        long,
        env = "LEASEHOLD_CNI_CACHE",
        value_name = "DIR,…",
        value_delimiter = ',',
        value_parser = directory,
        default_value = "/var/lib/cni/results,/var/lib/cni/multus/results"
    )]
    pub(crate) cni_cache: Vec<PathBuf>,
    /// The format of the log, on standard error
    #[arg(
        long,
        env = "LEASEHOLD_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,
    /// What is logged: a level, or `target=level`, comma-separated
    #[arg(long, env = "LEASEHOLD_LOG", value_name = "FILTER", default_value = log::DEFAULT)]
    pub(crate) log: String,
}

/// Which columns are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Columns {
    /// The most useful ones
    Few,
    /// All
    Wide,
}

/// How leases are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Show local ranges instead: the size of each, and how many addresses are taken. Only those of a fallback need a daemon
    #[arg(long, conflicts_with_all = ["WhichArgs", "output"])]
    pub(crate) ranges: bool,
    /// Where CNI networks are configured, for --ranges
    #[arg(long, env = "LEASEHOLD_CNI_CONF_DIR", value_name = "DIR", default_value = CNI_CONF_DIR)]
    pub(crate) cni_conf_dir: PathBuf,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Show all columns
    #[arg(
        long,
        short,
        value_name = "FORM",
        default_value = "few",
        hide_default_value = true
    )]
    pub(crate) output: Columns,
    /// Refresh the list every second, in place
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

/// Which leases are meant.
#[derive(Debug, clap::Args)]
pub(crate) struct WhichArgs {
    /// Only leases of this network
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Only those whose container's id begins like this
    #[arg(long, value_name = "ID")]
    pub(crate) container: Option<String>,
    /// Only those with this address, or in this subnet
    #[arg(long, value_name = "ADDRESS", value_parser = net)]
    pub(crate) address: Option<IpNet>,
    /// Only those in this state
    #[arg(long, value_name = "STATE", ignore_case = true, value_parser = control::STATES)]
    pub(crate) state: Option<String>,
    /// Only those that CNI, or Docker, asked for
    #[arg(long = "caller", alias = "door", value_name = "CALLER", value_parser = ["cni", "docker"])]
    pub(crate) door: Option<String>,
}

impl WhichArgs {
    /// Returns it as the daemon's query.
    pub(crate) fn which(&self) -> Which {
        Which {
            name: None,
            network: self.network.clone(),
            container: self.container.clone(),
            address: self.address,
            state: self.state.clone(),
            door: self.door.clone(),
        }
    }
}

/// Which leases an order is for.
#[derive(Debug, clap::Args)]
pub(crate) struct OrderArgs {
    /// The lease's attachment, address, pod or host name, or the beginning of its container's id
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// All leases
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Do not ask for confirmation of --all
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

/// Which leases are given back.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    /// Also leases of living containers: their addresses are taken off the interfaces first
    #[arg(long)]
    pub(crate) force: bool,
}

/// Which lease is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The lease's attachment, address, pod or host name, or the beginning of its container's id
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

/// How the daemon's status is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

/// How events are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Go on with new events, even when the daemon restarts
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print one JSON object per line, as the daemon gave it
    #[arg(long)]
    pub(crate) json: bool,
    /// Only events about this lease: its attachment, address, pod or host name, or the beginning of its container's id
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only events about leases of this network
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Only events of these kinds
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = EventKind::ALL.map(EventKind::name))]
    pub(crate) kind: Vec<String>,
    /// Only events since this long ago (90s, 10m, 2h), or since a time such as 2026-11-28T06:00
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<String>,
    /// Only the last N of them; with --follow, the last N and new ones
    #[arg(long, short, value_name = "N")]
    pub(crate) number: Option<usize>,
    /// Only events after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

/// What is served, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct ExporterArgs {
    /// Where to listen
    #[arg(
        long,
        env = "LEASEHOLD_EXPORTER_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:9467"
    )]
    pub(crate) listen: SocketAddr,
    /// The names by which browsers may ask for the page, besides addresses and localhost
    #[arg(long, env = "LEASEHOLD_EXPORTER_HOST", value_name = "NAME,…", value_delimiter = COMMA)]
    pub(crate) host: Vec<String>,
    /// The daemon's read-only socket
    #[arg(
        long,
        env = "LEASEHOLD_READ_SOCKET",
        value_name = "PATH",
        default_value = "/run/leasehold-read/leasehold.sock"
    )]
    pub(crate) socket: PathBuf,
}

/// What to check on this host.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
    /// Where leases are stored
    #[arg(long, env = "LEASEHOLD_STATE_DIR", value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Where name servers are published
    #[arg(long, env = "LEASEHOLD_RUNTIME_DIR", value_name = "DIR", default_value = RUNTIME_DIR)]
    pub(crate) runtime_dir: PathBuf,
    /// Docker's plugin directory, if the daemon serves Docker
    #[arg(long, env = "LEASEHOLD_DOCKER_PLUGIN_DIR", value_name = "DIR")]
    pub(crate) docker_plugin_dir: Option<PathBuf>,
    /// Where the daemon looks for the network namespaces of Docker's containers
    #[arg(long, env = "LEASEHOLD_DOCKER_NETNS_DIR", value_name = "DIR", default_value = DOCKER_NETNS_DIR)]
    pub(crate) docker_netns_dir: PathBuf,
    /// Where runtimes look for CNI plugins; by default what their configuration says, and the well-known places
    #[arg(long, env = "LEASEHOLD_CNI_BIN_DIR", value_name = "DIR,…", value_delimiter = COMMA)]
    pub(crate) cni_bin_dir: Vec<PathBuf>,
    /// Where CNI networks are configured
    #[arg(long, env = "LEASEHOLD_CNI_CONF_DIR", value_name = "DIR", default_value = CNI_CONF_DIR)]
    pub(crate) cni_conf_dir: PathBuf,
    /// Print all findings as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which frames are written, where, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct CaptureArgs {
    /// The lease's attachment, which need not have a lease yet, or its address, pod or host name, or the beginning of its
    /// container's id
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(crate) name: Option<String>,
    /// The frames of all attachments
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// The file, in the format pcapng; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// For how long: 90s, 10m, 2h; without it, until interrupted
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub(crate) limit: Option<Duration>,
    /// The longest file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 100)]
    pub(crate) size: u64,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

/// What is logged.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// What to log: a level, or `target=level`, comma-separated; without it, what is logged is shown
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// For how long: 90s, 10m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = span)]
    pub(crate) limit: Duration,
    /// Log what the daemon logged when it started
    #[arg(long, conflicts_with = "filter")]
    pub(crate) reset: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,
}

/// Where and how to ask servers.
#[derive(Debug, clap::Args)]
pub(crate) struct ProbeArgs {
    /// The link to ask on: the parent or bridge of containers, or an interface
    #[arg(value_name = "LINK")]
    pub(crate) link: String,
    /// The network namespace of the link, by its path or by its name in `ip netns`; the host's by default
    #[arg(long, value_name = "NETNS", value_parser = netns)]
    pub(crate) netns: Option<PathBuf>,
    /// The hardware address to ask for; by default the link's own in a namespace, else one derived from it
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<Mac>,
    /// The VLAN on the link
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        conflicts_with = "netns",
        value_parser = clap::value_parser!(u16).range(0..=4094)
    )]
    pub(crate) vlan: u16,
    /// How many seconds to wait for answers
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = seconds)]
    pub(crate) wait: Duration,
    /// Ask as this CNI network does, and say which servers it believes
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Where CNI networks are configured
    #[arg(long, env = "LEASEHOLD_CNI_CONF_DIR", value_name = "DIR", default_value = CNI_CONF_DIR)]
    pub(crate) cni_conf_dir: PathBuf,
    /// Print everything as one JSON object, at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is installed, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    /// The directory for CNI plugins, instead of those that the host's runtimes use; made if it is missing
    #[arg(long, env = "LEASEHOLD_CNI_BIN_DIR", value_name = "DIR,…", value_delimiter = COMMA)]
    pub(crate) cni_bin_dir: Vec<PathBuf>,
    /// Install the plugin host-local too
    #[arg(long)]
    pub(crate) host_local: bool,
    /// Replace plugins that are not leasehold's, and keep them for `leasehold uninstall`
    #[arg(long)]
    pub(crate) force: bool,
    /// Only replace what was installed before, as after an upgrade
    #[arg(long)]
    pub(crate) update: bool,
    /// Install and start the daemon as a systemd service
    #[arg(long)]
    pub(crate) systemd: bool,
    /// The daemon's store of leases: nothing is changed if a later release wrote it
    #[arg(long, env = "LEASEHOLD_STATE_DIR", value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// The host's root directory, for a container or an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

/// What is removed.
#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    /// The directory for CNI plugins, instead of those that the host's runtimes use
    #[arg(long, env = "LEASEHOLD_CNI_BIN_DIR", value_name = "DIR,…", value_delimiter = COMMA)]
    pub(crate) cni_bin_dir: Vec<PathBuf>,
    /// Stop the systemd service and remove it
    #[arg(long)]
    pub(crate) systemd: bool,
    /// The host's root directory, for a container or an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_daemon_needs_no_argument() {
        let args = Args::try_parse_from(["leasehold", "daemon"]).unwrap();
        let Command::Daemon(args) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(args.socket, PathBuf::from("/run/cni/dhcp.sock"));
        assert_eq!(
            (args.docker_plugin_dir, args.docker_requires_mac),
            (None, true)
        );
        assert_eq!(args.state_dir, PathBuf::from("/var/lib/leasehold"));
        assert_eq!(args.runtime_dir, PathBuf::from("/run/leasehold"));
        assert_eq!(args.log_format, LogFormat::Text);
        assert_eq!(
            (args.timeout, args.broadcast, args.pid_file),
            (Duration::from_secs(30), false, None)
        );
        assert_eq!(
            args.cni_cache,
            ["/var/lib/cni/results", "/var/lib/cni/multus/results"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_daemon_may_have_no_cache_to_adopt_from() {
        let args = Args::try_parse_from(["leasehold", "daemon", "--cni-cache", ""]).unwrap();
        let Command::Daemon(args) = args.command else {
            panic!("{args:?}")
        };
        assert!(
            args.cni_cache
                .iter()
                .all(|cache| cache.as_os_str().is_empty()),
            "{:?}",
            args.cni_cache
        );
    }

    #[test]
    fn a_state_that_is_none_is_refused() {
        let of = |state| Args::try_parse_from(["leasehold", "list", "--state", state]);
        assert!(of("bound").is_ok() && of("KEPT").is_ok());
        let refused = of("XYZ").unwrap_err().to_string();
        assert!(refused.contains("RELEASING"), "{refused}");
    }

    #[test]
    fn a_command_that_is_nearly_one_is_named() {
        let refused = Args::try_parse_from(["leasehold", "lst"])
            .unwrap_err()
            .to_string();
        assert!(refused.contains("'list'"), "{refused}");
    }
}
