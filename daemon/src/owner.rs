//! Names the process that is in the way: the holder of a lock, the owner of a socket.

use std::fmt;
use std::fs;

/// A process, as an operator would look for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its id; `None` if neither the kernel nor a file says.
    pid: Option<u32>,
    /// Its name (`/proc/PID/comm`), while it lives.
    comm: Option<String>,
}

impl Owner {
    /// Looks a process up. The kernel gives pid 0 for a process in another PID namespace.
    pub(crate) fn of(pid: Option<u32>) -> Self {
        let pid = pid.filter(|pid| *pid != 0);
        let comm = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        Self {
            pid,
            comm: comm.map(|comm| comm.trim_end().escape_debug().to_string()),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.comm) {
            (Some(pid), Some(comm)) => write!(f, "process {pid} ({comm})"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => f.write_str("a process that cannot be seen from here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_named_with_its_command() {
        let me = Owner::of(Some(std::process::id()));
        assert!(
            me.to_string()
                .starts_with(&format!("process {} (", std::process::id())),
            "{me}"
        );
    }

    #[test]
    fn a_process_of_another_pid_namespace_has_no_number() {
        assert_eq!(
            Owner::of(Some(0)).to_string(),
            "a process that cannot be seen from here"
        );
    }
}
