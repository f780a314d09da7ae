//! The checks: from facts to findings. Pure.

pub(super) mod directory;
pub(super) mod docker;
pub(super) mod host;
pub(super) mod kernel;
pub(super) mod networks;
pub(super) mod plugins;
pub(super) mod socket;
