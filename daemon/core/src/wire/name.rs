//! Domain names, in text and in DNS wire form.
//!
//! A name that leaves here may be written into a resolver's file or a log: ASCII letters, digits, hyphens and underscores in
//! labels of 1 to 63 bytes, joined by dots, 253 bytes at most (RFC 1035 §2.3.4). No label begins with a hyphen (RFC 1123 §2.1),
//! so that no name can pass for a command-line option. Host names have no underscores, but real domains do.

/// Why bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadName {
    /// Its characters or lengths are not those of a name.
    NotAName,
    /// The wire form does not end, loops, or has labels of an unknown type.
    Malformed,
}

const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;
/// The most labels in 253 bytes; more pointers than that lead to no longer name.
const MAX_LABELS: usize = 127;

/// Reads a name as text. NULs at its end (some servers count C's) and one dot are cut off.
pub(super) fn from_text(text: &[u8]) -> Result<String, BadName> {
    let end = text
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let text = &text[..end];
    let text = text.strip_suffix(b".").unwrap_or(text);
    let labels: Vec<&[u8]> = text
        .split(|byte| *byte == b'.')
        .take(MAX_LABELS + 1)
        .collect();
    from_labels(&labels)
}

/// Joins labels to a name.
pub(super) fn from_labels(labels: &[&[u8]]) -> Result<String, BadName> {
    let mut name = String::new();
    for label in labels {
        if !is_label(label) {
            return Err(BadName::NotAName);
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().copied().map(char::from));
        if name.len() > MAX_NAME {
            return Err(BadName::NotAName);
        }
    }
    if name.is_empty() {
        Err(BadName::NotAName)
    } else {
        Ok(name)
    }
}

fn is_label(label: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_LABEL).contains(&label.len()) && label[0] != b'-' && label.iter().all(allowed)
}

/// Reads the labels of the name at `start` in wire form (RFC 1035 §4.1.4), and where the next name begins.
///
/// A pointer leads to a place in `bytes` before the labels that it ends. So each leads strictly further back, and none
/// loops.
pub(super) fn read_wire(bytes: &[u8], start: usize) -> Result<(Vec<&[u8]>, usize), BadName> {
    let mut labels = Vec::new();
    let mut end = None;
    let mut run = start;
    let mut position = start;
    for _ in 0..2 * MAX_LABELS + 1 {
        let length = *bytes.get(position).ok_or(BadName::Malformed)?;
        position += 1;
        match length {
            0 => return Ok((labels, end.unwrap_or(position))),
            1..=63 => {
                let after = position + usize::from(length);
                labels.push(bytes.get(position..after).ok_or(BadName::Malformed)?);
                position = after;
            }
            0xc0.. => {
                let low = *bytes.get(position).ok_or(BadName::Malformed)?;
                end.get_or_insert(position + 1);
                let target = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                if target >= run {
                    return Err(BadName::Malformed);
                }
                (run, position) = (target, target);
            }
            64..0xc0 => return Err(BadName::Malformed),
        }
    }
    Err(BadName::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_pointers_has_an_end() {
        // The root, then more pointers, each to the one before.
        let mut bytes = vec![0];
        for before in [0].into_iter().chain((1..).step_by(2)).take(300) {
            bytes.extend((0xc000_u16 | before).to_be_bytes());
        }
        let start = |pointers: usize| 2 * pointers - 1;
        assert_eq!(read_wire(&bytes, start(254)), Ok((vec![], start(255))));
        assert_eq!(read_wire(&bytes, start(255)), Err(BadName::Malformed));
        assert_eq!(read_wire(&bytes, start(300)), Err(BadName::Malformed));
    }

    #[test]
    fn the_longest_name_in_wire_form_is_read() {
        let bytes = [b"\x01a".repeat(127), vec![0]].concat();
        let (labels, end) = read_wire(&bytes, 0).unwrap();
        assert_eq!((labels.len(), end), (127, 255));
        assert_eq!(from_labels(&labels).map(|name| name.len()), Ok(253));
    }

    #[test]
    fn every_start_in_any_bytes_is_safe() {
        for byte in [0, 1, 63, 64, 0xbf, 0xc0, 0xff] {
            let bytes = [byte; 70];
            for start in 0..=bytes.len() {
                let _ = read_wire(&bytes, start);
            }
        }
    }
}
