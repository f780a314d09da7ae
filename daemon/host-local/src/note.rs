//! The note beside an address's file: who got the address, and how to tell that they are gone.
//!
//! Its name says address and holder, so that one reading of the directory's names finds who has what. host-local ignores it,
//! because the name is no address.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold_api::cni::Holder;

/// What stands between the address and the holder in a note's name.
const BY: &str = ".by.";

/// What is known of a container while its address is given, and later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The boot in which the address was given.
    boot: String,
    /// The name of the host, in case several hosts share the directory.
    host: String,
    /// The path of the container's namespace.
    netns: PathBuf,
    /// The device and inode that the path led to, if it led anywhere.
    namespace: Option<(u64, u64)>,
}

/// This host, as notes describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The boot.
    pub boot: String,
    /// The name.
    pub name: String,
}

/// Whether a container lives, as far as its note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its namespace is there.
    Lives,
    /// Its namespace is gone, or of an earlier boot.
    Gone,
    /// Nobody can say.
    Unclear,
}

impl Host {
    /// Returns the host that this runs on. What cannot be read stays empty, and then proves nothing.
    pub fn this() -> Self {
        let read = |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        Self {
            boot: read("/proc/sys/kernel/random/boot_id"),
            name: read("/proc/sys/kernel/hostname"),
        }
    }
}

impl Note {
    /// Returns the note of a container that has its namespace at a path now.
    pub fn of(host: &Host, netns: &Path) -> Self {
        let found = fs::metadata(netns).ok();
        Self {
            boot: host.boot.clone(),
            host: host.name.clone(),
            netns: netns.to_owned(),
            namespace: found.map(|found| (found.dev(), found.ino())),
        }
    }

    /// Returns the note of a container that got an address earlier, in that boot. Its namespace's path is seen at `seen_at` here.
    pub fn earlier(host: &Host, boot: &str, netns: &Path, seen_at: &Path) -> Self {
        Self {
            boot: boot.to_owned(),
            netns: netns.to_owned(),
            // It was there: what is missing now is gone for good.
            namespace: Some(Self::of(host, seen_at).namespace.unwrap_or_default()),
            host: host.name.clone(),
        }
    }

    /// Reads a note. What it does not say proves nothing.
    pub fn read(text: &str) -> Self {
        let mut lines = text.lines();
        let mut value = |key| {
            lines
                .next()
                .and_then(|line| line.strip_prefix(key))
                .unwrap_or_default()
        };
        Self {
            boot: value("boot ").to_owned(),
            host: value("host ").to_owned(),
            netns: value("netns ").into(),
            namespace: value("namespace ")
                .split_once(':')
                .and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?))),
        }
    }

    /// Returns what is in its file.
    pub fn contents(&self) -> String {
        let mut text = format!("boot {}\nhost {}\n", self.boot, self.host);
        // A path that does not fit a line is not written, and then proves nothing.
        if let (Some(path), Some((dev, ino))) = (self.netns.to_str(), self.namespace)
            && !path.contains('\n')
        {
            text += &format!("netns {path}\nnamespace {dev}:{ino}\n");
        }
        text
    }

    /// Returns whether its container lives. What is missing counts as gone only while its surroundings are there.
    pub fn life(&self, host: &Host) -> Life {
        if self.boot.is_empty() || host.boot.is_empty() || self.host != host.name {
            return Life::Unclear;
        }
        if self.boot != host.boot {
            return Life::Gone;
        }
        let Some((dev, ino)) = self.namespace else {
            return Life::Unclear;
        };
        match fs::metadata(&self.netns) {
            Ok(found) if (found.dev(), found.ino()) == (dev, ino) => Life::Lives,
            // Another namespace. What is on another device is none: a mount may be missing here.
            Ok(found) if found.dev() == dev => Life::Gone,
            Err(error) if error.kind() == ErrorKind::NotFound && self.has_surroundings() => {
                Life::Gone
            }
            _ => Life::Unclear,
        }
    }

    fn has_surroundings(&self) -> bool {
        // The directory of a process goes with it.
        if self.netns.starts_with("/proc") {
            return Path::new("/proc/self").exists();
        }
        self.netns.parent().is_some_and(Path::is_dir)
    }
}

pub(crate) fn name(address: IpAddr, mark: u64) -> String {
    format!("{address}{BY}{mark:016x}")
}

/// Reads a note's name: the address, and the mark of its holder, which an unfinished file may lack.
pub(crate) fn read_name(name: &str) -> Option<(IpAddr, Option<u64>)> {
    let (address, mark) = name.split_once(BY)?;
    let mark = Some(mark)
        .filter(|mark| mark.len() == 16)
        .and_then(|mark| u64::from_str_radix(mark, 16).ok());
    Some((address.parse().ok()?, mark))
}

/// Returns the mark of a container's interface in the names of its notes (FNV-1a). Two may share one: the address's file decides.
pub(crate) fn mark_of(holder: &Holder) -> Option<u64> {
    let ifname = holder.ifname.as_deref()?;
    let bytes = holder.container.bytes().chain([0]).chain(ifname.bytes());
    Some(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}
