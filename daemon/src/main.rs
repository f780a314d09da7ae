//! stub
mod clock;
mod net;

fn main() {}
