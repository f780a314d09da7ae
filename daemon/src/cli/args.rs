//! Arguments and environment variables.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

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
}

/// How the daemon runs.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// The socket that the shim asks; not used when systemd passes one
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = "/run/cni/dhcp.sock")]
    pub(crate) socket: PathBuf,
    /// Where leases are kept over restarts
    #[arg(long, env = "LEASEHOLD_STATE_DIR", value_name = "DIR", default_value = "/var/lib/leasehold")]
    pub(crate) state_dir: PathBuf,
    /// Where the host's root directory is seen, when the daemon runs in a container: put before each netns path
    #[arg(long, env = "LEASEHOLD_HOST_PREFIX", value_name = "DIR", default_value = "/")]
    pub(crate) host_prefix: PathBuf,
    /// The shape of the log, on standard error
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// What is logged: a level, or `target=level` with commas between
    #[arg(long, env = "LEASEHOLD_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
}

/// How leases are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// As JSON, as the daemon gave it
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "PATH", default_value = "/run/cni/dhcp.sock")]
    pub(crate) socket: PathBuf,
}

/// The shape of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
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
        let Command::Daemon(args) = args.command else { panic!("{args:?}") };
        assert_eq!(args.socket, PathBuf::from("/run/cni/dhcp.sock"));
        assert_eq!(args.state_dir, PathBuf::from("/var/lib/leasehold"));
        assert_eq!(args.log_format, LogFormat::Text);
    }
}
