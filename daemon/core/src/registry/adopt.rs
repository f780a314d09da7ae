//! Adopting containers that ran before this daemon knew of them: the incumbent's, or those of a store that was set aside.
//!
//! Where the interface still has the address that it was given, a server confirms it by INIT-REBOOT under the identifier that
//! was used then, and from there on the lease is held like any other. No other address is taken: what could not be adopted
//! stays as it was, and is listed with the reason.

use super::{Errand, Registry};
use crate::effect::{Adoptee, Answer};
use crate::identity::Attachment;
use crate::time::Now;

impl Registry {
    /// Begins to adopt a container, unless its attachment is known already.
    pub(super) fn adopt(&mut self, now: Now, adoptee: Adoptee) {
        let attachment = adoptee.add.attachment.clone();
        if self.slots.contains_key(&attachment) {
            return;
        }
        let request = self.mint_errand(Errand::Adopt(attachment));
        self.begin_adoption(now, request, adoptee);
    }

    pub(super) fn adopted(&mut self, attachment: Attachment, answer: Answer) {
        match answer {
            Answer::Leased(lease) => {
                tracing::info!(%attachment, address = %lease.address, server = %lease.server, "adopted");
                self.not_adopted.remove(&attachment);
            }
            Answer::Failed(failure) => {
                tracing::warn!(%attachment, %failure, "not adopted");
                self.not_adopted.insert(attachment, failure.to_string());
            }
            Answer::Deleted | Answer::Checked | Answer::Collected | Answer::Ready | Answer::Bindings { .. } => {}
        }
    }
}
