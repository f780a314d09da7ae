//! Where the host's runtimes look for CNI plugins: the places in their configuration, and the default places.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::identity;

/// Configuration of containerd, both on its own and as k3s, RKE2 and MicroK8s write it, of CRI-O, and of podman. `*` in a file's
/// name stands for any text: each runtime ignores the names that it does not read.
const CONFIGURATIONS: [&str; 10] = [
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/*.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d/*",
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/*.conf",
];

/// The key, at the top, for further files that containerd reads. A path in it starts where the file is.
const IMPORTS: &str = "imports";

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
const WELL_KNOWN: [&str; 8] = [
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

/// What the host's runtimes say about their plugins.
#[derive(Debug, Default)]
pub(crate) struct OfTheHost {
    /// The directories that exist, each once.
    pub(crate) directories: Vec<PathBuf>,
    /// Configuration that cannot be read, with the reason: it may name further directories.
    pub(crate) unread: Vec<(PathBuf, anyhow::Error)>,
}

impl OfTheHost {
    /// Reads the configuration of all runtimes.
    pub(crate) fn look() -> Self {
        let mut found = Self::default();
        let mut to_read: VecDeque<PathBuf> = CONFIGURATIONS
            .into_iter()
            .flat_map(|path| files(Path::new(path)))
            .collect();
        let mut seen = Vec::new();
        while let Some(file) = to_read.pop_front() {
            // Two files may import each other.
            let its = identity(&file);
            if seen.contains(&its) {
                continue;
            }
            seen.push(its);
            match read(&file) {
                Ok(table) => {
                    collect(&table, "", &mut found.directories);
                    to_read.extend(imports(&table, &file));
                }
                Err(error) => found.unread.push((file, error)),
            }
        }
        found.directories.extend(WELL_KNOWN.map(PathBuf::from));
        let mut seen = Vec::new();
        found.directories.retain(|directory| {
            let file =
                identity(directory).filter(|file| directory.is_dir() && !seen.contains(file));
            seen.extend(file);
            file.is_some()
        });
        found
    }
}

fn read(file: &Path) -> anyhow::Result<Table> {
    Ok(fs::read_to_string(file)?.parse()?)
}

/// Returns the files that another one names as its imports.
fn imports(table: &Table, of: &Path) -> Vec<PathBuf> {
    let named = table.get(IMPORTS).and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(Value::as_str);
    let beside = of.parent().unwrap_or(Path::new("/"));
    named.flat_map(|path| files(&beside.join(path))).collect()
}

/// Returns the regular files that a path stands for, in the order of their names.
fn files(path: &Path) -> Vec<PathBuf> {
    let pattern = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((start, end)) = pattern.split_once('*') else {
        return Vec::from_iter(path.is_file().then(|| path.to_owned()));
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        })
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
