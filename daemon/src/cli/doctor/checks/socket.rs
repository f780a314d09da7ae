//! The daemon's socket, and whether anybody answers there.

use leasehold_api::control::Trouble;

use crate::cli::doctor::facts::{Answer, Socket, Standing};
use crate::cli::doctor::finding::Finding;
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
        Answer::Leases(bindings) => {
            let leases = match bindings.bindings.len() {
                1 => "1 lease".to_owned(),
                count => format!("{count} leases"),
            };
            Finding::ok(
                "socket",
                format!("the daemon at {path} answers; it has {leases}"),
            )
        }
        Answer::Nobody => Finding::failure(
            "socket",
            format!("nobody listens at {path}"),
            "systemctl start leasehold.service; journalctl -u leasehold says why it ended",
        ),
        Answer::Silent => Finding::failure(
            "socket",
            format!("the daemon at {path} accepts calls, but does not answer"),
            "systemctl restart leasehold.service: its leases stay",
        ),
        Answer::Denied => Finding::warning(
            "socket",
            format!("this user may not ask the daemon at {path}"),
            "run `leasehold doctor` as root to see the rest",
        ),
        Answer::OldDaemon => Finding::failure(
            "socket",
            format!(
                "{}, the daemon of the plugin that leasehold replaces, answers at {path}",
                Owner::of(socket.process)
            ),
            "systemctl disable --now cni-dhcp.service cni-dhcp.socket, or stop whatever else starts it; then systemctl restart \
             leasehold.socket leasehold.service: leasehold adopts its containers",
        ),
        Answer::Other(said) => Finding::failure(
            "socket",
            said.clone(),
            format!(
                "{} answers there: stop it, and start a leasehold daemon of this version",
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
    use super::*;
    use crate::cli::doctor::finding::Level;

    fn at(mode: u32, answer: Answer) -> Socket {
        let standing = |mode, is_socket| {
            Some(Standing {
                mode,
                owner: 0,
                is_socket,
            })
        };
        Socket {
            path: "/run/cni/dhcp.sock".into(),
            found: standing(mode, true),
            directory: standing(0o755, false),
            answer,
            process: Some(std::process::id()),
        }
    }

    #[test]
    fn a_socket_of_roots_that_answers_is_in_order() {
        let found = socket(&at(0o600, Answer::Leases(Box::default())));
        assert_eq!(
            found.iter().map(|found| found.level).collect::<Vec<_>>(),
            [Level::Ok]
        );
    }

    #[test]
    fn each_fault_of_a_socket_is_named() {
        let missing = Socket {
            found: None,
            ..at(0o600, Answer::Nobody)
        };
        let shared = Socket {
            directory: Some(Standing {
                mode: 0o777,
                owner: 0,
                is_socket: false,
            }),
            ..at(0o600, Answer::Silent)
        };
        let table = [
            (missing, &["there is none at"][..]),
            (
                at(0o666, Answer::Nobody),
                &["users other than root may use", "nobody listens"],
            ),
            (shared, &["may write to /run/cni", "does not answer"]),
        ];
        let old = socket(&at(0o600, Answer::OldDaemon));
        assert!(
            old[0]
                .found
                .contains(&format!("process {} (", std::process::id()))
                && old[0].found.contains("the plugin that leasehold replaces"),
            "{old:?}"
        );
        let denied = socket(&at(0o600, Answer::Denied));
        assert_eq!(denied[0].level, Level::Warning);
        for (facts, texts) in table {
            let found = socket(&facts);
            assert_eq!(found.len(), texts.len(), "{found:?}");
            for (found, text) in found.iter().zip(texts) {
                assert!(
                    found.level == Level::Failure && found.found.contains(text),
                    "{found:?}"
                );
            }
        }
    }
}
