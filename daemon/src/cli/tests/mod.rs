//! Tests of what is made from the command line.

mod shipped;
