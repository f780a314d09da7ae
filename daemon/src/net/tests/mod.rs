//! The net against the real kernel, in namespaces of the tests' own.

mod exchanges;
mod lab;
mod links;
mod news;
mod ports;
mod steps;
