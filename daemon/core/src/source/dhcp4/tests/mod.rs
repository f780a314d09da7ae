//! The client under a virtual clock. `script` has the test bench: a client, a server's answers as bytes, what was sent.

mod answers;
mod choices;
mod conflicts;
mod extend;
mod messages;
mod reach;
mod script;
mod timers;
mod values;
