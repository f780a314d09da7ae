//! The decisions of leasehold, without any I/O.
//!
//! [`Core`] owns all bindings and all rules. It is sans-IO: it never reads a clock, opens a socket or a
//! file, starts a thread or asks for randomness. The outside hands it an [`effect::Input`] with the current time, then drains
//! its [`effect::Effect`]s, carries them out, and hands in their outcomes:
//!
//! ```
//! use std::time::Duration;
//! use leasehold_core::effect::{Answer, Call, Effect, Input, Outcome, RequestId};
//! use leasehold_core::identity::Attachment;
//! use leasehold_core::link::own::OwnLinks;
//! use leasehold_core::registry::Config;
//! use leasehold_core::time::{BootId, Instant, Now, WallTime};
//! use leasehold_core::Core;
//!
//! let at = |seconds| Now {
//!     boot: Instant::from_boot(Duration::from_secs(seconds)),
//!     wall: WallTime::from_epoch(Duration::from_secs(1_700_000_000 + seconds)),
//! };
//! let mut core = Core::new(Config::default(), 1);
//! let boot = BootId("2f1c".to_owned());
//! core.handle(at(1), Input::Start { boot, records: Vec::new(), doors: Vec::new(), spooled: Vec::new(), adoptees: Vec::new() });
//!
//! // A runtime deletes an attachment that nobody knows: that succeeds.
//! let attachment = Attachment::cni("lan", "c1", "eth0");
//! core.handle(at(2), Input::Request { id: RequestId(1), call: Call::Del { attachment, grace: None } });
//!
//! // Drain: every effect that bears an op is answered by one Done.
//! let mut answers = Vec::new();
//! while let Some(effect) = core.poll_effect() {
//!     match effect {
//!         Effect::Reply { id, answer } => answers.push((id, answer)),
//!         Effect::Persist { op, changes: _ } => {
//!             core.handle(at(2), Input::Done { op, outcome: Outcome::Persisted(Ok(())) });
//!         }
//!         // At the start: which links were made for Docker and left behind?
//!         Effect::ListOwn { op } => {
//!             core.handle(at(2), Input::Done { op, outcome: Outcome::OwnLinks(Ok(OwnLinks::default())) });
//!         }
//!         other => panic!("nothing else is to be done: {other:?}"),
//!     }
//! }
//! assert_eq!(answers, [(RequestId(1), Answer::Deleted)]);
//!
//! // Then wait for the next input, or until this time.
//! assert_eq!(core.poll_timeout(), None);
//! ```
//!
//! Inside, imports run one way: `core` → `docker` → `registry` → `binding` → `interface` → `plan`, `conflict` → `source` → `wire` →
//! `time`. `effect` and `record` are the contract with the outside.

mod backoff;
mod binding;
pub mod conflict;
mod core;
pub mod counts;
pub mod docker;
pub mod effect;
pub mod event;
mod failure;
pub mod grant;
pub mod identity;
mod interface;
mod job;
mod lan;
pub mod limits;
pub mod link;
mod names;
pub mod network;
mod outbox;
mod patience;
pub mod plan;
pub mod pool;
pub mod profile;
mod question;
pub mod range;
pub mod record;
pub mod registry;
pub mod rules;
pub mod silence;
pub mod source;
pub mod tenure;
#[cfg(any(test, feature = "testbed"))]
pub mod testbed;
pub mod time;
pub mod trouble;
pub mod wire;

pub use self::core::Core;
