//! What only tests make: a profile from one of its parts, and an earlier instant.

use std::ops::Sub;
use std::sync::Arc;
use std::time::Duration;

use crate::grant::policy::Policy;
use crate::profile::Profile;
use crate::source::ClientProfile;
use crate::time::Instant;

impl From<Policy> for Profile {
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }
}

impl From<ClientProfile> for Profile {
    fn from(client: ClientProfile) -> Self {
        Self {
            client: Arc::new(client),
            ..Self::default()
        }
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self::from_boot(self.since_boot().saturating_sub(rhs))
    }
}
