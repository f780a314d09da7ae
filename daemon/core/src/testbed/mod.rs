//! What a daemon finds around it, for tests: a kernel with namespaces and links, and a store. Both obey at once and never fail;
//! delays and faults are a test's own.
//!
//! The tests of the registry and the simulation share it. Servers are not here: those of the registry's tests say what no right
//! server says, and those of the simulation are a model that real ones are compared with.

pub mod kernel;
pub mod link;
pub mod store;
