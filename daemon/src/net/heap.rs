//! The memory that the allocator keeps.
//!
//! By itself it gives each thread a heap of its own, up to eight for each processor, and gives back only what is free at the end
//! of one. A burst leaves leases scattered over what its calls and exchanges took, so that all of that would stay.
#![allow(unsafe_code)] // The allocator's two switches.

use nix::libc;

/// Has all threads share one heap: few of them allocate, and none of those much. To be called before there is a second thread.
pub(crate) fn share() {
    // SAFETY: it sets a number within the allocator, which locks itself.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives all pages back to the kernel on which nothing is in use.
pub(super) fn trim() {
    // SAFETY: it changes nothing that is in use, and locks each heap.
    unsafe { libc::malloc_trim(0) };
}
