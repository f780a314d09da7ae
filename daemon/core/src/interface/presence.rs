//! Whether a binding's address is on its interface.

/// Whether a leased address is on its interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nobody has looked, or the main plugin may not have put it there yet.
    #[default]
    Unknown,
    /// The daemon will put it there, which may have to wait for the store.
    Awaited,
    /// It is there.
    There,
    /// It is not there, and the daemon does not put it there.
    Missing,
    /// Somebody took it off: the container's owner decides what should be there. It stays off until the next ADD, and so does
    /// the address of any later lease, unless it is seen there again. KubeVirt takes the address for its virtual machine.
    TakenOff,
    /// It never came: its caller has it elsewhere, such as in a virtual machine, and wants nothing changed here until the next
    /// ADD.
    Elsewhere,
}

impl Presence {
    /// Returns whether it is on the interface, or is expected to be.
    pub(crate) fn on_link(self) -> bool {
        self != Self::Missing && !self.is_left()
    }

    /// Returns whether the interface's owner decides what is on it, until the next ADD.
    pub(crate) fn is_left(self) -> bool {
        matches!(self, Self::TakenOff | Self::Elsewhere)
    }

    /// Returns what a record says about it.
    pub(crate) fn recorded(taken_off: bool, elsewhere: bool) -> Self {
        match (taken_off, elsewhere) {
            (true, _) => Self::TakenOff,
            (false, true) => Self::Elsewhere,
            (false, false) => Self::Unknown,
        }
    }

    /// Returns what it is after a look. `configured`: if the address is not there, waiting will not help.
    pub(super) fn seen(self, there: bool, configured: bool) -> Self {
        match (there, self) {
            (true, _) => Self::There,
            (false, Self::Missing | Self::TakenOff | Self::Elsewhere) => self,
            (false, Self::There) => Self::TakenOff,
            (false, Self::Unknown | Self::Awaited) if configured => Self::TakenOff,
            (false, Self::Unknown | Self::Awaited) => Self::Missing,
        }
    }
}
