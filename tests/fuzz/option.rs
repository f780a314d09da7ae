//! Fuzzes options behind a good header.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_tests::hostile::option(bytes));
