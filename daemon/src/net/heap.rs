//! The memory that the allocator keeps.
//!
//! By itself it gives each thread its own heap, up to eight for each processor, and only gives back what is free at the end of
//! one. A burst leaves leases scattered over what its calls and exchanges took, so that all of that would stay.
#![allow(unsafe_code)] // The allocator's two switches.

use nix::libc;

/// Makes all threads share one heap: few of them allocate, and none of those much. Must be called before there is a second
/// thread.
pub(crate) fn share() {
    // SAFETY: it sets a number within the allocator, which locks itself.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives all unused pages back to the kernel.
pub(super) fn trim() {
    // SAFETY: it changes nothing that is in use, and locks each heap.
    unsafe { libc::malloc_trim(0) };
}
