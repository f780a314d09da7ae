//! What callers get if the daemon has no answer; and errors in a request, which `leasehold-api` words.

pub(crate) use leasehold_api::cni::{bad_config, bad_env, cut, quoted, refused, undecodable};

/// What a caller gets if there will be no answer.
pub(super) const STOPPING: &str = "the leasehold daemon is stopping";

/// What a caller gets if the answer belongs to another question.
pub(super) const OTHER_ANSWER: &str = "the daemon answered another question: this is a bug";
