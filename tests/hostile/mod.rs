//! The entry points for bytes from outside: frames, messages, options, requests; and for whole scripts of what can
//! happen to a client. A registry's random life is among the core's tests.
//!
//! Each function takes any bytes, and panics if the result is not what it must be. The fuzz targets of `tests/fuzz` and
//! the properties of `tests/properties` drive the very same functions.

mod client;
mod frame;
mod message;
mod request;
mod script;

pub use client::client;
pub use frame::frame;
pub use message::{message, option};
pub use request::request;

/// An entry point.
pub type Entry = fn(&[u8]);

/// All of them, by name.
pub const ALL: [(&str, Entry); 5] = [
    ("frame", frame),
    ("message", message),
    ("option", option),
    ("request", request),
    ("client", client),
];
