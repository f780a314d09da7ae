//! What a call and its configuration name: the network, the container, the interface, the namespace.

use std::path::{Path, PathBuf};

use super::{Config, Env, Error, Holder, bad_config, bad_env, is_link_name, is_name, quoted};

/// The rule of [`is_name`], for messages.
const NAME_RULE: &str =
    "it must begin with a letter or digit, and hold only these, \"_\", \".\" and \"-\"";

/// The longest path that the kernel accepts (`PATH_MAX` with its NUL).
const MAX_PATH: usize = 4095;

/// Returns the network's name.
///
/// # Errors
/// It is missing, or cannot be one.
pub fn network(config: &Config) -> Result<&str, Error> {
    let bad_name = |fault| bad_config("the network's name", fault);
    let network = config.name.as_deref().ok_or_else(|| bad_name("missing"))?;
    if !is_name(network) {
        return Err(bad_name(NAME_RULE));
    }
    Ok(network)
}

/// An interface of a container on a network, by the names that CNI gives them.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The network's name.
    pub network: &'a str,
    /// The container's id.
    pub container: &'a str,
    /// The interface's name.
    pub ifname: &'a str,
}

impl Named<'_> {
    /// Returns the interface as the files of local ranges name it.
    pub fn holder(&self) -> Holder {
        Holder {
            container: self.container.to_owned(),
            ifname: Some(self.ifname.to_owned()),
        }
    }
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            network,
            container,
            ifname,
        } = self;
        write!(f, "{network}/{container}/{ifname}")
    }
}

/// Returns what a call is about.
///
/// # Errors
/// A name is missing, or cannot be one.
pub fn named<'a>(env: &'a Env, config: &'a Config) -> Result<Named<'a>, Error> {
    let network = network(config)?;
    let container = set("CNI_CONTAINERID", &env.container_id)?;
    if !is_name(container) {
        return Err(bad_env("CNI_CONTAINERID", NAME_RULE));
    }
    let ifname = set("CNI_IFNAME", &env.ifname)?;
    if !is_link_name(ifname, 15) {
        return Err(bad_env(
            "CNI_IFNAME",
            "1 to 15 bytes, not \".\" or \"..\", without \"/\", \":\" and white space",
        ));
    }
    Ok(Named {
        network,
        container,
        ifname,
    })
}

fn set<'a>(variable: &str, value: &'a Option<String>) -> Result<&'a str, Error> {
    value
        .as_deref()
        .filter(|value| !value.is_empty())
        .ok_or_else(|| bad_env(variable, "not set"))
}

/// Returns the path of the container's namespace.
///
/// # Errors
/// It is missing, is no path, or has control characters: a log would repeat them.
pub fn netns(env: &Env) -> Result<PathBuf, Error> {
    let path = set("CNI_NETNS", &env.netns)?;
    if !Path::new(path).is_absolute() || path.contains(char::is_control) || path.len() > MAX_PATH {
        return Err(bad_env(
            "CNI_NETNS",
            format!(
                "{} is not an absolute path without control characters",
                quoted(path)
            ),
        ));
    }
    Ok(path.into())
}
