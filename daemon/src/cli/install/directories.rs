//! Where the host's runtimes look for CNI plugins: the places in their configuration, and the default places.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{Doing, InstallError, identity};

/// Configuration of containerd, both on its own and as k3s, RKE2 and MicroK8s write it, of CRI-O, and of podman. A directory
/// stands for the files in it.
const CONFIGURATIONS: [&str; 10] = [
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d",
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d",
];

/// A table in such a file, at any depth, and its key for one directory or several: containerd's (`bin_dirs` from 2.1 on), CRI-O's,
/// podman's.
const KEYS: [(&str, &str); 5] = [
    ("cni", "bin_dir"),
    ("cni", "bin_dirs"),
    ("network", "plugin_dir"),
    ("network", "plugin_dirs"),
    ("network", "cni_plugin_dirs"),
];

/// Where runtimes look by default: containerd, CRI-O, podman; k3s since 2024; MicroK8s; OpenShift's Multus.
pub(crate) const WELL_KNOWN: [&str; 8] = [
    "/opt/cni/bin",
    "/usr/libexec/cni",
    "/usr/lib/cni",
    "/usr/local/libexec/cni",
    "/usr/local/lib/cni",
    "/var/lib/rancher/k3s/data/cni",
    "/var/snap/microk8s/current/opt/cni/bin",
    "/var/lib/cni/bin",
];

/// What MicroK8s's containerd finds in its environment.
const SNAP_DATA: (&str, &str) = ("${SNAP_DATA}", "/var/snap/microk8s/current");

/// Returns the directories that exist, each once.
pub(crate) fn of_the_host() -> Result<Vec<PathBuf>, InstallError> {
    let mut directories = Vec::new();
    for file in CONFIGURATIONS
        .iter()
        .flat_map(|path| files(Path::new(path)))
    {
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.doing("read", &file)?,
        };
        let table: Table = text.parse().map_err(|source| InstallError::Configuration {
            path: file,
            source: Box::new(source),
        })?;
        collect(&table, "", &mut directories);
    }
    directories.extend(WELL_KNOWN.map(PathBuf::from));
    let mut seen = Vec::new();
    directories.retain(|directory| {
        let file = identity(directory).filter(|file| directory.is_dir() && !seen.contains(file));
        seen.extend(file);
        file.is_some()
    });
    Ok(directories)
}

/// Returns the file, or the files of the directory in the order of their names.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(directory) = fs::read_dir(path) else {
        return vec![path.to_owned()];
    };
    let mut files: Vec<_> = directory
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// Adds the directories that a table and the tables in it name.
fn collect(table: &Table, name: &str, directories: &mut Vec<PathBuf>) {
    for (key, value) in table {
        let texts: Vec<&str> = match value {
            Value::Table(inner) => {
                collect(inner, key, directories);
                continue;
            }
            Value::String(text) => vec![text],
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            _ => continue,
        };
        if KEYS.contains(&(name, key)) {
            let texts = texts
                .into_iter()
                .map(|text| text.replace(SNAP_DATA.0, SNAP_DATA.1));
            directories.extend(
                texts
                    .filter(|text| text.starts_with('/'))
                    .map(PathBuf::from),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        let mut directories = Vec::new();
        collect(&text.parse().unwrap(), "", &mut directories);
        directories
            .into_iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn each_runtime_says_where_its_plugins_are() {
        let table = [
            (
                "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = '/opt/a'\nconf_dir = '/etc/cni'",
                &["/opt/a"][..],
            ),
            (
                "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/opt/a', '/opt/b']",
                &["/opt/a", "/opt/b"],
            ),
            (
                "[plugins.cri.cni]\nbin_dir = \"${SNAP_DATA}/opt/cni/bin\"",
                &["/var/snap/microk8s/current/opt/cni/bin"],
            ),
            (
                "[crio.network]\nplugin_dirs = [\n  '/opt/cni/bin/',\n]\nnetwork_dir = '/etc/cni'",
                &["/opt/cni/bin/"],
            ),
            (
                "[network]\ncni_plugin_dirs = ['/usr/lib/cni']\n[engine]\nhelper_binaries_dir = ['/x']",
                &["/usr/lib/cni"],
            ),
            // Programs that check images, not plugins.
            (
                "[plugins.'io.containerd.image-verifier.v1.bindir']\nbin_dir = '/opt/verifiers'",
                &[],
            ),
            (
                "[plugins.cri.cni]\nbin_dir = ''\nbin_dirs = [1, 'relative']",
                &[],
            ),
            ("", &[]),
        ];
        for (text, directories) in table {
            assert_eq!(named(text), directories, "{text}");
        }
    }
}
