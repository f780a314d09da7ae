//! CNI: what the shim passes on, the network configuration, results and errors.
//!
//! Only the form is checked here; the daemon decides whether a request can be carried out.

mod args;
mod config;
mod error;
mod host_local;
mod ipam;
mod name;
mod named;
mod object;
mod range;
mod refusal;
mod result;
mod verb;
mod version;

use serde::{Deserialize, Serialize};

pub use args::{Args, asked};
pub use config::{Config, PrevResult, RuntimeConfig};
pub use error::{Code, Error};
pub use host_local::{HOST_LOCAL_KEYS, Holder, HostLocal};
pub use ipam::{
    ClientId, ConflictDetection, Fallback, IPAM_KEYS, Ipam, Provide, RequestList, Servers,
};
pub use name::{is_link_name, is_name};
pub use named::{Named, named, netns, network};
pub use object::{BadKey, Fault, value_of};
pub use refusal::{bad_config, bad_env, cut, quoted, refused, undecodable};
pub use result::{Dns, Ip, Route, Success};
pub use verb::Verb;
pub use version::{UnknownVersion, Version, VersionInfo};

/// The daemon's URL path for CNI calls.
pub const PATH: &str = "/cni";

/// One call of a runtime, passed on unchanged: the body of `POST /cni`.
///
/// The configuration is text, not a JSON value, because it must arrive verbatim even if it is not JSON, so that the
/// daemon can say so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The environment.
    pub env: Env,
    /// Standard input.
    pub config: String,
}

/// The environment variables of CNI. An unset variable is absent, an empty one is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Env {
    /// `CNI_COMMAND`: the verb.
    #[serde(
        rename = "CNI_COMMAND",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub command: Option<String>,
    /// `CNI_CONTAINERID`.
    #[serde(
        rename = "CNI_CONTAINERID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub container_id: Option<String>,
    /// `CNI_NETNS`: the path of the container's network namespace.
    #[serde(rename = "CNI_NETNS", default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// `CNI_IFNAME`: the interface's name in that namespace.
    #[serde(
        rename = "CNI_IFNAME",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub ifname: Option<String>,
    /// `CNI_ARGS`: `KEY=VALUE` pairs separated by semicolons.
    #[serde(rename = "CNI_ARGS", default, skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// `CNI_PATH`: where to look for plugins.
    #[serde(rename = "CNI_PATH", default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `CNI_NETNS_OVERRIDE`: whether the namespace may be the host's own. Part of libcni, not of the specification.
    #[serde(
        rename = "CNI_NETNS_OVERRIDE",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub netns_override: Option<String>,
}

impl Env {
    /// Collects the variables through `var`, which returns the value of a variable by its name.
    pub fn collect(var: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            command: var("CNI_COMMAND"),
            container_id: var("CNI_CONTAINERID"),
            netns: var("CNI_NETNS"),
            ifname: var("CNI_IFNAME"),
            args: var("CNI_ARGS"),
            path: var("CNI_PATH"),
            netns_override: var("CNI_NETNS_OVERRIDE"),
        }
    }
}
