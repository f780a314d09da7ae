//! Where a message's options are: splits the three fields that may hold them into one value per option.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::value::Value;
use super::{BadOption, Dropped, code};
use crate::wire::read::Reader;

/// The bytes of each option.
#[derive(Debug, Default)]
pub(in crate::wire) struct Fields<'a> {
    pub(super) values: BTreeMap<u8, Value<'a>>,
    pub(super) dropped: Dropped,
    /// The options that reached past their field: three at most, because a field ends there.
    broken: Vec<u8>,
}

impl<'a> Fields<'a> {
    /// Splits the options field, then `file` and `sname` if option 52 says that they hold options.
    ///
    /// Instances of one option are joined in that order of the fields, wherever they stand (RFC 3396 §5, §7).
    pub(in crate::wire) fn split(options: &'a [u8], file: &'a [u8], sname: &'a [u8]) -> Self {
        let mut fields = Self::default();
        fields.scan(options);
        let overload = fields.take_overload();
        for (bit, field) in [(1, file), (2, sname)] {
            if overload & bit != 0 {
                fields.scan_overloaded(field);
            }
        }
        fields.drop_broken();
        fields
    }

    /// Returns every option as it was sent, known to this client or not, except those that say how the others are sent.
    pub(in crate::wire) fn as_sent(
        options: &'a [u8],
        file: &'a [u8],
        sname: &'a [u8],
    ) -> BTreeMap<u8, Vec<u8>> {
        let values = Self::split(options, file, sname).values;
        values
            .into_iter()
            .map(|(code, value)| (code, value.bytes.into_owned()))
            .collect()
    }

    /// Returns the message type (53) as sent, if it is there and one byte long.
    pub(in crate::wire) fn message_type(&self) -> Option<u8> {
        let [kind] = self.values.get(&code::MESSAGE_TYPE)?.fixed().ok()?;
        Some(kind)
    }

    /// Reads one field up to its end marker or its end.
    fn scan(&mut self, field: &'a [u8]) {
        let mut reader = Reader(field);
        while let Some(code) = reader.u8() {
            match code {
                code::PAD => continue,
                code::END => return,
                _ => {}
            }
            let Some(piece) = reader.u8().and_then(|length| reader.slice(length.into())) else {
                self.dropped.note(code, BadOption::Truncated);
                self.broken.push(code);
                return;
            };
            let value = Value {
                bytes: Cow::Borrowed(piece),
                first: piece.len(),
            };
            self.values
                .entry(code)
                .and_modify(|v| v.bytes.to_mut().extend(piece))
                .or_insert(value);
        }
    }

    /// Reads `file` or `sname`, which may not hold an overload option (RFC 2132 §9.3).
    fn scan_overloaded(&mut self, field: &'a [u8]) {
        self.scan(field);
        if self.values.remove(&code::OVERLOAD).is_some() {
            self.dropped.note(code::OVERLOAD, BadOption::Misplaced);
        }
    }

    /// Takes option 52 out: bit 0 for `file`, bit 1 for `sname`.
    fn take_overload(&mut self) -> u8 {
        self.drop_broken();
        let Some(value) = self.values.remove(&code::OVERLOAD) else {
            return 0;
        };
        let cause = match value.fixed() {
            Ok([fields @ 1..=3]) => return fields,
            Ok([other]) => BadOption::Overload(other),
            Err(cause) => cause,
        };
        self.dropped.note(code::OVERLOAD, cause);
        0
    }

    /// Forgets the options that reached past their field: a value with a missing piece is another value.
    fn drop_broken(&mut self) {
        for code in &self.broken {
            self.values.remove(code);
        }
    }
}
