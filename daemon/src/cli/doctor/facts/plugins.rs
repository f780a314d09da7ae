//! What runtimes find under the name `dhcp`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{Plugin, PluginDirectory};
use crate::cli::install::{WELL_KNOWN, of_the_host, shim_version};

/// Looks into these directories. If none are named, looks into those that the host's runtimes use, or, if their configuration
/// cannot be read, into those that they use by default.
pub(super) fn plugins(named: &[PathBuf]) -> Vec<PluginDirectory> {
    let mut directories = match named {
        [] => of_the_host().unwrap_or_else(|_| {
            WELL_KNOWN
                .into_iter()
                .map(PathBuf::from)
                .filter(|path| path.is_dir())
                .collect()
        }),
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
