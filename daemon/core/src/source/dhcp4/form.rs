//! The client's messages to servers, and their outcomes.

use super::state::{State, StateName};
use super::{Loss, Miss, Missed, Output, Verdict};
use crate::names::named;

named! {
    /// A client's message, by its form and what it asks for (RFC 2131 table 4).
    Form {
        /// DISCOVER: for offers.
        Discover = "discover",
        /// REQUEST: for what was offered.
        Request = "request",
        /// REQUEST in INIT-REBOOT form, for a lease that no server has confirmed yet.
        Confirm = "confirm",
        /// REQUEST from RENEWING on: to one server.
        Renew = "renew",
        /// REQUEST from REBINDING on: to all.
        Rebind = "rebind",
        /// RELEASE, which nobody answers.
        Release = "release",
    }
}

impl Form {
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

    /// Returns whether its answer extends, or confirms, a held lease.
    pub const fn extends(self) -> bool {
        match self {
            Self::Confirm | Self::Renew | Self::Rebind => true,
            Self::Discover | Self::Request | Self::Release => false,
        }
    }
}

named! {
    /// The outcome of a message.
    Fate {
        /// An offer that was taken, or an ACK.
        Answered = "answered",
        /// A NAK.
        Refused = "refused",
        /// Nothing before its time was over, or before it was given up.
        Unanswered = "unanswered",
        /// It left, and has no answer.
        Sent = "sent",
        /// The link did not take it.
        Unsent = "unsent",
    }
}

/// Returns the message that is out, but not a first one that is repeated soon: the two count as one.
pub(super) fn out(state: &State) -> Option<Form> {
    match state {
        State::Selecting { tx, .. } => (tx.sent > 0).then_some(Form::Discover),
        State::Requesting { tx, .. } => (tx.sent > 0).then_some(Form::Request),
        State::Rebooting { tx, .. } => (tx.sent > 0).then_some(Form::Confirm),
        State::Extending { extension, .. } => {
            extension.is_out().then_some(match extension.rebinds {
                true => Form::Rebind,
                false => Form::Renew,
            })
        }
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
        Some(Verdict::Granted(_)) => Fate::Answered,
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
