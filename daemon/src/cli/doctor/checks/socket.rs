//! The daemon's socket, and whether anybody answers there.

use leasehold_api::control::Trouble;

use crate::cli::client::ClientError;
use crate::cli::doctor::facts::{Socket, Standing};
use crate::cli::doctor::finding::Finding;
use crate::log::chain;
use crate::owner::Owner;

pub(in crate::cli::doctor) fn socket(socket: &Socket) -> Vec<Finding> {
    let path = socket.path.display();
    let mut findings = Vec::new();
    match &socket.found {
        None => {
            let way_out = "systemctl enable --now leasehold.socket leasehold.service, or start `leasehold daemon`";
            return vec![Finding::failure(
                "socket",
                format!("there is none at {path}"),
                way_out,
            )];
        }
        Some(Standing {
            is_socket: false, ..
        }) => {
            let way_out = format!("remove it: {path} must be free for the daemon's socket");
            return vec![Finding::failure(
                "socket",
                format!("{path} is not a socket"),
                way_out,
            )];
        }
        Some(standing) if standing.is_open_to_others() => findings.push(Finding::failure(
            "socket",
            format!(
                "users other than root may use {path} (mode {:04o}, owner {})",
                standing.mode & 0o7777,
                standing.owner
            ),
            format!("chown root: {path} && chmod 600 {path}"),
        )),
        Some(_) => {}
    }
    if let Some(directory) = socket
        .directory
        .as_ref()
        .filter(|directory| directory.is_writable_by_others())
    {
        let parent = socket.path.parent().unwrap_or(&socket.path).display();
        let found = format!(
            "users other than root may write to {parent} (mode {:04o}): DELs are not kept there",
            directory.mode & 0o7777
        );
        findings.push(Finding::failure(
            "socket",
            found,
            format!("chown root: {parent} && chmod 755 {parent}"),
        ));
    }
    findings.push(match &socket.answer {
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
                Owner::of(socket.process)
            ),
            "systemctl disable --now cni-dhcp.service cni-dhcp.socket, or stop whatever else starts it; then systemctl restart \
             leasehold.socket leasehold.service: leasehold adopts its containers",
        ),
        Err(other) => Finding::failure(
            "socket",
            chain(other),
            format!(
                "{} answers at {path}: stop it, and start a leasehold daemon of this version",
                Owner::of(socket.process)
            ),
        ),
    });
    findings
}

/// Returns what the daemon says is wrong, in its words: it looks at every link that a lease or a Docker network uses.
pub(in crate::cli::doctor) fn troubles(troubles: &[Trouble]) -> Vec<Finding> {
    let finding = |trouble: &Trouble| {
        let sentence = trouble.sentence.clone();
        let remedy = trouble.remedy.clone();
        if trouble.grave {
            Finding::failure("daemon", sentence, remedy)
        } else {
            Finding::warning("daemon", sentence, remedy)
        }
    };
    troubles.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cli::doctor::finding::Level;

    fn answered(error: fn(PathBuf) -> ClientError) -> Finding {
        let standing = |mode, is_socket| {
            Some(Standing {
                mode,
                owner: 0,
                is_socket,
            })
        };
        let facts = Socket {
            path: "/run/cni/dhcp.sock".into(),
            found: standing(0o600, true),
            directory: standing(0o755, false),
            answer: Err(error("/run/cni/dhcp.sock".into())),
            process: Some(std::process::id()),
        };
        let mut found = socket(&facts);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The other faults are in `daemon/tests/daemon/doctor.rs`, made for real.
    #[test]
    fn who_answers_in_place_of_the_daemon_is_named() {
        let old = answered(ClientError::OldDaemon).found;
        assert!(
            old.contains(&format!("process {} (", std::process::id()))
                && old.contains("the plugin that leasehold replaces"),
            "{old}"
        );
        assert_eq!(answered(ClientError::Denied).level, Level::Warning);
    }
}
