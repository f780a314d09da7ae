//! What may be a name.

/// The longest container id and network name, in bytes. The specification has no limit, but runtimes put both into file
/// names.
const MAX_NAME: usize = 255;

/// Returns whether `text` matches `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$` (CNI specification, "Parameters") and is not too
/// long.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        && text.len() <= MAX_NAME
}

/// Returns whether the kernel accepts `text` as a link's name of at most `max` bytes.
pub fn is_link_name(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control())
}
