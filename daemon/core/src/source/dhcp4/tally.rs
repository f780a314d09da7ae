//! What a client without a lease has tried.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use super::Refused;
use super::accept::Refusal;
use crate::wire::Mac;
use crate::wire::message::{BadMessage, MessageType};

/// What was tried since the last lease, to explain why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// DISCOVERs sent.
    pub discovers: u32,
    /// Answers that came in, good or bad.
    pub answers: u32,
    /// Answers that were refused.
    pub refused: u32,
    /// Why the last answer was refused.
    pub last_refusal: Option<Refused>,
    /// Messages that the link did not accept.
    pub unsent: u32,
    /// Why it did not accept the last one.
    pub last_unsent: Option<String>,
    /// The last offer that was taken, and the REQUESTs sent for it.
    pub requested: Option<(Ipv4Addr, Ipv4Addr, u32)>,
    /// The last address that was declined, and who uses it.
    pub declined: Option<(Ipv4Addr, Mac)>,
    /// Whether it is one of many who ask at once.
    pub(super) crowded: bool,
    /// The servers whose offers wait for those of others, the latest last.
    pub(super) shunned: Vec<Ipv4Addr>,
    /// NAKs in a row.
    pub(super) naks: u32,
    /// Tries in a row without a result: there were no sockets, or an offer was never acknowledged.
    pub(super) in_vain: u32,
}

impl Tally {
    /// Counts an answer that is not believed.
    pub(super) fn count(&mut self, refused: Refused) {
        match refused {
            // An answer to somebody else, a client's message that a bridge or an access point sends back, and a second server's
            // offer.
            Refused::Unbelieved(Refusal::OtherXid | Refusal::OtherChaddr)
            | Refused::Malformed(BadMessage::NotAReply(_))
            | Refused::Unbelieved(Refusal::Unexpected {
                kind: MessageType::Offer,
                ..
            }) => {}
            Refused::Unbelieved(_) | Refused::Malformed(_) | Refused::Unreadable(_) => {
                self.answers += 1;
                self.refused += 1;
                self.last_refusal = Some(refused);
            }
        }
    }

    /// Counts a try without a result. Returns how many there were in a row.
    pub(super) fn tried_in_vain(&mut self) -> u32 {
        self.in_vain += 1;
        self.in_vain
    }

    /// Returns what is known about why the messages sent came to nothing, for a person; `None` if nothing is.
    pub fn reason(&self) -> Option<String> {
        let last = |cause: &Option<String>| {
            cause
                .as_ref()
                .map(|cause| format!(", the last because: {cause}"))
        };
        match self {
            Self { unsent: 1.., .. } => Some(format!(
                "{} could not be sent{}: does an nftables rule (netdev, egress) or a full queue (tc) stop them?",
                number(self.unsent, "message"),
                last(&self.last_unsent).unwrap_or_default()
            )),
            Self { refused: 1.., .. } => {
                let cause = self.last_refusal.as_ref().map(ToString::to_string);
                Some(format!(
                    "{} of {} refused{}",
                    self.refused,
                    number(self.answers, "answer"),
                    last(&cause).unwrap_or_default()
                ))
            }
            Self { .. } => None,
        }
    }
}

fn number(count: u32, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The tally of a client that has not tried anything.
pub(super) static UNTRIED: LazyLock<Tally> = LazyLock::new(Tally::default);
