//! Profiles that bindings share: most attachments of a network have equal ones.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::profile::Profile;

/// How many profiles are compared. A network with host names has one for each.
const MOST: usize = 64;

/// The profiles that came last and are in use.
#[derive(Debug, Default)]
pub(super) struct Profiles(VecDeque<Arc<Profile>>);

impl Profiles {
    /// Returns a profile, shared with others that are equal.
    pub(super) fn share(&mut self, profile: Profile) -> Arc<Profile> {
        if let Some(known) = self.0.iter().find(|known| ***known == profile) {
            return known.clone();
        }
        self.0.retain(|known| Arc::strong_count(known) > 1);
        self.0.truncate(MOST - 1);
        let new = Arc::new(profile);
        self.0.push_front(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ClientProfile;

    fn named(n: usize) -> Profile {
        Profile::from(ClientProfile {
            hostname: Some(n.to_string()),
            ..ClientProfile::default()
        })
    }

    #[test]
    fn equal_profiles_are_one_and_others_are_not() {
        let mut profiles = Profiles::default();
        let a = profiles.share(named(1));
        let b = profiles.share(named(2));
        let c = profiles.share(named(1));
        assert!(Arc::ptr_eq(&a, &c) && !Arc::ptr_eq(&a, &b));
        assert_eq!((&*a, &*b), (&named(1), &named(2)));
    }

    #[test]
    fn the_latest_profiles_in_use_are_known() {
        let mut profiles = Profiles::default();
        drop(profiles.share(named(0)));
        let used: Vec<_> = (1..=MOST + 5).map(|n| profiles.share(named(n))).collect();
        assert_eq!(profiles.0.len(), MOST);
        let last = profiles.share(named(MOST + 5));
        assert!(Arc::ptr_eq(&last, &used[MOST + 4]));
        drop((used, last));
        let _new = profiles.share(named(0));
        assert_eq!(profiles.0.len(), 1);
    }
}
