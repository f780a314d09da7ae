//! The daemon's socket, and whether anybody answers there.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use leasehold_api::control::{BINDINGS, Bindings, STATUS, Status, Trouble};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::directory::is_writable_by_others;
use super::finding::Finding;
use crate::cli::client::{ClientError, get_within, read};
use crate::log::chain;
use crate::owner::Owner;

/// How long an answer may take. A list of ten thousand leases takes a tenth of a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the daemon for its leases.
pub(super) fn ask(socket: &Path) -> Result<Bindings, ClientError> {
    get_within(socket, BINDINGS, PATIENCE).and_then(|body| read(&body))
}

/// Returns the process that listens at a socket, unless it is in a PID namespace that is not seen from here.
pub(super) fn peer(socket: &Path) -> Option<u32> {
    let peer = UnixStream::connect(socket).ok()?;
    let credentials = getsockopt(&peer, PeerCredentials).ok()?;
    u32::try_from(credentials.pid()).ok().filter(|pid| *pid > 0)
}

/// Checks who may use the socket, and who answers there: `process`, as far as that is seen from here.
pub(super) fn socket(
    socket: &Path,
    answer: &Result<Bindings, ClientError>,
    process: Option<u32>,
) -> Vec<Finding> {
    let path = socket.display();
    let Ok(found) = fs::metadata(socket) else {
        let way_out = "systemctl enable --now leasehold.socket leasehold.service, or start `leasehold daemon`";
        let found = format!("there is none at {path}");
        return vec![Finding::failure("socket", found, way_out)];
    };
    if !found.file_type().is_socket() {
        let way_out = format!("remove it: {path} must be free for the daemon's socket");
        let found = format!("{path} is not a socket");
        return vec![Finding::failure("socket", found, way_out)];
    }
    let mut findings = Vec::new();
    if found.uid() != 0 || found.mode() & 0o077 != 0 {
        let found = format!(
            "users other than root may use {path} (mode {:04o}, owner {})",
            found.mode() & 0o7777,
            found.uid()
        );
        let way_out = format!("chown root: {path} && chmod 600 {path}");
        findings.push(Finding::failure("socket", found, way_out));
    }
    let parent = socket.parent().unwrap_or(socket);
    if let Ok(found) = fs::metadata(parent)
        && is_writable_by_others(&found)
    {
        let parent = parent.display();
        let found = format!(
            "users other than root may write to {parent} (mode {:04o}): DELs are not kept there",
            found.mode() & 0o7777
        );
        let way_out = format!("chown root: {parent} && chmod 755 {parent}");
        findings.push(Finding::failure("socket", found, way_out));
    }
    findings.push(answered(socket, answer, process));
    findings
}

fn answered(
    socket: &Path,
    answer: &Result<Bindings, ClientError>,
    process: Option<u32>,
) -> Finding {
    let path = socket.display();
    match answer {
        Ok(bindings) => {
            let leases = match bindings.bindings.len() {
                1 => "1 lease".to_owned(),
                count => format!("{count} leases"),
            };
            Finding::ok(
                "socket",
                format!("the daemon at {path} answers; it has {leases}"),
            )
        }
        Err(ClientError::NoDaemon(_)) => Finding::failure(
            "socket",
            format!("nobody listens at {path}"),
            "systemctl start leasehold.service; journalctl -u leasehold says why it ended",
        ),
        Err(ClientError::Io { .. }) => Finding::failure(
            "socket",
            format!("the daemon at {path} accepts calls, but does not answer"),
            "systemctl restart leasehold.service: its leases stay",
        ),
        Err(ClientError::Denied(_)) => Finding::warning(
            "socket",
            format!("this user may not ask the daemon at {path}"),
            "run `leasehold doctor` as root to see the rest",
        ),
        Err(ClientError::OldDaemon(_)) => Finding::failure(
            "socket",
            format!(
                "{}, the daemon of the plugin that leasehold replaces, answers at {path}",
                Owner::of(process)
            ),
            "systemctl disable --now cni-dhcp.service cni-dhcp.socket, or stop whatever else starts it; then systemctl restart \
             leasehold.socket leasehold.service: leasehold adopts its containers",
        ),
        Err(other) => Finding::failure(
            "socket",
            chain(other),
            format!(
                "{} answers at {path}: stop it, and start a leasehold daemon of this version",
                Owner::of(process)
            ),
        ),
    }
}

/// Returns what the daemon says is wrong, in its words: it looks at every link that a lease or a Docker network uses. While it waits
/// for its store it takes longer to answer than for its leases.
pub(super) fn troubles(socket: &Path) -> Vec<Finding> {
    let answer = get_within(socket, STATUS, 5 * PATIENCE);
    let status = answer.and_then(|body| read::<Status>(&body));
    let finding = |trouble: Trouble| match trouble.grave {
        true => Finding::failure("daemon", trouble.sentence, trouble.remedy),
        false => Finding::warning("daemon", trouble.sentence, trouble.remedy),
    };
    let troubles = status.map(|status| status.troubles).unwrap_or_default();
    troubles.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cli::doctor::finding::Level;

    fn fails(error: fn(PathBuf) -> ClientError) -> Finding {
        let path = "/run/cni/dhcp.sock";
        answered(
            path.as_ref(),
            &Err(error(path.into())),
            Some(std::process::id()),
        )
    }

    /// The other faults are in `daemon/tests/daemon/doctor.rs`, made for real.
    #[test]
    fn who_answers_in_place_of_the_daemon_is_named() {
        let old = fails(ClientError::OldDaemon).found;
        assert!(
            old.contains(&format!("process {} (", std::process::id()))
                && old.contains("the plugin that leasehold replaces"),
            "{old}"
        );
        assert_eq!(fails(ClientError::Denied).level, Level::Warning);
    }
}
