//! Values of arguments, as people type them.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use leasehold_api::control;
use leasehold_core::time::WallTime;

use crate::http::rfc3339;

/// Reads a directory, which may be empty: clap's own parser refuses an empty path.
pub(super) fn directory(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

pub(super) fn net(text: &str) -> Result<IpNet, &'static str> {
    control::net(text).ok_or("not an address or a subnet")
}

/// Reads a network namespace: a path has a slash, and `ip netns` keeps names in a directory.
pub(super) fn netns(text: &str) -> Result<PathBuf, Infallible> {
    Ok(match text.contains('/') {
        true => PathBuf::from(text),
        false => Path::new("/run/netns").join(text),
    })
}

/// Reads a moment, as the beginning of an event's time: RFC 3339 in UTC.
pub(super) fn moment(text: &str) -> Result<String, String> {
    if text.contains('-') && text.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(text.replace(' ', "T"));
    }
    let ago = span(text).map_err(
        |_| "neither a span such as 90s, 10m or 2h, nor a time such as 2026-11-28T06:00",
    )?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = now.unwrap_or_default().saturating_sub(ago);
    Ok(rfc3339(WallTime::from_epoch(since)))
}

/// Reads a span of time, a second at least.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let seconds = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    let whole = number
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(seconds))
        .filter(|seconds| *seconds > 0);
    whole
        .map(Duration::from_secs)
        .ok_or("not a time such as 90s, 10m or 2h".to_owned())
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or("not a number of seconds greater than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_a_path_or_the_name_that_ip_netns_shows() {
        for (text, path) in [
            ("web", "/run/netns/web"),
            ("/proc/7/ns/net", "/proc/7/ns/net"),
            ("./x", "./x"),
        ] {
            assert_eq!(netns(text).unwrap(), Path::new(path));
        }
    }

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        assert_eq!(moment("2026-11-28 06:00").unwrap(), "2026-11-28T06:00");
        assert!(moment("2h").unwrap() < moment("1m").unwrap());
        for bad in ["", "yesterday", "10d"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_span_has_a_unit_or_is_in_seconds() {
        for (text, seconds) in [("90s", 90), ("90", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "0",
            "0m",
            "m",
            "10d",
            "-1s",
            "1.5h",
            "99999999999999999999s",
        ] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_out_is_a_number_of_seconds() {
        for (text, expected) in [("208", 208_000), ("0.5", 500), ("1e6", 1_000_000_000)] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "0", "-1", "10s", "NaN", "inf"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
