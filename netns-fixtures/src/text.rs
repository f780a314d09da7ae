//! What a test expects of a text.

/// Fails, and shows the text, unless it has this part.
#[track_caller]
pub fn assert_says(said: &(impl ToString + ?Sized), part: &str) {
    let said = said.to_string();
    assert!(said.contains(part), "{said}");
}
