//! A Docker registry on the host, from Debian's `docker-registry`: a plugin can only be upgraded from one.

use std::process::Command;

use super::{make_dir, write};
use crate::error::Error;
use crate::need::Need;
use crate::netns::Netns;
use crate::process::Process;

/// A registry that dockerd on the same host can push to and pull from. Dropping it deletes its contents.
#[derive(Debug)]
pub struct Registry {
    _process: Process,
}

impl Registry {
    /// Debian's `docker-registry`.
    pub const NEED: Need = Need::Program("docker-registry");
    /// Where dockerd finds it. It trusts a registry on the loopback interface without TLS.
    pub const ADDRESS: &str = "127.0.0.1:5000";

    /// Starts it, empty, and waits until it serves.
    pub fn start(host: &Netns) -> Result<Self, Error> {
        let dir = host.sandbox().dir("registry")?;
        make_dir(&dir)?;
        let config = dir.join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}/data}}}}\nhttp: {{addr: {}}}\n",
            dir.display(),
            Self::ADDRESS
        );
        write(&config, text)?;
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config);
        let mut process = Process::start(host, "docker-registry", command)?;
        process.wait_for_line("listening on")?;
        Ok(Self { _process: process })
    }
}
