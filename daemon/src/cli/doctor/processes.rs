//! The processes of the host, as far as they matter.

use std::fs;
use std::path::PathBuf;

/// A process and its arguments.
#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    args: Vec<String>,
}

impl Process {
    fn is(&self, program: &str) -> bool {
        self.args.first().and_then(|path| path.rsplit('/').next()) == Some(program)
    }

    fn is_daemon(&self, program: &str) -> bool {
        self.is(program) && self.args.get(1).is_some_and(|arg| arg == "daemon")
    }
}

/// Returns the processes that this one sees, in order.
pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut all: Vec<_> = ids.filter_map(process).collect();
    all.sort_by_key(|process| process.id);
    all
}

fn process(id: u32) -> Option<Process> {
    let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let args = line
        .split(|byte| *byte == 0)
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect();
    Some(Process { id, args })
}

/// Returns our daemon, if that is the process that answers at the socket. It may be systemd, which made the socket.
pub(super) fn daemon(processes: &[Process], answers: Option<u32>) -> Option<u32> {
    let is_ours =
        |process: &&Process| Some(process.id) == answers && process.is_daemon("leasehold");
    processes.iter().find(is_ours).map(|process| process.id)
}

/// Returns the processes of the replaced plugin's daemons. Ours is named `leasehold` even if it was started as `dhcp daemon`.
pub(super) fn incumbents(processes: &[Process]) -> Vec<u32> {
    processes
        .iter()
        .filter(|process| process.is_daemon("dhcp"))
        .map(|process| process.id)
        .collect()
}

/// Returns whether these are the processes of a container whose first is the daemon.
pub(super) fn are_of_a_container(processes: &[Process]) -> bool {
    let first = processes.first();
    first.is_some_and(|process| process.id == 1 && process.is_daemon("leasehold"))
}

/// Returns the `exec-root` of dockerd's command line, if dockerd runs: `Some(None)` if the command line has none.
pub(super) fn exec_root(processes: &[Process]) -> Option<Option<PathBuf>> {
    let dockerd = processes.iter().find(|process| process.is("dockerd"))?;
    let mut args = dockerd.args.iter();
    let said = args.by_ref().find_map(|arg| {
        arg.strip_prefix("--exec-root")
            .map(|rest| rest.strip_prefix('=').map(str::to_owned))
    });
    Some(
        said.and_then(|said| said.or_else(|| args.next().cloned()))
            .map(PathBuf::from),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> [Process; 1] {
        [Process {
            id: 7,
            args: line.split(' ').map(str::to_owned).collect(),
        }]
    }

    #[test]
    fn processes_are_known_by_their_command_lines() {
        assert_eq!(
            incumbents(&run("/opt/cni/bin/dhcp daemon -hostprefix /host")),
            [7]
        );
        assert_eq!(incumbents(&run("dhcp")), [0; 0]);
        assert_eq!(incumbents(&run("/usr/bin/leasehold daemon")), [0; 0]);
        let [daemon] = run("/usr/bin/leasehold daemon");
        assert!(!are_of_a_container(&[daemon]));
        let [daemon] = run("/usr/bin/leasehold daemon");
        assert!(are_of_a_container(&[Process { id: 1, ..daemon }]));
        let root =
            |line| exec_root(&run(line)).map(|said| said.map(|path| path.display().to_string()));
        assert_eq!(
            root("/usr/bin/dockerd --exec-root=/mnt/run -D"),
            Some(Some("/mnt/run".to_owned()))
        );
        assert_eq!(
            root("dockerd --exec-root /mnt/run"),
            Some(Some("/mnt/run".to_owned()))
        );
        assert_eq!(root("dockerd -H fd://"), Some(None));
        assert_eq!(root("containerd"), None);
    }
}
