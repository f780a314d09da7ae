//! Bytes as a script: each choice takes some from the front. Past the end, all choices are zero.

use std::net::Ipv4Addr;
use std::time::Duration;

/// What is left of a script.
#[derive(Debug)]
pub(super) struct Script<'a>(pub(super) &'a [u8]);

impl<'a> Script<'a> {
    /// Returns whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(super) fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// Chooses one of `things`.
    pub(super) fn one<T: Copy>(&mut self, things: &[T]) -> T {
        things[usize::from(self.u8()) % things.len()]
    }

    /// Takes as many bytes as the next byte says.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.u8());
        self.slice(length)
    }

    /// Takes `length` bytes, or what is left.
    pub(super) fn slice(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn address(&mut self) -> Ipv4Addr {
        self.array::<4>().into()
    }

    /// Chooses a time from zero to two years, all magnitudes equally likely.
    pub(super) fn duration(&mut self) -> Duration {
        let micros = u64::from(self.u16()) << (self.u8() % 30);
        Duration::from_micros(micros)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.slice(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}
