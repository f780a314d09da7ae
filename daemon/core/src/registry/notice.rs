//! What the registry has to say to the doors above it. They take it out after each step, so that the registry calls nobody.

use super::timers::DoorTimer;
use crate::effect::{Answer, Outcome, RequestId};
use crate::identity::Attachment;
use crate::link::own::LinkOwner;
use crate::outbox::DoorWaiter;

/// What concerns a door above.
#[derive(Debug)]
pub(crate) enum Notice {
    /// One of their effects is over.
    Done(DoorWaiter, Outcome),
    /// One of their deadlines has come.
    Due(DoorTimer),
    /// One of their ADDs is answered.
    Answered {
        /// The ADD.
        id: RequestId,
        /// The one it was for.
        attachment: Attachment,
        /// The answer.
        answer: Answer,
    },
    /// Nothing is left of a binding of this attachment.
    Over(Attachment),
    /// A link that the daemon made is in the host's namespace, or has left it.
    OwnLink {
        /// Whose it is.
        owner: LinkOwner,
        /// Whether it is there.
        there: bool,
    },
    /// Messages of the kernel were lost: anything may have happened.
    Missed,
}
