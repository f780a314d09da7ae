//! JSON objects read key by key, so that each fault names its key.
//!
//! Keys are matched as Go matches them, since the networks in the field were written for a Go plugin: exactly if
//! possible, else ignoring case. `null` counts as absent.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::Version;

/// The most entries of a list. A network needs a handful, and the record of each lease holds them all.
const MAX_ENTRIES: usize = 256;

/// The most characters of a value or key that an error repeats.
const MAX_QUOTED: usize = 64;

/// A key of the configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {fault}")]
pub struct BadKey {
    /// Where the key is: `ipam.servers.allow[1]`.
    pub key: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A value of another JSON type.
    #[error("it must be {expected}, not {found}")]
    Type {
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A value of the right type that means nothing.
    #[error("{value:?} is not {expected}")]
    Value {
        /// The value, cut.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A required value is missing.
    #[error("missing")]
    Missing,
    /// An unknown key.
    #[error("unknown key")]
    Unknown,
    /// An unknown key that is nearly a known one.
    #[error("unknown key: did you mean {0}?")]
    Misspelt(&'static str),
    /// An unknown key that has no effect, and the known one that is nearest to it, if any is near.
    #[error("unknown key, which is ignored{}", .0.map(|meant| format!(": did you mean {meant}?")).unwrap_or_default())]
    Ignored(Option<&'static str>),
    /// A key that an earlier version knew.
    #[error("no longer used in a network of type host-local")]
    NoLongerUsed,
    /// A list that is too long.
    #[error("more than {0} entries")]
    TooMany(usize),
    /// More addresses of a family than the results of a version can hold.
    #[error("more than one set of a family: results of cniVersion {0} have one address of each")]
    OneOfAFamily(Version),
}

impl Fault {
    pub(super) fn value(value: impl ToString, expected: &'static str) -> Self {
        Self::Value {
            value: value.to_string().chars().take(MAX_QUOTED).collect(),
            expected,
        }
    }

    fn expected(expected: &'static str, found: &Value) -> Self {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        Self::Type { expected, found }
    }

    pub(super) fn at(self, key: impl Into<String>) -> BadKey {
        BadKey {
            key: key.into(),
            fault: self,
        }
    }
}

/// Returns the value of a key that is not null. If no key matches exactly, ignores case, as Go does.
pub fn value_of<'a>(keys: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let other_case = || {
        keys.iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, value)| value)
    };
    keys.get(key)
        .or_else(other_case)
        .filter(|value| !value.is_null())
}

/// A JSON object, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    path: String,
    keys: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// Reads the value at `path` as an object.
    pub(super) fn new(path: impl Into<String>, value: &'a Value) -> Result<Self, BadKey> {
        let path = path.into();
        match value.as_object() {
            Some(keys) => Ok(Self { path, keys }),
            None => Err(Fault::expected("an object", value).at(path)),
        }
    }

    /// Returns where a key of this object is.
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        value_of(self.keys, key)
    }

    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Value) -> Result<T, Fault>,
    ) -> Result<Option<T>, BadKey> {
        self.get(key)
            .map(|value| read(value).map_err(|fault| fault.at(self.path(key))))
            .transpose()
    }

    /// Reads a text, if it is there. The empty string counts as absent.
    pub(super) fn said(
        &self,
        key: &str,
        read: impl FnOnce(&'a Value) -> Result<&'a str, Fault>,
    ) -> Result<Option<String>, BadKey> {
        let said = self.read(key, read)?.filter(|text| !text.is_empty());
        Ok(said.map(str::to_owned))
    }

    /// Reads the value of a key that has a few values, if it is there. The empty string counts as absent.
    pub(super) fn choose<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Value) -> Result<T, Fault>,
    ) -> Result<Option<T>, BadKey> {
        match self.get(key) {
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            _ => self.read(key, read),
        }
    }

    pub(super) fn require<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Value) -> Result<T, Fault>,
    ) -> Result<T, BadKey> {
        self.read(key, read)?
            .ok_or_else(|| Fault::Missing.at(self.path(key)))
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Object<'a>>, BadKey> {
        self.get(key)
            .map(|value| Object::new(self.path(key), value))
            .transpose()
    }

    pub(super) fn list<T>(
        &self,
        key: &str,
        read: impl Fn(&'a Value) -> Result<T, Fault>,
    ) -> Result<Vec<T>, BadKey> {
        let each = |(at, value)| read(value).map_err(|fault: Fault| fault.at(at));
        self.entries(key)?.map(each).collect()
    }

    pub(super) fn objects<T>(
        &self,
        key: &str,
        read: impl Fn(Object<'a>) -> Result<T, BadKey>,
    ) -> Result<Vec<T>, BadKey> {
        self.entries(key)?
            .map(|(at, value)| read(Object::new(at, value)?))
            .collect()
    }

    /// Reads each object of each list in the list at a key; `null` is the empty list.
    pub(super) fn lists<T>(
        &self,
        key: &str,
        read: impl Fn(Object<'a>) -> Result<T, BadKey>,
    ) -> Result<Vec<Vec<T>>, BadKey> {
        let each = |(at, value): (String, &'a Value)| match value.as_array() {
            Some(long) if long.len() > MAX_ENTRIES => Err(Fault::TooMany(MAX_ENTRIES).at(at)),
            _ => objects_of(&at, value, &read),
        };
        self.entries(key)?.map(each).collect()
    }

    fn entries(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = (String, &'a Value)> + use<'a>, BadKey> {
        let path = self.path(key);
        let entries = self.read(key, list)?.unwrap_or_default();
        if entries.len() > MAX_ENTRIES {
            return Err(Fault::TooMany(MAX_ENTRIES).at(path));
        }
        Ok(entries
            .iter()
            .enumerate()
            .map(move |(i, value)| (format!("{path}[{i}]"), value)))
    }

    /// Refuses all keys but these.
    pub(super) fn only(&self, known: &[&'static str]) -> Result<(), BadKey> {
        match self.unknown(known).next() {
            Some(key) => Err(nearest(key, known)
                .map_or(Fault::Unknown, Fault::Misspelt)
                .at(self.path(&cut(key)))),
            None => Ok(()),
        }
    }

    /// Refuses keys that are nearly one of these, unless `ignored` says of the key, and the one that it is near to, that it is ignored.
    pub(super) fn nothing_misspelt(
        &self,
        known: &[&'static str],
        ignored: impl Fn(&str, &str) -> bool,
    ) -> Result<(), BadKey> {
        match self
            .misspelt(known)
            .find(|(key, meant)| !ignored(key, meant))
        {
            Some((key, meant)) => Err(Fault::Misspelt(meant).at(self.path(&cut(key)))),
            None => Ok(()),
        }
    }

    /// Returns the keys that are nearly one of these and of which `ignored` says so.
    pub(super) fn ignored(
        &self,
        known: &[&'static str],
        ignored: impl Fn(&str, &str) -> bool,
    ) -> Vec<BadKey> {
        self.misspelt(known)
            .filter(|(key, meant)| ignored(key, meant))
            .map(|(key, meant)| Fault::Ignored(Some(meant)).at(self.path(&cut(key))))
            .collect()
    }

    /// Returns all keys but these, each with the one that `meant` takes it for or that is nearest to it.
    pub(super) fn others(
        &self,
        known: &[&'static str],
        meant: impl Fn(&str) -> Option<&'static str>,
    ) -> Vec<BadKey> {
        self.unknown(known)
            .map(|key| {
                let meant = meant(key).or_else(|| nearest(key, known));
                Fault::Ignored(meant).at(self.path(&cut(key)))
            })
            .collect()
    }

    fn misspelt(&self, known: &[&'static str]) -> impl Iterator<Item = (&'a str, &'static str)> {
        self.unknown(known)
            .filter_map(|key| Some((key, nearest(key, known)?)))
    }

    fn unknown(&self, known: &[&'static str]) -> impl Iterator<Item = &'a str> {
        self.keys
            .keys()
            .map(String::as_str)
            .filter(|key| !known.iter().any(|known| known.eq_ignore_ascii_case(key)))
    }
}

/// Reads each object of a list, of any length. `null` is the empty list.
pub(super) fn objects_of<'a, T>(
    path: &str,
    value: &'a Value,
    read: impl Fn(Object<'a>) -> Result<T, BadKey>,
) -> Result<Vec<T>, BadKey> {
    let entries = if value.is_null() {
        &[]
    } else {
        list(value).map_err(|fault| fault.at(path))?
    };
    let read = |(i, value)| read(Object::new(format!("{path}[{i}]"), value)?);
    entries.iter().enumerate().map(read).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_QUOTED).collect()
}

/// Returns the known key that `key` is a misspelling of, case, hyphens and underscores aside: one or two letters are added, left out
/// or changed, two neighbours have changed places, or it is the beginning of that key. A short key and a slip or two make many words.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    /// The fewest letters of a beginning, and of a key that may have two slips.
    const ENOUGH: usize = 6;
    let plain = |text: &str| -> Vec<u8> {
        text.bytes()
            .filter(|byte| !matches!(byte, b'-' | b'_'))
            .map(|byte| byte.to_ascii_lowercase())
            .collect()
    };
    // Nobody writes such a key by mistake, and looking at it is not free.
    let key = Some(plain(key)).filter(|key| key.len() <= MAX_QUOTED)?;
    let slips = known.iter().filter_map(|known| {
        let of = plain(known);
        let most = if of.len().min(key.len()) >= ENOUGH {
            2
        } else {
            1
        };
        let is_beginning = key.len() >= ENOUGH && of.starts_with(&key);
        let slips = slips(&key, &of);
        (slips <= most || is_beginning).then_some((slips, *known))
    });
    slips
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, known)| known)
}

/// Returns how many letters must be added, left out, changed, or swapped with their neighbour to turn one text into the other.
fn slips(a: &[u8], b: &[u8]) -> usize {
    // Row by row: what each beginning of `b` is from one of `a`, then from the next longer one.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let changed = last[j] + usize::from(x != y);
            let least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            let is_swapped = i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y;
            row.push(match is_swapped {
                true => least.min(before[j - 1] + 1),
                false => least,
            });
        }
        (before, last) = (last, row);
    }
    last[b.len()]
}

fn list(value: &Value) -> Result<&[Value], Fault> {
    value
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| Fault::expected("a list", value))
}

pub(super) fn text(value: &Value) -> Result<&str, Fault> {
    value
        .as_str()
        .ok_or_else(|| Fault::expected("a string", value))
}

pub(super) fn boolean(value: &Value) -> Result<bool, Fault> {
    value
        .as_bool()
        .ok_or_else(|| Fault::expected("true or false", value))
}

pub(super) fn number(value: &Value) -> Result<f64, Fault> {
    value
        .as_f64()
        .ok_or_else(|| Fault::expected("a number", value))
}

pub(super) fn u32(value: &Value) -> Result<u32, Fault> {
    match value {
        Value::Number(number) => {
            let whole = number
                .as_u64()
                .and_then(|number| u32::try_from(number).ok());
            whole.ok_or_else(|| Fault::value(number, "a whole number from 0 to 4294967295"))
        }
        other => Err(Fault::expected("a number", other)),
    }
}

pub(super) fn u8(value: &Value) -> Result<u8, Fault> {
    u32(value)?
        .try_into()
        .map_err(|_| Fault::value(value, "a whole number from 0 to 255"))
}

pub(super) fn ipv4(value: &Value) -> Result<Ipv4Addr, Fault> {
    let text = text(value)?;
    text.parse()
        .map_err(|_| Fault::value(text, "an IPv4 address"))
}

pub(super) fn ip(value: &Value) -> Result<IpAddr, Fault> {
    let text = text(value)?;
    text.parse()
        .map_err(|_| Fault::value(text, "an IP address"))
}

/// Reads a subnet; bits beyond its prefix are masked off.
pub(super) fn subnet(value: &Value) -> Result<IpNet, Fault> {
    let text = text(value)?;
    text.parse()
        .map(|net: IpNet| net.trunc())
        .map_err(|_| Fault::value(text, "a subnet, such as 10.0.0.0/8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_nearly_known_are_found() {
        let known = ["clientId", "servers", "routes"];
        let table = [
            ("clientIdd", Some("clientId")),
            ("client_id", Some("clientId")),
            ("clentId", Some("clientId")),
            ("clienTId", Some("clientId")),
            ("client-ID", Some("clientId")),
            ("server", Some("servers")),
            ("serverz", Some("servers")),
            ("route", Some("routes")),
            ("clinetId", Some("clientId")),
            ("cientID", Some("clientId")),
            ("clintIdd", Some("clientId")),
            ("client", Some("clientId")),
            ("clien", None),
            ("routse", Some("routes")),
            ("rutes2", Some("routes")),
            ("roots", None),
            ("s", None),
            ("", None),
            ("range", None),
            ("subnet", None),
        ];
        for (key, meant) in table {
            assert_eq!(nearest(key, &known), meant, "{key}");
        }
    }

    #[test]
    fn keys_are_matched_exactly_or_else_whatever_their_case() {
        let value =
            serde_json::json!({"priority": 1, "Priority": 2, "TIMEOUT": 3, "release": null});
        let object = Object::new("ipam", &value).unwrap();
        assert_eq!(object.read("priority", u32), Ok(Some(1)));
        assert_eq!(object.read("timeout", u32), Ok(Some(3)));
        assert_eq!(object.read("release", boolean), Ok(None));
        assert_eq!(object.only(&["priority", "timeout", "release"]), Ok(()));
    }

    #[test]
    fn a_fault_names_its_key() {
        let value = serde_json::json!({"servers": {"allow": ["10.0.0.1", "ten"]}, "rate": -1});
        let object = Object::new("ipam", &value).unwrap();
        let servers = object.object("servers").unwrap().unwrap();
        assert_eq!(
            servers.list("allow", ipv4).unwrap_err().to_string(),
            "ipam.servers.allow[1]: \"ten\" is not an IPv4 address"
        );
        assert_eq!(
            object.read("rate", u32).unwrap_err().to_string(),
            "ipam.rate: \"-1\" is not a whole number from 0 to 4294967295"
        );
        assert_eq!(
            object.read("servers", text).unwrap_err().to_string(),
            "ipam.servers: it must be a string, not an object"
        );
        assert_eq!(
            object.only(&["servers", "rates"]).unwrap_err().to_string(),
            "ipam.rate: unknown key: did you mean rates?"
        );
        assert_eq!(
            object.only(&["servers"]).unwrap_err().to_string(),
            "ipam.rate: unknown key"
        );
    }

    #[test]
    fn a_list_has_an_end() {
        let value = serde_json::json!({"deny": vec!["10.0.0.1"; MAX_ENTRIES + 1]});
        let object = Object::new("servers", &value).unwrap();
        assert_eq!(
            object.list("deny", ipv4).unwrap_err().fault,
            Fault::TooMany(MAX_ENTRIES)
        );
    }
}
