//! The entry points for bytes from outside: frames, messages, options, requests. A registry's random life is among the core's
//! tests, a client's in the simulation.
//!
//! Each function takes any bytes, and panics if the result is not what it must be. The fuzz targets of `tests/fuzz` and
//! the properties of `tests/properties` drive the very same functions.

mod frame;
mod message;
mod request;

pub use frame::frame;
pub use message::{message, option};
pub use request::request;

/// An entry point.
pub type Entry = fn(&[u8]);

/// All of them, by name.
pub const ALL: [(&str, Entry); 4] = [
    ("frame", frame),
    ("message", message),
    ("option", option),
    ("request", request),
];
