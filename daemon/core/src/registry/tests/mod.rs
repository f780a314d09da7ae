//! The registry's rules, one scenario each. What needs thousands of scenarios is in the simulation.

mod adopt;
mod announce;
mod calls;
mod change;
mod check;
mod clock;
mod conflict;
mod events;
mod interface;
mod keep;
mod late;
mod leaks;
mod loss;
mod memory;
mod mtu;
mod races;
mod refused;
mod resolver;
mod review;
mod rig;
mod silence;
mod store;
mod unsent;
mod verbs;
