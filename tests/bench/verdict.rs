//! The promises, and whether they were kept.

use std::time::Duration;

/// The promises, and whether they were kept.
#[derive(Debug, Default)]
pub(crate) struct Verdict(Vec<Promise>);

#[derive(Debug)]
struct Promise {
    met: bool,
    what: String,
    found: String,
}

impl Verdict {
    /// Returns whether every promise was kept.
    pub(crate) fn all_met(&self) -> bool {
        self.0.iter().all(|promise| promise.met)
    }

    /// Prints every promise.
    pub(crate) fn print(&self) {
        println!();
        for Promise { met, what, found } in &self.0 {
            println!("{:8} {what}: {found}", if *met { "met" } else { "NOT met" });
        }
    }

    /// Records a promise, and whether it was kept.
    pub(crate) fn promise(&mut self, what: impl Into<String>, met: bool, found: impl Into<String>) {
        self.0.push(Promise {
            met,
            what: what.into(),
            found: found.into(),
        });
    }
}

/// Writes a duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> String {
    let text = format!("{:.2}", duration.as_secs_f64() * 1e3);
    format!("{} ms", text.strip_suffix(".00").unwrap_or(&text))
}

/// Returns bytes in MiB.
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Writes bytes in MB.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
