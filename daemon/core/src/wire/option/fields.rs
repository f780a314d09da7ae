//! Where a message's options are: splitting the three fields that may hold them into one value for each option.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{BadOption, Dropped, code};
use crate::wire::read::Reader;

/// The bytes of each known option, all its instances joined (RFC 3396).
#[derive(Debug, Default)]
pub(in crate::wire) struct Fields<'a> {
    pub(super) values: BTreeMap<u8, Cow<'a, [u8]>>,
    pub(super) dropped: Dropped,
}

impl<'a> Fields<'a> {
    /// Splits the options field, then `file` and `sname` as far as option 52 says that they hold options.
    ///
    /// Instances of one option are joined in that order of the fields, wherever they stand (RFC 3396 §5, §7).
    pub(in crate::wire) fn split(options: &'a [u8], file: &'a [u8], sname: &'a [u8]) -> Self {
        let mut fields = Self::default();
        let mut broken = Vec::new();
        fields.scan(options, &mut broken);
        let overload = fields.overload();
        if overload & 1 != 0 {
            fields.scan_overloaded(file, &mut broken);
        }
        if overload & 2 != 0 {
            fields.scan_overloaded(sname, &mut broken);
        }
        // A value whose piece is missing is another value.
        for code in broken {
            fields.values.remove(&code);
        }
        fields
    }

    /// Returns the message type (53) as sent, if it is there and of one byte.
    pub(in crate::wire) fn message_type(&self) -> Option<u8> {
        match self.values.get(&code::MESSAGE_TYPE)?.as_ref() {
            [kind] => Some(*kind),
            _ => None,
        }
    }

    /// Reads one field up to its end marker or its end. An option that reaches past it is put on `broken`.
    fn scan(&mut self, field: &'a [u8], broken: &mut Vec<u8>) {
        let mut reader = Reader(field);
        while let Some(code) = reader.u8() {
            match code {
                code::PAD => continue,
                code::END => return,
                _ => {}
            }
            let Some(piece) = reader.u8().and_then(|length| reader.slice(length.into())) else {
                self.dropped.note(code, BadOption::Truncated);
                broken.push(code);
                return;
            };
            if is_known(code) {
                self.values
                    .entry(code)
                    .and_modify(|v| v.to_mut().extend(piece))
                    .or_insert(Cow::Borrowed(piece));
            }
        }
    }

    /// Reads `file` or `sname`, where an overload option has no place (RFC 2132 §9.3).
    fn scan_overloaded(&mut self, field: &'a [u8], broken: &mut Vec<u8>) {
        self.scan(field, broken);
        if self.values.remove(&code::OVERLOAD).is_some() {
            self.dropped.note(code::OVERLOAD, BadOption::Misplaced);
        }
    }

    /// Takes option 52 out: bit 0 for `file`, bit 1 for `sname`.
    fn overload(&mut self) -> u8 {
        let Some(value) = self.values.remove(&code::OVERLOAD) else {
            return 0;
        };
        match value.as_ref() {
            [fields @ 1..=3] => return *fields,
            [other] => self
                .dropped
                .note(code::OVERLOAD, BadOption::Overload(*other)),
            _ => self
                .dropped
                .note(code::OVERLOAD, BadOption::Length(value.len())),
        }
        0
    }
}

/// Tells whether an option is read at all; the bytes of others are not kept.
fn is_known(code: u8) -> bool {
    use code::*;
    matches!(
        code,
        SUBNET_MASK
            | ROUTER
            | DOMAIN_NAME_SERVER
            | HOST_NAME
            | DOMAIN_NAME
            | INTERFACE_MTU
            | BROADCAST_ADDRESS
            | STATIC_ROUTE
            | NTP_SERVER
            | LEASE_TIME
            | OVERLOAD
            | MESSAGE_TYPE
            | SERVER_ID
            | MESSAGE
            | T1
            | T2
            | CLIENT_ID
            | RAPID_COMMIT
            | DOMAIN_SEARCH
            | CLASSLESS_ROUTES
            | MICROSOFT_ROUTES
    )
}
