//! libcni's cache: a file for each attachment of a runtime, which shows what is running.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tracing::warn;

/// The most files read from one cache.
const MAX_FILES: usize = 16_384;

/// Returns the path of an attachment's namespace. An older libcni does not record it, but main plugins return it as the `sandbox`
/// of their interface.
pub(crate) fn netns<'a>(said: &'a str, result: &'a Value, ifname: &str) -> Option<&'a str> {
    let interfaces = result["interfaces"].as_array().into_iter().flatten();
    let ours = interfaces.filter(|interface| interface["name"] == ifname);
    let mut sandboxes = ours.filter_map(|interface| interface["sandbox"].as_str());
    Some(said)
        .filter(|path| !path.is_empty())
        .or_else(|| sandboxes.find(|path| !path.is_empty()))
}

/// Returns the path by which this process sees a path of the host.
pub(crate) fn on_host(host_prefix: &Path, path: &Path) -> PathBuf {
    host_prefix.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the paths of a cache's files, in order.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            warn!(directory = %directory.display(), %error, "cannot look for containers to adopt");
            return Vec::new();
        }
    };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .take(MAX_FILES + 1)
        .collect();
    if paths.len() > MAX_FILES {
        warn!(directory = %directory.display(), taken = MAX_FILES, "too many cached attachments: ignoring the rest");
        paths.truncate(MAX_FILES);
    }
    paths.sort();
    paths
}
