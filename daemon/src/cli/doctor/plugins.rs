//! What runtimes find as the plugin `dhcp`.

use std::fs;
use std::path::PathBuf;

use super::finding::{Finding, Level};
use crate::cli::install::{OfTheHost, shim_version};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A directory in which a runtime may look for CNI plugins.
#[derive(Debug)]
pub(super) struct PluginDirectory {
    path: PathBuf,
    dhcp: Plugin,
    /// Whether our shim is there as `host-local` too.
    pub(super) has_our_host_local: bool,
}

/// What is there under the name `dhcp`.
#[derive(Clone, Debug)]
enum Plugin {
    None,
    /// Our shim, of this version.
    Ours(String),
    Foreign,
}

/// Looks into these directories, or, if none are named, into those that the host's runtimes use.
pub(super) fn look(named: &[PathBuf]) -> Vec<PluginDirectory> {
    let directories = match named {
        [] => OfTheHost::look().directories,
        named => named.to_owned(),
    };
    let look = |path: PathBuf| {
        let dhcp = match fs::read(path.join("dhcp")) {
            Ok(file) => shim_version(&file).map_or(Plugin::Foreign, Plugin::Ours),
            Err(_) => Plugin::None,
        };
        let host_local = fs::read(path.join("host-local"));
        PluginDirectory {
            path,
            dhcp,
            has_our_host_local: host_local.is_ok_and(|file| shim_version(&file).is_some()),
        }
    };
    directories.into_iter().map(look).collect()
}

/// In the daemon's own container, only the host's directories that were named can be there.
pub(super) fn plugins(directories: &[PluginDirectory], in_container: bool) -> Vec<Finding> {
    let is_installed = directories
        .iter()
        .any(|directory| matches!(directory.dhcp, Plugin::Ours(_)));
    let findings: Vec<_> = directories
        .iter()
        .filter_map(|directory| plugin(directory, is_installed))
        .map(|finding| Finding {
            way_out: finding.way_out.map(|way_out| match in_container {
                true => "restart the pod, whose init container installs it; outside Kubernetes, run `leasehold install` on the host".to_owned(),
                false => way_out,
            }),
            ..finding
        })
        .collect();
    if findings.is_empty() && in_container {
        return vec![Finding::of(
            Level::Unseen,
            "CNI plugin",
            "the host's directories for CNI plugins cannot be seen from the daemon's own container",
            "mount them read-only, and name them with --cni-bin-dir",
        )];
    }
    if findings.is_empty() {
        let found = "no runtime on this host has a directory for CNI plugins";
        return vec![Finding::warning(
            "CNI plugin",
            found,
            "if there is one: leasehold install --cni-bin-dir DIR",
        )];
    }
    findings
}

/// `is_installed` means that another directory has the plugin. Then it need not be here: nobody knows which directory a runtime
/// uses.
fn plugin(directory: &PluginDirectory, is_installed: bool) -> Option<Finding> {
    let path = directory.path.join("dhcp");
    let path = path.display();
    Some(match &directory.dhcp {
        Plugin::Ours(version) if version == VERSION => Finding::ok(
            "CNI plugin",
            format!("{path} is leasehold's, version {VERSION}"),
        ),
        Plugin::Ours(version) => {
            let found =
                format!("{path} is leasehold's, version {version}, and this is version {VERSION}");
            Finding::warning("CNI plugin", found, "leasehold install")
        }
        Plugin::Foreign => Finding::failure(
            "CNI plugin",
            format!("{path} is not leasehold's"),
            "leasehold install --force, which keeps it for `leasehold uninstall`",
        ),
        Plugin::None if is_installed => return None,
        Plugin::None => Finding::failure(
            "CNI plugin",
            format!("there is no {path}"),
            "leasehold install",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one directory may have is in `daemon/tests/daemon/doctor.rs`.
    #[test]
    fn the_plugin_need_not_be_in_every_directory() {
        let judged = |container, found: &[Plugin]| {
            let directory = |dhcp: &Plugin| PluginDirectory {
                path: "/opt/cni/bin".into(),
                dhcp: dhcp.clone(),
                has_our_host_local: false,
            };
            let directories: Vec<_> = found.iter().map(directory).collect();
            let found = plugins(&directories, container);
            found.iter().map(|found| found.level).collect::<Vec<_>>()
        };
        let ours = Plugin::Ours(VERSION.to_owned());
        assert_eq!(judged(false, &[ours.clone(), Plugin::None]), [Level::Ok]);
        assert_eq!(
            judged(false, &[ours, Plugin::Foreign]),
            [Level::Ok, Level::Failure]
        );
        assert_eq!(judged(false, &[]), [Level::Warning]);
        assert_eq!(judged(true, &[]), [Level::Unseen]);
    }
}
