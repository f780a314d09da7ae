//! The net against the real kernel, in namespaces of the tests.

mod alarm;
mod exchanges;
mod frames;
mod lab;
mod links;
mod news;
mod own;
mod ports;
mod seek;
mod steps;
mod visits;
