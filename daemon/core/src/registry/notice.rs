//! What the registry has to say to the doors above it. They take it out after each step, so that the registry calls nobody.

use crate::effect::{Answer, OpId, Outcome, RequestId};
use crate::identity::Attachment;
use crate::link::own::LinkOwner;

/// What concerns a door above.
#[derive(Debug)]
pub(crate) enum Notice {
    /// One of their effects is over.
    Done(OpId, Outcome),
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
