//! Converts between CNI's terms and the core's: what a runtime may say, and how CNI names each failure.
//!
//! Pure: no socket, no file, no state.

use ipnet::IpNet;
use leasehold_api::MAX_ADD_TIMEOUT;
use leasehold_api::cni::{
    BadKey, Code, Config, Error, PrevResult, Request, Verb, Version, named, netns, network,
};
use leasehold_core::effect::{Answer, Call};

use super::add::{Site, add, grace_of_del};
use super::named::{attachment, standing_parent};
use super::refusal::{OTHER_ANSWER, STOPPING, refused, undecodable};
use super::result::{code, message, success};

/// Why a network of type `host-local` is refused.
const OLD_PLUGIN: &str = "the plugin serves networks of type host-local by itself, without a daemon, but the one that asked is of an \
                          earlier leasehold: replace it (`leasehold install --update`)";

/// A runtime's request, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What it asks of the core.
    pub(crate) call: Call,
    /// How to answer.
    pub(crate) form: Form,
    /// What the network's configuration has that works but looks like a mistake, if this is an ADD.
    pub(crate) warnings: Vec<String>,
}

/// The form that a runtime's answer takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    version: Version,
    /// `ADD of lan/0123/eth0`, for errors.
    about: String,
    /// The code for a daemon that stops first.
    unanswered: Code,
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// The first fault found, in CNI's words: 6 for a configuration that is not JSON, 1 for its version and for a verb
    /// that the version lacks (as Go's plugins answer), 7 for its content, 4 for the environment.
    pub(crate) fn parse(request: &Request, site: &Site) -> Result<Self, Error> {
        let (verb, config, version) = Verb::parse(&request.env, &request.config)?;
        Self::parse_verb(verb, request, &config, version, site)
            .map_err(|error| error.in_version(version))
    }

    fn parse_verb(
        verb: Verb,
        request: &Request,
        config: &Config,
        version: Version,
        site: &Site,
    ) -> Result<Self, Error> {
        let of = |what: &dyn std::fmt::Display| format!("{} of {what}", verb.as_str());
        // A DEL that was kept for a daemon that still gave such addresses must end.
        if config.is_host_local() && verb != Verb::Del {
            return Err(Error::new(unanswered(verb), OLD_PLUGIN));
        }
        let (about, call) = match verb {
            Verb::Add => {
                let named = named(&request.env, config)?;
                let mut add = add(request, config, named, site)?;
                // Since that version a route has more than a destination and a next hop.
                let is_plain = version < Version::V1_1_0;
                (
                    add.profile.policy.late_routes,
                    add.profile.policy.plain_routes,
                ) = (is_plain, is_plain);
                (of(&add.attachment), Call::Add(Box::new(add)))
            }
            // Nothing else in the configuration matters: a DEL also follows an ADD that failed because of it, and must succeed.
            Verb::Del => {
                let attachment = attachment(named(&request.env, config)?);
                let grace = grace_of_del(request, config);
                (of(&attachment), Call::Del { attachment, grace })
            }
            Verb::Check => {
                let named = named(&request.env, config)?;
                netns(&request.env)?;
                let attachment = attachment(named);
                let expected = expected(config, named.ifname)?;
                (
                    of(&attachment),
                    Call::Check {
                        attachment,
                        expected,
                    },
                )
            }
            Verb::Gc => {
                let network = network(config)?.to_owned();
                let keep = config.valid_attachments().map_err(refused)?;
                (of(&network), Call::Collect { network, keep })
            }
            Verb::Status => {
                config.ipam().map_err(refused)?;
                (
                    verb.as_str().to_owned(),
                    Call::Status {
                        parent: standing_parent(config),
                    },
                )
            }
        };
        let warnings = match verb {
            Verb::Add => warnings(config),
            Verb::Del | Verb::Check | Verb::Gc | Verb::Status => Vec::new(),
        };
        Ok(Self {
            call,
            warnings,
            form: Form {
                version,
                about,
                unanswered: unanswered(verb),
            },
        })
    }
}

impl Form {
    /// Returns what the shim prints: a result, nothing, or an error.
    pub(crate) fn answer(&self, answer: &Answer) -> Result<String, Error> {
        match answer {
            Answer::Leased { tenures } => Ok(success(tenures).render(self.version)),
            Answer::Deleted | Answer::Checked | Answer::Collected | Answer::Ready => {
                Ok(String::new())
            }
            Answer::Failed(failure) => Err(self.error(code(failure), message(failure))),
            _ => Err(self.error(Code::Io, OTHER_ANSWER)),
        }
    }

    /// Returns the error for a daemon that stops before it has answered.
    pub(crate) fn unanswered(&self) -> Error {
        self.error(self.unanswered, STOPPING)
    }

    fn error(&self, code: Code, msg: impl Into<String>) -> Error {
        Error::new(code, msg)
            .in_version(self.version)
            .with_details(&self.about)
    }
}

/// Returns what a network's configuration has that works but looks like a mistake.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let name = config.name.as_deref().unwrap_or_default();
    let ignored = config.ignored();
    let router = (config.is_router_on_host() && !config.is_host_local()).then(|| {
        format!(
            "isGateway gives the host's bridge {} the address of the LAN's router, so that renewals, RELEASEs and whatever else \
             containers send to the router end at this host: set it to false",
            config.parent_link().unwrap_or_default()
        )
    });
    let most = MAX_ADD_TIMEOUT.as_secs();
    let timeout = config.ipam().ok().and_then(|ipam| ipam.timeout);
    let timeout = timeout
        .filter(|seconds| *seconds > MAX_ADD_TIMEOUT.as_secs_f64())
        .map(|seconds| format!("`timeout` {seconds} is cut to {most}: no ADD may take longer"));
    let said = |what: String| format!("network {name}: {what}");
    let ignored = ignored.iter().map(BadKey::to_string);
    ignored.chain(router).chain(timeout).map(said).collect()
}

/// Returns the code for a call that could not be served.
fn unanswered(verb: Verb) -> Code {
    match verb {
        Verb::Status => Code::NotAvailable,
        Verb::Add | Verb::Del | Verb::Check | Verb::Gc => Code::TryAgainLater,
    }
}

/// Returns the addresses that the runtime believes to be on our interface.
fn expected(config: &Config, ifname: &str) -> Result<Vec<IpNet>, Error> {
    let Some(prev) = &config.prev_result else {
        return Ok(Vec::new());
    };
    let prev: PrevResult = serde::Deserialize::deserialize(prev)
        .map_err(|e: serde_json::Error| undecodable("prevResult", &e))?;
    Ok(prev.addresses_on(ifname).collect())
}
