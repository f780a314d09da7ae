//! The registry's rules, one scenario each. What needs thousands of scenarios is in the simulation.

mod calls;
mod change;
mod conflict;
mod events;
mod loss;
mod memory;
mod resolver;
mod rig;
mod store;
mod verbs;
