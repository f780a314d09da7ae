//! What runtimes find under the name `dhcp`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use leasehold_api::SHIM_MARK;

use super::{Plugin, PluginDirectory};

/// Where runtimes look unless they are told otherwise: containerd, CRI-O, podman; k3s since 2024; MicroK8s; OpenShift's Multus.
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

/// Looks into these directories, or into those of them that a runtime uses unless it is told otherwise.
pub(super) fn plugins(named: &[PathBuf]) -> Vec<PluginDirectory> {
    let mut directories = match named {
        [] => WELL_KNOWN.into_iter().map(PathBuf::from).filter(|path| path.is_dir()).collect(),
        named => named.to_owned(),
    };
    // One of them may be a link to another.
    let mut seen = Vec::new();
    directories.retain(|path| {
        let file = fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let is_new = file.is_none_or(|file| !seen.contains(&file));
        seen.extend(file);
        is_new
    });
    let look = |path: PathBuf| {
        let dhcp = match fs::read(path.join("dhcp")) {
            Ok(file) => shim_version(&file).map_or(Plugin::Foreign, Plugin::Ours),
            Err(_) => Plugin::None,
        };
        PluginDirectory { path, dhcp }
    };
    directories.into_iter().map(look).collect()
}

/// Returns the version of the shim whose program file this is; `None` for any other file. The daemon's own program has the mark
/// too, without a version.
fn shim_version(file: &[u8]) -> Option<String> {
    let mark = SHIM_MARK.as_bytes();
    let behind = file.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
    behind.map(|(at, _)| &file[at + mark.len()..]).find_map(|rest| {
        let version: Vec<u8> = rest.iter().take(32).copied().take_while(|byte| *byte != b'\n').collect();
        let is_version = version.first()?.is_ascii_digit() && version.iter().all(u8::is_ascii_graphic);
        is_version.then(|| String::from_utf8_lossy(&version).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_plugin_is_known_by_what_its_file_says() {
        let file = |version: &str| format!("x{SHIM_MARK}y{SHIM_MARK}{version}\nz").into_bytes();
        assert_eq!(shim_version(&file("1.2.3")).as_deref(), Some("1.2.3"));
        assert_eq!(shim_version(&file("")), None);
        assert_eq!(shim_version(b"another"), None);
    }
}
