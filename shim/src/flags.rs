//! The flags of the incumbent's daemon, read as Go's `flag` package reads them.

use std::ffi::OsString;
use std::time::Duration;

use leasehold_api::ADD_TIMEOUT;

/// What Go would print about the flags.
pub(crate) const USAGE: &str = "\
Usage of daemon:
  -broadcast
    \tbroadcast DHCP leases: where a network does not say
  -hostprefix string
    \toptional prefix to host root
  -pidfile string
    \toptional path to write daemon PID to
  -resendmax duration
    \taccepted: leasehold's own pauses are shorter
  -resendtimeout duration
    \toptional duration of a whole ADD, where a network does not say (default 30s)
  -socketpath string
    \toptional dhcp server socketpath (default /run/cni/dhcp.sock)
  -timeout duration
    \toptional duration of one attempt: an ADD takes no less
";

/// The flags' values; `None` where one is not given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) socket_path: Option<String>,
    pub(crate) pid_file: Option<String>,
    pub(crate) host_prefix: Option<String>,
    /// How long one attempt waits for its answer.
    pub(crate) timeout: Option<Duration>,
    /// The longest pause between two attempts.
    pub(crate) resend_max: Option<Duration>,
    /// How long attempts go on.
    pub(crate) resend_timeout: Option<Duration>,
    pub(crate) broadcast: Option<bool>,
}

impl Flags {
    /// Returns how long an ADD may take, if the flags say so.
    ///
    /// The incumbent's attempts wait `timeout` each, and the last begins before `resend_timeout`. Ours listens without
    /// a break, so only the total matters; a server that would answer within one attempt there is in time here too.
    pub(crate) fn add_timeout(&self) -> Option<Duration> {
        let one = self.timeout.or(self.resend_timeout)?;
        Some(self.resend_timeout.unwrap_or(ADD_TIMEOUT).max(one))
            .filter(|whole| whole.as_millis() > 0)
    }
}

/// Why the flags cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Help was asked for.
    Help,
    /// Something is wrong, in the words of Go.
    Wrong(String),
}

/// Reads flags up to the first argument that is not one. Ignores what follows, as the incumbent does.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Flags, Fault> {
    let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
    let mut flags = Flags::default();
    while let Some(arg) = args
        .next()
        .filter(|arg| arg.len() >= 2 && arg.starts_with('-') && arg != "--")
    {
        let bare = arg.strip_prefix("--").unwrap_or(&arg[1..]);
        if bare.starts_with(['-', '=']) {
            return Err(Fault::Wrong(format!("bad flag syntax: {arg}")));
        }
        let (name, value) = bare
            .split_once('=')
            .map_or((bare, None), |(name, value)| (name, Some(value.to_owned())));
        if name == "broadcast" {
            flags.broadcast = Some(boolean(value.as_deref().unwrap_or("true"))?);
            continue;
        }
        let mut value = || {
            value
                .clone()
                .or_else(|| args.next())
                .ok_or(format!("flag needs an argument: -{name}"))
        };
        let mut time = || value().and_then(|text| duration(&text).ok_or(invalid(&text, name)));
        let set = match name {
            "timeout" => time().map(|time| flags.timeout = Some(time)),
            "resendmax" => time().map(|time| flags.resend_max = Some(time)),
            "resendtimeout" => time().map(|time| flags.resend_timeout = Some(time)),
            "socketpath" => value().map(|path| flags.socket_path = Some(path)),
            "pidfile" => value().map(|path| flags.pid_file = Some(path)),
            "hostprefix" => value().map(|path| flags.host_prefix = Some(path)),
            "h" | "help" => return Err(Fault::Help),
            _ => Err(format!("flag provided but not defined: -{name}")),
        };
        set.map_err(Fault::Wrong)?;
    }
    Ok(flags)
}

fn invalid(text: &str, name: &str) -> String {
    format!("invalid value {text:?} for flag -{name}: parse error")
}

/// Reads what Go's `strconv.ParseBool` takes.
fn boolean(text: &str) -> Result<bool, Fault> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(Fault::Wrong(format!(
            "invalid boolean value {text:?} for -broadcast: parse error"
        ))),
    }
}

/// Reads what Go's `time.ParseDuration` takes: `1m30s`, `1.5h`, `300ms`, `0`. A negative duration counts as zero.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos: u64 = 0;
    loop {
        let (number, more) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, more) = more.split_at(
            more.find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(more.len()),
        );
        let each = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanos = nanos.checked_add(times(number, each)?)?;
        if more.is_empty() {
            break;
        }
        rest = more;
    }
    Some(if text.starts_with('-') {
        Duration::ZERO
    } else {
        Duration::from_nanos(nanos)
    })
}

/// Returns the decimal `number` times `each`. Integers are enough; floating point would be a sizeable part of a small program.
fn times(number: &str, each: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut sum = whole.checked_mul(each)?;
    let mut place = each;
    for digit in part.bytes() {
        place /= 10;
        // A second point is not a digit.
        sum = sum
            .checked_add(u64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * place)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Flags, Fault> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn flags_are_read_with_one_dash_or_two() {
        let all = Flags {
            socket_path: Some("/s".into()),
            pid_file: Some("/p".into()),
            host_prefix: Some("/host".into()),
            timeout: Some(Duration::from_secs(10)),
            resend_max: Some(Duration::from_secs(62)),
            resend_timeout: Some(Duration::from_secs(208)),
            broadcast: Some(true),
        };
        let apart = "-socketpath /s --pidfile /p -hostprefix /host --timeout 10s -resendmax 1m2s --resendtimeout 208s \
                     -broadcast";
        let joined = "--socketpath=/s -pidfile=/p --hostprefix=/host -timeout=10s --resendmax=62s -resendtimeout=3m28s \
                      --broadcast=T";
        for line in [apart, joined] {
            assert_eq!(
                read(&line.split_whitespace().collect::<Vec<_>>()).as_ref(),
                Ok(&all),
                "{line}"
            );
        }
        assert_eq!(read(&[]), Ok(Flags::default()));
    }

    #[test]
    fn what_follows_the_flags_is_ignored() {
        for end in ["--", "more", "-", ""] {
            let flags = read(&["-pidfile", "/p", end, "-nonsense"]);
            assert_eq!(
                flags,
                Ok(Flags {
                    pid_file: Some("/p".into()),
                    ..Flags::default()
                }),
                "{end:?}"
            );
        }
    }

    #[test]
    fn a_value_may_look_like_a_flag_and_bear_an_equals_sign() {
        let flags = read(&["-pidfile", "-broadcast", "-socketpath=/a=b", "-hostprefix="]).unwrap();
        assert_eq!(flags.pid_file.as_deref(), Some("-broadcast"));
        assert_eq!(
            (flags.socket_path.as_deref(), flags.host_prefix.as_deref()),
            (Some("/a=b"), Some(""))
        );
        assert_eq!(flags.broadcast, None);
    }

    #[test]
    fn faults_are_told_in_the_words_of_go() {
        let table: [(&[&str], &str); 9] = [
            (&["-foo"], "flag provided but not defined: -foo"),
            (&["--foo=1"], "flag provided but not defined: -foo"),
            (&["-timeout"], "flag needs an argument: -timeout"),
            (
                &["-timeout", "x"],
                "invalid value \"x\" for flag -timeout: parse error",
            ),
            (
                &["-resendmax=5"],
                "invalid value \"5\" for flag -resendmax: parse error",
            ),
            (
                &["-broadcast=x"],
                "invalid boolean value \"x\" for -broadcast: parse error",
            ),
            (&["---x"], "bad flag syntax: ---x"),
            (&["-=x"], "bad flag syntax: -=x"),
            (
                &["-pidfile", "/p", "-socketpath"],
                "flag needs an argument: -socketpath",
            ),
        ];
        for (args, fault) in table {
            assert_eq!(read(args), Err(Fault::Wrong(fault.to_owned())));
        }
        assert_eq!(read(&["-pidfile=/p", "--help"]), Err(Fault::Help));
        assert_eq!(read(&["-h"]), Err(Fault::Help));
    }

    #[test]
    fn durations_are_go_s() {
        let table = [
            ("10s", Some(10.0)),
            ("1m30s", Some(90.0)),
            ("1.5h", Some(5400.0)),
            (".5s", Some(0.5)),
            ("300ms", Some(0.3)),
            ("250us", Some(0.000_25)),
            ("250µs", Some(0.000_25)),
            ("1h1m1s", Some(3661.0)),
            ("0", Some(0.0)),
            ("+1s", Some(1.0)),
            ("-1s", Some(0.0)),
            ("", None),
            ("-", None),
            ("5", None),
            ("s", None),
            ("5x", None),
            ("1.2.3s", None),
            (".s", None),
            ("1s5", None),
            ("1e300h", None),
            (&format!("{}h", "9".repeat(400)), None),
        ];
        for (text, seconds) in table {
            assert_eq!(
                duration(text),
                seconds.map(Duration::from_secs_f64),
                "{text}"
            );
        }
    }

    #[test]
    fn an_add_may_take_as_long_as_the_attempts() {
        let seconds = |s: Option<u64>| s.map(Duration::from_secs);
        let table = [
            (None, None, None),
            (Some(5), None, Some(30)),
            (Some(90), None, Some(90)),
            (None, Some(208), Some(208)),
            (None, Some(8), Some(8)),
            (Some(10), Some(8), Some(10)),
            (Some(10), Some(208), Some(208)),
            (Some(0), Some(0), None),
        ];
        for (timeout, resend_timeout, whole) in table {
            let flags = Flags {
                timeout: seconds(timeout),
                resend_timeout: seconds(resend_timeout),
                ..Flags::default()
            };
            assert_eq!(flags.add_timeout(), seconds(whole), "{flags:?}");
        }
    }
}
