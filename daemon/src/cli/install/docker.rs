//! Docker, which finds its plugins elsewhere: nothing is installed for it, it is served by the daemon if a variable says where.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use crate::cli::unit;

/// Where dockerd listens.
const SOCKET: &str = "/run/docker.sock";

/// The variable of the daemon's unit that says where Docker looks for plugins.
const VARIABLE: &str = "LEASEHOLD_DOCKER_PLUGIN_DIR";

/// How to serve it.
pub(super) const WAY: &str = "runs here, and leasehold does not serve it. If its containers are to have addresses of the LAN:
  echo LEASEHOLD_DOCKER_PLUGIN_DIR=/run/docker/plugins >> /etc/default/leasehold
  systemctl restart leasehold.service";

/// Returns whether dockerd runs, and the daemon's unit does not say where it looks for plugins.
pub(super) fn is_unserved() -> bool {
    listens() && !unit::of_the_host().contains_key(VARIABLE)
}

/// Returns whether dockerd listens where it does by default.
pub(in crate::cli) fn listens() -> bool {
    fs::metadata(SOCKET).is_ok_and(|file| file.file_type().is_socket())
}
