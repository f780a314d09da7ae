//! CNI's verbs, and how a call is read up to its verb.

use super::{Code, Config, Env, Error, Version, bad_env, quoted, undecodable};

/// What a runtime may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Attach a container.
    Add,
    /// Detach it.
    Del,
    /// Say whether it is attached as its ADD said.
    Check,
    /// Detach all containers but these.
    Gc,
    /// Say whether an ADD could be served.
    Status,
}

impl Verb {
    const ALL: [Self; 5] = [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status];

    /// Reads a call's verb, its configuration and that one's version.
    ///
    /// # Errors
    /// The first fault found, in CNI's words: 6 for a configuration that is not JSON, 1 for its version and for a verb
    /// that the version lacks (as Go's plugins answer), 4 for the environment.
    pub fn parse(env: &Env, config: &str) -> Result<(Self, Config, Version), Error> {
        let verb = Self::of(env.command.as_deref())?;
        let config =
            Config::parse(config).map_err(|e| undecodable("the network configuration", &e))?;
        let version = config
            .cni_version
            .as_deref()
            .map_or(Ok(Version::UNSAID), str::parse)
            .map_err(|e| {
                let spoken = Version::ALL.map(Version::as_str).join(", ");
                Error::new(
                    Code::IncompatibleVersion,
                    format!("{e}: set it to one of {spoken}"),
                )
            })?;
        if version < verb.since() {
            let msg = format!(
                "cniVersion {version} has no {}: {} is the first that has it",
                verb.as_str(),
                verb.since()
            );
            return Err(Error::new(Code::IncompatibleVersion, msg).in_version(version));
        }
        Ok((verb, config, version))
    }

    /// Reads the value of `CNI_COMMAND`.
    ///
    /// # Errors
    /// It is not set, or is no verb.
    pub fn of(command: Option<&str>) -> Result<Self, Error> {
        let word = command.ok_or_else(|| bad_env("CNI_COMMAND", "not set"))?;
        let verb = Self::ALL.into_iter().find(|verb| verb.as_str() == word);
        verb.ok_or_else(|| {
            bad_env(
                "CNI_COMMAND",
                format!("{} is not a supported verb", quoted(word)),
            )
        })
    }

    /// Returns the value of `CNI_COMMAND`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
        }
    }

    /// Returns the first version that has the verb.
    fn since(self) -> Version {
        match self {
            Self::Add | Self::Del => Version::V0_1_0,
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
        }
    }
}
