//! Hands what an earlier daemon gave from local ranges over to the plugin, which serves such networks by itself.
//!
//! The plugin knows only files. For each record that the earlier daemon left, the missing file and the note beside it are written;
//! only then does the record end. What cannot be written now is tried again, here or at the next start.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use leasehold_api::cni::Holder;
use leasehold_core::identity::Attachment;
use leasehold_host_local::{Directory, Fault, Host, Note, Progress};
use tracing::{error, info, warn};

use crate::cni_cache::on_host;
use crate::store::RangeRecord;

/// The pause between two tries.
const PAUSE: Duration = Duration::from_secs(60);

/// Begins to hand records over, on a thread of its own: a directory may be locked, full or slow. `end` forgets those of
/// attachments.
pub(crate) fn start(
    records: Vec<RangeRecord>,
    host_prefix: PathBuf,
    end: impl Fn(Vec<Attachment>) + Send + 'static,
) {
    if records.is_empty() {
        return;
    }
    let started = thread::Builder::new()
        .name("handover".to_owned())
        .spawn(move || {
            let mut left = records;
            loop {
                left = hand_over(left, &host_prefix, &Host::this(), &end);
                if left.is_empty() {
                    return;
                }
                thread::sleep(PAUSE);
            }
        });
    if let Err(error) = started {
        error!(%error, "cannot start a thread: addresses from local ranges are handed to the plugin at the next start");
    }
}

/// Hands records over, and returns those that could not be.
fn hand_over(
    records: Vec<RangeRecord>,
    host_prefix: &Path,
    host: &Host,
    end: &dyn Fn(Vec<Attachment>),
) -> Vec<RangeRecord> {
    let mut ended = Vec::new();
    let mut left = Vec::new();
    for record in records {
        match write(&record, host_prefix, host) {
            Ok(()) => ended.push(record.attachment),
            Err(fault) => {
                warn!(attachment = %record.attachment, %fault, again = ?PAUSE, "an address from a local range cannot be handed to the plugin now");
                left.push(record);
            }
        }
    }
    info!(
        records = ended.len(),
        "addresses from local ranges are the plugin's now"
    );
    end(ended);
    left
}

/// Writes the missing files of a record, and the notes. None outlives its boot: of an earlier one only the note is written, by
/// which the plugin knows that the address is free.
fn write(record: &RangeRecord, host_prefix: &Path, host: &Host) -> Result<(), Fault> {
    let Attachment::Cni {
        container, ifname, ..
    } = &record.attachment
    else {
        return Ok(());
    };
    if record.past {
        return Ok(());
    }
    let by = Holder {
        container: container.to_string(),
        ifname: Some(ifname.to_string()),
    };
    let directory = Directory::at(on_host(host_prefix, &record.directory));
    let lives = record.boot.0 == host.boot;
    if !lives && !directory.exists()? {
        return Ok(());
    }
    directory.make()?;
    let locked = directory.lock(&Progress::default())?;
    let mut names = locked.names()?;
    let seen_at = on_host(host_prefix, &record.netns);
    let note = Note::earlier(host, &record.boot.0, &record.netns, &seen_at);
    for address in record.given.iter().map(|given| given.address.addr()) {
        if !names.has(address) {
            if lives && !locked.take(&mut names, address, &by, &note)? {
                warn!(attachment = %record.attachment, %address, "somebody else has taken the address meanwhile");
            }
        } else if directory
            .holder(address)
            .is_some_and(|holder| holder.container == by.container)
        {
            locked.write_note(address, &by, &note)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use leasehold_core::range::RangeAddress;
    use leasehold_core::time::BootId;
    use tempfile::TempDir;

    use super::*;

    fn record(root: &Path, container: &str, address: &str, boot: &str) -> RangeRecord {
        RangeRecord {
            attachment: Attachment::cni("pods", container, "eth0"),
            given: vec![RangeAddress {
                address: format!("{address}/24").parse().expect("an address"),
                gateway: [10, 9, 0, 1].into(),
            }],
            netns: root.join(container),
            directory: "/data/pods".into(),
            boot: BootId(boot.to_owned()),
            past: false,
        }
    }

    /// A record ends when its file and note are there; its container's DEL and the next sweep find them.
    #[test]
    fn records_become_files_and_notes() {
        let root = TempDir::new().expect("a directory");
        let host = Host {
            boot: "now".to_owned(),
            name: "here".to_owned(),
        };
        let data = root.path().join("data/pods");
        fs::create_dir_all(&data).expect("a directory");
        fs::write(data.join("10.9.0.3"), "old\r\neth0").expect("a file");
        fs::write(data.join("10.9.0.4"), "other\r\neth0").expect("a file");
        let records = vec![
            record(root.path(), "lives", "10.9.0.2", "now"),
            record(root.path(), "old", "10.9.0.3", "before"),
            record(root.path(), "late", "10.9.0.4", "now"),
            record(root.path(), "older", "10.9.0.5", "before"),
        ];
        let ended = Cell::new(0);
        let left = hand_over(records, root.path(), &host, &|of| ended.set(of.len()));
        assert_eq!((left, ended.get()), (Vec::new(), 4));
        let mut names: Vec<_> = fs::read_dir(&data)
            .expect("a directory")
            .map(|file| {
                file.expect("a file")
                    .file_name()
                    .into_string()
                    .expect("a name")
            })
            .map(|name| name.split(".by.").next().unwrap_or_default().to_owned())
            .collect();
        names.sort();
        let expected = [
            "10.9.0.2", "10.9.0.2", "10.9.0.3", "10.9.0.3", "10.9.0.4", "lock",
        ];
        assert_eq!(names, expected);
        let file = fs::read_to_string(data.join("10.9.0.2")).expect("a file");
        assert_eq!(file, "lives\r\neth0");
    }

    #[test]
    fn a_record_stays_while_its_directory_cannot_be_made() {
        let root = TempDir::new().expect("a directory");
        fs::write(root.path().join("data"), "").expect("a file");
        let records = vec![record(root.path(), "lives", "10.9.0.2", "now")];
        let host = Host {
            boot: "now".to_owned(),
            name: "here".to_owned(),
        };
        let left = hand_over(records.clone(), root.path(), &host, &|of| {
            assert!(of.is_empty(), "{of:?}");
        });
        assert_eq!(left, records);
    }
}
