//! What runtimes find under the name `dhcp`.

use std::fs;
use std::path::PathBuf;

use super::{Plugin, PluginDirectory};
use crate::cli::install::{OfTheHost, shim_version};

/// Looks into these directories, or, if none are named, into those that the host's runtimes use.
pub(in crate::cli::doctor) fn plugins(named: &[PathBuf]) -> Vec<PluginDirectory> {
    let directories = match named {
        [] => OfTheHost::look().directories,
        named => named.to_owned(),
    };
    let look = |path: PathBuf| {
        let dhcp = match fs::read(path.join("dhcp")) {
            Ok(file) => shim_version(&file).map_or(Plugin::Foreign, Plugin::Ours),
            Err(_) => Plugin::None,
        };
        let has_our_host_local =
            fs::read(path.join("host-local")).is_ok_and(|file| shim_version(&file).is_some());
        PluginDirectory {
            path,
            dhcp,
            has_our_host_local,
        }
    };
    directories.into_iter().map(look).collect()
}
