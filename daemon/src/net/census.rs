//! Which links are in which namespaces, by the host's numbers for the namespaces.
//!
//! A namespace without a path can only be found this way. Searching all of them costs a message each, so the result is kept for a
//! while: usually many are sought at once.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use leasehold_core::link::LinkCause;
use leasehold_core::wire::Mac;

use super::netlink::LinkAnswer;

/// How long a result is kept, as a multiple of the time that the search took.
const SHARE: u32 = 20;

/// The links in all namespaces that have a number, as last seen.
#[derive(Debug, Default)]
pub(super) struct Census(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    until: Option<Instant>,
    /// The numbers of the namespaces that have a link of this index and Ethernet address.
    links: HashMap<(u32, Mac), Vec<i32>>,
}

impl Census {
    /// Returns the numbers of the namespaces that may have a link of this index and Ethernet address. `look` lists the links of
    /// all namespaces, with their numbers.
    pub(super) fn of(
        &self,
        link: (u32, Mac),
        look: impl FnOnce() -> Result<Vec<(i32, LinkAnswer)>, LinkCause>,
    ) -> Result<Vec<i32>, LinkCause> {
        let mut seen = self
            .0
            .lock()
            .expect("nothing panics while it holds the census");
        let began = Instant::now();
        if seen.until.is_none_or(|until| began > until) {
            let mut links: HashMap<_, Vec<_>> = HashMap::new();
            for (number, there) in look()? {
                there
                    .mac
                    .into_iter()
                    .for_each(|mac| links.entry((there.index, mac)).or_default().push(number));
            }
            *seen = Seen {
                until: Some(Instant::now() + began.elapsed() * SHARE),
                links,
            };
        }
        Ok(seen.links.get(&link).cloned().unwrap_or_default())
    }
}
