//! Fuzzes a server's messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_tests::hostile::message(bytes));
