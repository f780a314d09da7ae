//! stub
#![allow(unsafe_code)]
pub(crate) mod inherit;
