//! The daemon, asked at its socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use leasehold_api::control::{BINDINGS, STATUS, Status, Trouble};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::Socket;
use super::files::standing;
use crate::cli::client::{get_within, read};

/// How long it may take to answer. A list of ten thousand leases takes a tenth of a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

pub(in crate::cli::doctor) fn socket(path: &Path) -> Socket {
    let answer = get_within(path, BINDINGS, PATIENCE).and_then(|body| read(&body));
    Socket {
        path: path.to_owned(),
        found: standing(path),
        directory: path.parent().and_then(standing),
        answer,
        process: peer(path),
    }
}

/// Returns the process that listens at a socket, unless it is in a PID namespace that is not seen from here.
fn peer(path: &Path) -> Option<u32> {
    let peer = UnixStream::connect(path).ok()?;
    let credentials = getsockopt(&peer, PeerCredentials).ok()?;
    u32::try_from(credentials.pid()).ok().filter(|pid| *pid > 0)
}

/// Returns what the daemon says is wrong. While it waits for its store it takes longer to answer than for its leases.
pub(in crate::cli::doctor) fn troubles(socket: &Path) -> Vec<Trouble> {
    let answer = get_within(socket, STATUS, 5 * PATIENCE).ok();
    let status = answer.and_then(|body| serde_json::from_slice::<Status>(&body).ok());
    status.map(|status| status.troubles).unwrap_or_default()
}
