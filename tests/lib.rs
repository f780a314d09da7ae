//! What the tests of this crate share.

pub mod documents;
pub mod hostile;
