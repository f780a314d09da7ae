//! Memory that the daemon holds but does not need.
//!
//! By default the allocator gives each thread its own heap, up to eight per processor, and only returns free memory at the end of
//! a heap. A burst leaves leases scattered among the memory of its calls and exchanges, so all of that memory would stay. And the
//! kernel maps 64 KiB of the program's file around each page that runs: after a burst, nearly all of the file.
#![allow(unsafe_code)] // The allocator's two switches, and the bounds of the program's code.

use nix::libc;

/// The size of a page, or of the largest that there are.
const PAGE: usize = 64 << 10;

unsafe extern "C" {
    /// Where the linker put the program's first byte.
    static __executable_start: u8;
    /// Where it put the end of the code, which follows read-only data and precedes written data.
    static etext: u8;
}

/// Makes all threads share one heap: few of them allocate, and none allocates much. Must be called before there is a second
/// thread.
pub(crate) fn share() {
    // SAFETY: it sets a number within the allocator, which locks itself.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives all unused pages back to the kernel, and unmaps the program's code. Code that runs next is mapped again from the page
/// cache, which takes some microseconds.
pub(super) fn trim() {
    // SAFETY: it changes nothing that is in use, and locks each heap.
    unsafe { libc::malloc_trim(0) };
    let from = &raw const __executable_start;
    let to = &raw const etext;
    let length = (to.addr() - from.addr()) / PAGE * PAGE;
    // SAFETY: nobody writes to these pages, so the file has all that they hold.
    unsafe { libc::madvise(from.cast_mut().cast(), length, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns how many pages of files are mapped and there (proc_pid_statm(5)).
    fn of_files() -> usize {
        let statm = fs::read_to_string("/proc/self/statm").expect("the kernel has this file");
        statm
            .split(' ')
            .nth(2)
            .and_then(|pages| pages.parse().ok())
            .expect("a number of pages")
    }

    #[test]
    fn code_that_ran_goes_until_it_runs_again() {
        let before = of_files();
        trim();
        let after = of_files();
        assert!(after < before / 2, "{before} pages, then {after}");
    }
}
