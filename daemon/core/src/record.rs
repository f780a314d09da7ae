//! What survives a restart.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::grant::Grant;
use crate::identity::{Attachment, Identity};
use crate::link::Link;
use crate::profile::Profile;
use crate::source::Lease;
use crate::time::{BootId, Instant, Now, WallTime};

/// Names a binding, in the store and within a run. A new ADD of a known attachment gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BindingId(pub u64);

/// A binding as the store holds it. JSON there, so that an operator can read a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who holds the lease, or held it.
    pub attachment: Attachment,
    /// How the server recognises the holder.
    pub identity: Identity,
    /// What its client says and wants.
    #[serde(default)]
    pub profile: Profile,
    /// Where its packets go.
    pub link: Link,
    /// The lease. Its instants are on the clock of `boot`.
    pub lease: Lease,
    /// Held, or being given back.
    pub state: RecordState,
    /// The boot whose clock the lease's instants are on.
    pub boot: BootId,
    /// The wall clock at the lease's start: the only way from one boot's clock to the next one's.
    pub since: WallTime,
    /// Until when a lease that is being given back is kept for its identity, counted from the lease's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Duration>,
    /// What is still to do at the interface, or what it keeps by choice. `None`: it carries what `lease` says if `Bound`, or
    /// nothing of it if `Seeking`, as far as the profile wants the interface changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Box<Former>>,
    /// Whether somebody took the leased address off the interface. It stays off until the next ADD, and so do the addresses of
    /// later leases.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_off: bool,
    /// Whether the lease is used unconfirmed: its link may have moved to another network, or servers were silent when its
    /// identity returned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
    /// Whether the leased address never appeared on the interface: its caller has it elsewhere. Nothing is put there until
    /// the next ADD.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// The address that was given to a caller that cannot be told about a later one, and that names this one when it gives the
    /// lease back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Ipv4Net>,
}

/// What an interface may carry of earlier grants, and must lose. If the daemon ends first, the next one takes it off: every
/// step can be taken twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The grants of one family that may have something there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Whether nothing there is certain, not even what the record's lease has in common with these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// Whether another station uses an address of these: they are removed, though the profile keeps what ends (RFC 5227
    /// §2.4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    /// Whether the MTU must still be set: that of the record's lease, or of the first of these if the profile keeps what
    /// changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mtu_due: bool,
    /// Whether routes of that lease must still be put on: the main plugin did not get them, or the kernel took them with the
    /// link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub routes_due: bool,
    /// The router that somebody else's default route may still use: that of the last lease, which has nothing else there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<IpAddr>,
}

/// Whether a lease is held or being given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordState {
    /// The attachment holds the lease.
    Bound,
    /// The attachment holds none: this was its last lease, which ended or was refused. Another is being looked for.
    Seeking,
    /// The attachment is gone; the server may not know yet.
    Releasing,
    /// Nobody holds the lease: it was the last of an identity that may return, and will then ask for its address.
    Past,
}

impl RecordState {
    /// Returns whether its attachment is gone.
    pub fn is_over(self) -> bool {
        match self {
            Self::Releasing | Self::Past => true,
            Self::Bound | Self::Seeking => false,
        }
    }
}

impl Record {
    /// Returns what the wall clock reads at an instant of its boot, if nobody has set it since the record was written.
    pub fn wall_at(&self, instant: Instant) -> WallTime {
        WallTime::from_epoch(self.since.since_epoch() + instant.saturating_since(self.lease.start))
    }

    /// Moves the lease's instants onto this boot's clock.
    ///
    /// After a reboot only the wall clock shows how much of the lease has passed. If the wall clock went back, the lease looks
    /// too young: its age then counts as zero, as if the lease had just begun.
    pub fn rebase(&mut self, boot: &BootId, now: Now) {
        if self.boot == *boot {
            return;
        }
        let age = now.wall.saturating_since(self.since);
        // The boot clock began at zero: a start before this boot is cut to zero, and the times are shortened by as much.
        let cut = age.saturating_sub(now.boot.since_boot());
        self.lease.start = Instant::from_boot(now.boot.since_boot().saturating_sub(age));
        if let Some(times) = &mut self.lease.times {
            let shorten = |d: Duration| d.saturating_sub(cut);
            (times.t1, times.t2, times.end) =
                (shorten(times.t1), shorten(times.t2), shorten(times.end));
        }
        self.kept = self.kept.map(|kept| kept.saturating_sub(cut));
        self.boot = boot.clone();
    }
}

/// One change of the store. Changes of one transaction happen together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Writes a binding's record, replacing what was there.
    Put(BindingId, Box<Record>),
    /// Forgets a binding.
    Remove(BindingId),
    /// Adds an event to the journal. The store numbers it.
    Note(Box<Event>),
    /// Writes what a front door keeps, replacing what was there.
    PutDoor(Box<DoorRecord>),
    /// Forgets what a front door kept.
    RemoveDoor(DoorKey),
}

impl Change {
    /// Returns the change to the copy of the store: the copy has what nobody but the store remembers. It may be older than the
    /// store, so its leases must be confirmed.
    pub fn copied(&self) -> Option<Self> {
        match self {
            Self::Put(id, record) if record.profile.wants.told_once => Some(Self::Put(
                *id,
                Box::new(Record {
                    unconfirmed: true,
                    ..(**record).clone()
                }),
            )),
            Self::Put(..) | Self::Note(_) => None,
            Self::Remove(_) | Self::PutDoor(_) | Self::RemoveDoor(_) => Some(self.clone()),
        }
    }
}

/// Returns the binding that a transaction ends, if it does nothing else except report that. A transaction that replaces a record
/// does not count.
pub fn ended_by(changes: &[Change]) -> Option<BindingId> {
    let ended = |change: &Change| match change {
        Change::Put(id, record) => Some(*id).filter(|_| record.state.is_over()),
        Change::Remove(id) => Some(*id),
        Change::Note(_) | Change::PutDoor(_) | Change::RemoveDoor(_) => None,
    };
    let mut others = changes
        .iter()
        .filter(|change| !matches!(change, Change::Note(_)));
    let binding = others.next().and_then(ended)?;
    others.next().is_none().then_some(binding)
}

/// Something that a front door keeps besides its leases, in its own terms: only that door's part of the core reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorRecord {
    /// Its key.
    pub key: DoorKey,
    /// What it says, as JSON.
    pub json: String,
}

/// The key of a door's record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DoorKey {
    /// The table of the store that it is in.
    pub table: String,
    /// Its name there.
    pub name: String,
}
