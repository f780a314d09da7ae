//! The client's messages to servers, and their outcomes.

use super::state::{State, StateName};
use super::{Loss, Miss, Missed, Output, Verdict};

/// A client's message, by its form and what it asks for (RFC 2131 table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// DISCOVER: for offers.
    Discover,
    /// REQUEST: for what was offered.
    Request,
    /// REQUEST in INIT-REBOOT form, for a lease that no server has confirmed yet.
    Confirm,
    /// REQUEST from RENEWING on: to one server.
    Renew,
    /// REQUEST from REBINDING on: to all.
    Rebind,
    /// RELEASE, which nobody answers.
    Release,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 6] = [
        Self::Discover,
        Self::Request,
        Self::Confirm,
        Self::Renew,
        Self::Rebind,
        Self::Release,
    ];

    /// Returns its possible outcomes.
    pub const fn fates(self) -> &'static [Fate] {
        match self {
            Self::Release => &[Fate::Sent, Fate::Unsent],
            Self::Discover => &[Fate::Answered, Fate::Unanswered],
            Self::Request | Self::Confirm | Self::Renew | Self::Rebind => {
                &[Fate::Answered, Fate::Refused, Fate::Unanswered]
            }
        }
    }

    /// Returns its name, which is for programs and stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discover => "discover",
            Self::Request => "request",
            Self::Confirm => "confirm",
            Self::Renew => "renew",
            Self::Rebind => "rebind",
            Self::Release => "release",
        }
    }

    /// Returns whether its answer extends, or confirms, a held lease.
    pub const fn extends(self) -> bool {
        match self {
            Self::Confirm | Self::Renew | Self::Rebind => true,
            Self::Discover | Self::Request | Self::Release => false,
        }
    }
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// An offer that was taken, or an ACK.
    Answered,
    /// A NAK.
    Refused,
    /// Nothing before its time was over, or before it was given up.
    Unanswered,
    /// It left, and has no answer.
    Sent,
    /// The link did not take it.
    Unsent,
}

impl Fate {
    /// Returns its name, which is for programs and stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
            Self::Sent => "sent",
            Self::Unsent => "unsent",
        }
    }
}

/// Returns the message that is out, but not a first one that is repeated soon: the two count as one.
pub(super) fn out(state: &State) -> Option<Form> {
    match state {
        State::Selecting { tx, .. } => (tx.sent > 0).then_some(Form::Discover),
        State::Requesting { tx, .. } => (tx.sent > 0).then_some(Form::Request),
        State::Rebooting { tx, .. } => (tx.sent > 0).then_some(Form::Confirm),
        State::Renewing { extension, .. } => extension.is_out().then_some(Form::Renew),
        State::Rebinding { extension, .. } => extension.is_out().then_some(Form::Rebind),
        State::Init { .. } | State::InitReboot { .. } | State::Bound { .. } => None,
    }
}

/// Returns the message whose fate a signal settled, with that fate. `before`: the state's name before the signal, and the
/// message that was out.
pub(super) fn settled(
    before: (StateName, Option<Form>),
    after: &State,
    output: &Output,
) -> Option<(Form, Fate)> {
    let (state, asked) = before;
    let is_nak = matches!(
        output.missed,
        Some(Missed {
            miss: Miss::Nak { .. },
            ..
        })
    );
    let fate = match &output.verdict {
        _ if is_nak => Fate::Refused,
        Some(Verdict::Won(_) | Verdict::Kept(_) | Verdict::Unwanted { .. }) => Fate::Answered,
        // Its ACK was declined at once.
        Some(Verdict::Lost(_, Loss::Conflict { .. })) if state == StateName::Requesting => {
            Fate::Answered
        }
        _ if (state, after.name()) == (StateName::Selecting, StateName::Requesting) => {
            Fate::Answered
        }
        _ if asked == out(after) && output.frames.is_empty() => return None,
        _ => Fate::Unanswered,
    };
    // The first message, answered before it was repeated.
    let first = match (state, fate) {
        (StateName::Selecting, Fate::Answered) => Some(Form::Discover),
        (StateName::Rebooting, Fate::Answered | Fate::Refused) => Some(Form::Confirm),
        _ => None,
    };
    Some((asked.or(first)?, fate))
}
