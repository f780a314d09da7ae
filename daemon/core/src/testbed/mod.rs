//! What a daemon finds around it, for tests: a kernel with namespaces and links, what sockets hear on a LAN, and a store. All of it
//! obeys at once and never fails; each test adds its own delays and faults.
//!
//! The tests of the registry and the simulation share it. Servers are not here: those of the registry's tests say what no proper
//! server says, and those of the simulation are a model that real clients are tested with.

pub mod kept;
pub mod kernel;
pub mod lan;
pub mod link;
mod made;
pub mod store;
