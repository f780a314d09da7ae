//! The kernel, and what the daemon may do with it.

use std::fs;

use super::finding::Finding;

/// The lowest supported version: the first in which namespaces have cookies.
const LEAST: (u32, u32) = (5, 14);

/// What the daemon needs, by the numbers of linux/capability.h.
const CAPABILITIES: [(u8, &str); 6] = [
    (21, "SYS_ADMIN"),
    (12, "NET_ADMIN"),
    (13, "NET_RAW"),
    (11, "NET_BROADCAST"),
    (10, "NET_BIND_SERVICE"),
    (19, "SYS_PTRACE"),
];

/// `daemon` is the daemon's process, if it runs.
pub(super) fn kernel(daemon: Option<u32>) -> Vec<Finding> {
    let running = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    vec![
        release(running.trim()),
        capabilities(effective(daemon), daemon),
    ]
}

/// Returns the effective capabilities of the daemon, or of this process.
fn effective(daemon: Option<u32>) -> u64 {
    let process = daemon.map_or("self".to_owned(), |id| id.to_string());
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or_default()
}

fn release(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().ok());
    let version = (numbers.next().flatten(), numbers.next().flatten());
    match version {
        (Some(major), Some(minor)) if (major, minor) < LEAST => {
            let way_out = format!("leasehold needs Linux {}.{} or later", LEAST.0, LEAST.1);
            Finding::failure("kernel", format!("Linux {release}"), way_out)
        }
        _ => Finding::ok("kernel", format!("Linux {release}")),
    }
}

fn capabilities(effective: u64, daemon: Option<u32>) -> Finding {
    let whose = match daemon {
        Some(pid) => format!("the daemon (process {pid})"),
        None => "this process".to_owned(),
    };
    let lacks = CAPABILITIES
        .iter()
        .filter(|(number, _)| effective & (1 << number) == 0);
    let lacks: Vec<_> = lacks.map(|(_, name)| *name).collect();
    if lacks.is_empty() {
        return Finding::ok("capabilities", format!("{whose} has all six"));
    }
    let found = format!("{whose} lacks {}", lacks.join(", "));
    match daemon {
        Some(_) => {
            let way_out = "start it with `systemctl start leasehold`, or add them to its container (reference.md, Capabilities)";
            Finding::failure("capabilities", found, way_out)
        }
        None => Finding::warning(
            "capabilities",
            found,
            "run `leasehold doctor` as root, or some faults stay unseen",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    #[test]
    fn a_kernel_is_as_old_as_its_release_says() {
        let table = [
            ("5.13.0-generic", Level::Failure),
            ("4.19.0", Level::Failure),
            ("5.14.0-rc1", Level::Ok),
            ("6.1.0-18-amd64", Level::Ok),
            ("7", Level::Ok),
        ];
        for (text, level) in table {
            assert_eq!(release(text).level, level, "{text}");
        }
    }

    #[test]
    fn capabilities_that_the_daemon_lacks_are_named() {
        let all = CAPABILITIES
            .iter()
            .fold(0, |all, (number, _)| all | 1 << number);
        assert_eq!(capabilities(all, Some(7)).level, Level::Ok);
        let found = capabilities(all & !(1 << 13), Some(7));
        assert_eq!(
            (found.level, found.found.as_str()),
            (Level::Failure, "the daemon (process 7) lacks NET_RAW")
        );
        assert_eq!(capabilities(0, None).level, Level::Warning);
    }
}
