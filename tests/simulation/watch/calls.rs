//! Calls handed to the core, and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use leasehold_core::effect::{Add, Answer, Call, NetworkAnswer, NetworkCall, PoolCall, RequestId};
use leasehold_core::identity::{Attachment, ClientId};
use leasehold_core::record::{Record, RecordState};
use leasehold_core::tenure::Tenure;
use leasehold_core::testbed::store::Store;
use leasehold_core::wire::Mac;
use netns_fixtures::model::ClientKey;

use super::{Breach, Rule, breach};
use crate::subject::{add_of, created, is_collected};

/// A request that was handed to the core.
#[derive(Debug)]
struct Asked {
    call: Call,
    /// When its answer is due.
    due: u64,
    /// Whether a DEL has overtaken this ADD, which can then no longer succeed.
    overtaken: bool,
}

/// How soon a DEL or CHECK is answered, in microseconds: this includes the shell's own limits, but no endless failures.
const PATIENCE: u64 = 30_000_000;
/// How late an ADD on the host's link may be answered: the macvlan that it asks from must be made, and removed first.
const PORT: u64 = 10_000_000;
/// How late a timer may be.
const SLACK: u64 = 50_000;

/// The calls of one run of the daemon: each is answered once, in time, and the answer is true and durable.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    asked: BTreeMap<RequestId, Asked>,
    gone: BTreeSet<RequestId>,
    /// Clients of containers that are being adopted, and until when.
    adopting: BTreeMap<Vec<u8>, u64>,
}

impl Calls {
    /// Records a request that is handed to the core.
    pub(crate) fn request(&mut self, now: u64, id: RequestId, call: &Call) {
        let limit = match call {
            Call::Add(add) if add.place.netns().is_none() => add.timeout.as_micros() as u64 + PORT,
            Call::Add(add) => add.timeout.as_micros() as u64 + SLACK,
            // The store and the kernel come after the lease.
            Call::Network(_) if add_of(call).is_some() => {
                add_of(call).map_or(0, |add| add.timeout.as_micros() as u64) + PATIENCE
            }
            Call::Del { .. }
            | Call::Check { .. }
            | Call::Collect { .. }
            | Call::Status { .. }
            | Call::Ready => PATIENCE,
            // The turns of a crowd come on top.
            Call::Order(_) => 2 * PATIENCE,
            Call::Show(_) => PATIENCE,
            Call::Pool(
                PoolCall::Request(_) | PoolCall::Reserve { .. } | PoolCall::ReleaseAddress { .. },
            )
            | Call::Network(_) => PATIENCE,
            Call::List | Call::Pool(PoolCall::Release { .. }) | Call::Ranges => SLACK,
        };
        if let Call::Del { attachment, .. } = call {
            let adds = |asked: &&mut Asked| added(&asked.call) == Some(attachment);
            self.asked
                .values_mut()
                .filter(adds)
                .for_each(|asked| asked.overtaken = true);
        }
        if let Call::Collect { network, keep } = call {
            let stale = |attachment: &Attachment| is_collected(attachment, network, keep);
            let adds = |asked: &&mut Asked| added(&asked.call).is_some_and(stale);
            self.asked
                .values_mut()
                .filter(adds)
                .for_each(|asked| asked.overtaken = true);
        }
        if let Call::Network(NetworkCall::DeleteEndpoint(endpoint)) = call {
            let is_it = |asked: &&mut Asked| matches!(created(&asked.call), Some(request) if request.id == *endpoint);
            self.asked
                .values_mut()
                .filter(is_it)
                .for_each(|asked| asked.overtaken = true);
        }
        self.asked.insert(
            id,
            Asked {
                call: call.clone(),
                due: now + limit,
                overtaken: false,
            },
        );
    }

    /// Handles a suspend of the host: what was due during it is due that much later.
    pub(crate) fn resumed(&mut self, asleep: u64) {
        self.asked
            .values_mut()
            .for_each(|asked| asked.due += asleep);
    }

    /// Records a hang-up that is handed to the core; returns whether its request was still open.
    pub(crate) fn hung_up(&mut self, id: RequestId) -> bool {
        self.gone.insert(id);
        self.asked.remove(&id).is_some()
    }

    /// Returns the namespace of the ADD that a request is for, while the request is open.
    pub(crate) fn namespace_of(&self, id: RequestId) -> Option<PathBuf> {
        match &self.asked.get(&id)?.call {
            Call::Add(add) => add.place.netns().map(Path::to_owned),
            _ => None,
        }
    }

    /// Records that the daemon adopts a container, which counts as a call until `until`.
    pub(crate) fn adopts(&mut self, client: &ClientId, until: u64) {
        self.adopting.insert(client.as_bytes().to_vec(), until);
    }

    /// Returns whether somebody waits for a client's lease.
    pub(crate) fn waits_for(&self, now: u64, client: &ClientKey) -> bool {
        let ClientKey::Id(id) = client else {
            return false;
        };
        let is_it = |add: &Add| add.client_id.resolve(Mac::default()).as_bytes() == id;
        self.asked
            .values()
            .any(|asked| add_of(&asked.call).is_some_and(is_it))
            || self.adopting.get(id).is_some_and(|until| now < *until)
    }

    /// Returns whether a call is waiting for its answer.
    pub(crate) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Finds a request that should have been answered.
    pub(crate) fn overdue(&self, now: u64) -> Option<Breach> {
        let (id, asked) = self.asked.iter().find(|(_, asked)| now > asked.due)?;
        Some(breach(
            Rule::Unanswered,
            format!("{id:?}: {:?}", asked.call),
        ))
    }

    pub(crate) fn reply(
        &mut self,
        id: RequestId,
        answer: &Answer,
        store: &Store,
    ) -> Option<Breach> {
        let Some(asked) = self.asked.remove(&id) else {
            let rule = if self.gone.contains(&id) {
                Rule::AnswerToNobody
            } else {
                Rule::Answers
            };
            return Some(breach(rule, format!("{id:?}: {answer:?}")));
        };
        match (&asked.call, answer) {
            (Call::Add(add), Answer::Leased { .. }) if asked.overtaken => Some(breach(
                Rule::DelOvertaken,
                format!("{} was leased after its DEL", add.attachment),
            )),
            (Call::Add(add), Answer::Leased { tenures }) => {
                let durable = store.known().any(|record| {
                    let bound =
                        record.attachment == add.attachment && record.state == RecordState::Bound;
                    // Times are not in the answer: an extension may wait for the store.
                    bound && tenures.iter().all(|told| is_of(record, add, told))
                });
                (!durable)
                    .then(|| breach(Rule::NotDurable, format!("{}: {tenures:?}", add.attachment)))
            }
            (
                Call::Network(NetworkCall::CreateEndpoint(request)),
                Answer::Network(NetworkAnswer::Endpoint(record)),
            ) => {
                let durable = store.docker.endpoints.get(&request.id) == Some(&**record);
                match () {
                    () if asked.overtaken => Some(breach(
                        Rule::DelOvertaken,
                        format!("{} is there after its end", request.id),
                    )),
                    () => (!durable).then(|| breach(Rule::NotDurable, format!("{record:?}"))),
                }
            }
            (
                Call::Network(NetworkCall::Create(_) | NetworkCall::Delete(_)),
                Answer::Network(NetworkAnswer::Done),
            )
            | (
                Call::Network(NetworkCall::DeleteEndpoint(_)),
                Answer::Network(NetworkAnswer::Done),
            )
            | (
                Call::Network(NetworkCall::Join { .. }),
                Answer::Network(NetworkAnswer::Joined { .. }),
            )
            | (Call::Del { .. }, Answer::Deleted)
            | (Call::Check { .. }, Answer::Checked)
            | (Call::Collect { .. }, Answer::Collected)
            | (Call::Status { .. }, Answer::Ready)
            | (Call::Ready, Answer::Ready)
            | (Call::List, Answer::Bindings { .. })
            | (Call::Order(_), Answer::Obeyed(_))
            | (Call::Show(_), Answer::Shown(_))
            | (Call::Ranges, Answer::Ranges(_))
            | (Call::Pool(PoolCall::Request(_)), Answer::Pool { .. })
            | (Call::Pool(PoolCall::Release { .. }), Answer::PoolReleased)
            | (Call::Pool(PoolCall::Reserve { .. }), Answer::Reserved(_))
            | (Call::Pool(PoolCall::ReleaseAddress { .. }), Answer::Released)
            | (_, Answer::Failed(_)) => None,
            (call, answer) => Some(breach(Rule::WrongAnswer, format!("{call:?}: {answer:?}"))),
        }
    }
}

/// Returns the attachment of a call that is an ADD.
fn added(call: &Call) -> Option<&Attachment> {
    match call {
        Call::Add(add) => Some(&add.attachment),
        _ => None,
    }
}

/// Returns whether a record matches what the caller of an ADD was told.
pub(crate) fn is_of(record: &Record, add: &Add, told: &Tenure) -> bool {
    record
        .lease
        .tenure(&add.profile.policy)
        .without_late()
        .grants_the_same(told)
}
