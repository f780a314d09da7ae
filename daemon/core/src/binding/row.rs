//! What `list` shows of a binding.

use std::time::Duration;

use super::Binding;
use crate::effect::Row;
use crate::time::Instant;

/// Returns a binding as `list` shows it.
pub(crate) fn row(binding: &Binding, now: Instant) -> Row {
    let tenure = binding
        .lease(now)
        .map(|lease| lease.tenure(&binding.profile.policy));
    let times = tenure.as_ref().and_then(|tenure| tenure.times);
    let until = |at: Option<Instant>| at.map(|at| at.saturating_since(now));
    Row {
        attachment: (*binding.attachment).clone(),
        identity: Some(binding.identity.clone()),
        state: binding.state(),
        hostname: binding.profile.client.hostname.clone(),
        lost: binding.lacks_lease(now),
        in_vain: binding.unextended(now).map(|(_, in_vain)| {
            let since = in_vain.since.map(|since| now.saturating_since(since));
            (in_vain.times, since)
        }),
        age: tenure
            .as_ref()
            .map_or(Duration::ZERO, |tenure| now.saturating_since(tenure.start)),
        told: binding.told,
        tenure,
        extended: until(times.map(|times| times.extended)),
        rebound: until(times.map(|times| times.rebound)),
        ends: until(times.map(|times| times.ends)),
        kept: until(binding.kept_until()),
        pathless: binding.is_pathless,
        held_up: binding
            .releasing_now()
            .and_then(|release| release.held_up(now)),
        link: Some(binding.link.clone()),
    }
}
