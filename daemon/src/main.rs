//! stub
mod http;

fn main() {}
