//! Texts of a network's configuration that name the container: `{pod}`, `{namespace}`, `{container}` and `{ifname}`.

use leasehold_api::cni::Error;

use super::args::Args;
use super::named::{Named, is_name};
use super::refusal::{bad_config, bad_env};

/// The key of the pod's name in `CNI_ARGS`.
pub(super) const POD_NAME: &str = "K8S_POD_NAME";

/// The key of the pod's namespace in `CNI_ARGS`.
pub(super) const POD_NAMESPACE: &str = "K8S_POD_NAMESPACE";

/// The longest template, in bytes.
const MAX_TEMPLATE: usize = 512;

/// The names of a container.
pub(super) struct Names<'a> {
    pub(super) named: Named<'a>,
    pub(super) args: &'a Args<'a>,
}

impl Names<'_> {
    /// Replaces the placeholders in `template`, which is the value of `key`.
    ///
    /// # Errors
    /// 7 if a placeholder is unknown or has no value, or if the template cannot be read; 4 for an invalid value.
    pub(super) fn expand(&self, key: &str, template: &str) -> Result<String, Error> {
        if template.len() > MAX_TEMPLATE {
            return Err(bad_config(key, format!("longer than {MAX_TEMPLATE} bytes")));
        }
        let mut parts = template.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part
                .split_once('}')
                .ok_or_else(|| bad_config(key, "a { without its }"))?;
            text.push_str(self.value(key, name)?);
            text.push_str(rest);
        }
        Ok(text)
    }

    fn value(&self, key: &str, name: &str) -> Result<&str, Error> {
        match name {
            "pod" => self.arg(key, "{pod}", POD_NAME),
            "namespace" => self.arg(key, "{namespace}", POD_NAMESPACE),
            "container" => Ok(self.named.container),
            "ifname" => Ok(self.named.ifname),
            other => {
                let fault = format!(
                    "{{{other:.32}}} is not {{pod}}, {{namespace}}, {{container}} or {{ifname}}"
                );
                Err(bad_config(key, fault))
            }
        }
    }

    /// Returns the name in `CNI_ARGS` that `what`, in the value of `key`, needs. A name with a slash could be taken for two.
    pub(super) fn arg(&self, key: &str, what: &str, arg: &str) -> Result<&str, Error> {
        match self.args.get(arg) {
            Some(name) if is_name(name) => Ok(name),
            Some(_) => Err(bad_env(
                "CNI_ARGS",
                format!("{arg} is not a valid Kubernetes name"),
            )),
            None => Err(bad_config(
                key,
                format!("{what} needs {arg} in CNI_ARGS, which this runtime does not give"),
            )),
        }
    }
}
