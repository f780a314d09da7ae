//! The shim as a runtime calls it: environment and standard input in, one JSON object out.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::binaries::binary;
use crate::container::Container;
use crate::error::{Doing, Error, something_went_wrong};
use crate::netns::{Netns, feed};

/// The CNI plugin `dhcp` of this workspace, or another in its place.
#[derive(Clone, Debug)]
pub struct Shim {
    host: Netns,
    program: PathBuf,
    /// Where it looks for the plugins that it calls (`CNI_PATH`).
    path: OsString,
}

/// The error that a CNI plugin printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// Its code.
    pub code: u64,
    /// What happened.
    pub msg: String,
    /// More about it.
    pub details: String,
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {}: {} {}", self.code, self.msg, self.details)
    }
}

impl std::error::Error for CniError {}

/// How a call failed.
#[derive(thiserror::Error)]
pub enum CallError {
    /// The plugin reported an error.
    #[error("{verb} of {container}: {error}")]
    Cni {
        /// What was asked.
        verb: &'static str,
        /// For which container.
        container: String,
        /// What it said.
        error: CniError,
    },
    /// It could not be called, or did not speak CNI.
    #[error(transparent)]
    Fixture(#[from] Error),
}

/// As [`Display`](fmt::Display), for a person.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CallError {
    /// Returns the plugin's error.
    ///
    /// # Panics
    /// If it printed no error.
    pub fn cni(self) -> CniError {
        match self {
            Self::Cni { error, .. } => error,
            Self::Fixture(error) => panic!("{error}"),
        }
    }
}

impl Shim {
    /// Returns this workspace's shim, to be run in a host's namespace.
    pub fn new(host: &Netns) -> Result<Self, Error> {
        Ok(Self::at(host, binary("dhcp")?))
    }

    /// Returns the plugin at `program`.
    pub fn at(host: &Netns, program: PathBuf) -> Self {
        let path = program.parent().unwrap_or(&program).into();
        Self {
            host: host.clone(),
            program,
            path,
        }
    }

    /// Returns a main plugin that finds this one for its IPAM.
    pub fn under(&self, program: PathBuf) -> Self {
        let plugin = Self::at(&self.host, program);
        let path = [self.path.as_os_str(), plugin.path.as_os_str()].join(OsStr::new(":"));
        Self { path, ..plugin }
    }

    /// Asks for a lease and returns the result.
    pub fn add(&self, container: &Container, config: &Value) -> Result<Value, CallError> {
        self.start("ADD", container, config)?.wait()
    }

    /// Gives a lease back.
    pub fn del(&self, container: &Container, config: &Value) -> Result<(), CallError> {
        self.start("DEL", container, config)?.wait().map(drop)
    }

    /// Asks whether the lease is still as in `result`, from an earlier ADD.
    pub fn check(
        &self,
        container: &Container,
        config: &Value,
        result: &Value,
    ) -> Result<(), CallError> {
        let mut config = config.clone();
        config["prevResult"] = result.clone();
        self.start("CHECK", container, &config)?.wait().map(drop)
    }

    /// Starts a call without waiting for its end.
    pub fn start(
        &self,
        verb: &'static str,
        container: &Container,
        config: &Value,
    ) -> Result<ShimCall, Error> {
        let netns = container.netns.path().to_string_lossy();
        let env = [
            ("CNI_CONTAINERID", container.id.as_str()),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", &container.ifname),
        ];
        self.start_with(verb, &env, config.to_string().as_bytes())
    }

    /// Starts a call with any environment and input.
    pub fn start_with(
        &self,
        verb: &'static str,
        env: &[(&str, &str)],
        input: &[u8],
    ) -> Result<ShimCall, Error> {
        let mut command = Command::new(&self.program);
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_PATH", &self.path)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.host.spawn(command)?;
        feed(&mut child, input);
        let container = env
            .iter()
            .find(|(name, _)| *name == "CNI_CONTAINERID")
            .map_or("nobody", |(_, id)| id);
        Ok(ShimCall {
            verb,
            container: container.to_owned(),
            child: Some(child),
        })
    }
}

/// A call in progress. Dropping it kills the shim.
#[derive(Debug)]
pub struct ShimCall {
    verb: &'static str,
    container: String,
    child: Option<Child>,
}

impl ShimCall {
    /// Waits for the answer; `null` if the plugin printed nothing, as it should for DEL and CHECK.
    pub fn wait(mut self) -> Result<Value, CallError> {
        let child = self.child.take().expect("only this and drop take it");
        let output = child
            .wait_with_output()
            .doing(|| "wait for the shim".to_owned())?;
        let said = String::from_utf8_lossy(&output.stdout);
        let bad = || {
            Error::unreadable(
                "the answer of a CNI plugin",
                format!(
                    "{} ({}) {}",
                    said,
                    output.status,
                    String::from_utf8_lossy(&output.stderr)
                ),
            )
        };
        let answer = match said.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).map_err(|_| bad())?,
        };
        if output.status.success() {
            return Ok(answer);
        }
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let code = answer["code"].as_u64().ok_or_else(bad)?;
        something_went_wrong();
        let error = CniError {
            code,
            msg: text("msg"),
            details: text("details"),
        };
        Err(CallError::Cni {
            verb: self.verb,
            container: self.container.clone(),
            error,
        })
    }

    /// Kills the shim, as a runtime does at its own deadline, and waits until it is gone.
    pub fn kill(mut self) -> Result<(), Error> {
        let mut child = self.child.take().expect("only this and drop take it");
        child
            .kill()
            .and_then(|()| child.wait())
            .doing(|| "kill the shim".to_owned())
            .map(drop)
    }
}

impl Drop for ShimCall {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that cannot be killed has already ended.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
