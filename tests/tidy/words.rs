//! The English of comments, messages and documents: phrases that a native writer would not use.

use super::{read, tracked};

/// Phrases to rewrite wherever they appear: translated word for word, or without meaning.
const PHRASES: [&str; 28] = [
    "a macvlan of leasehold's",
    "as it was of",
    "becomes of its",
    "bereft",
    "claims of its",
    "does no harm, but",
    "goes: the",
    "in each of its lives",
    "is one of two others",
    "input at hand",
    "is tried on lan",
    "it is an event. docker",
    "of another's",
    "of whomever",
    "on its way back",
    "on its way out",
    "on their way back",
    "says nothing of",
    "sees most as root",
    "subnets serve one wire",
    "takes note that",
    "tells whether",
    "the wire of before",
    "there nothing is",
    "those included",
    "wants attention",
    "with its kin",
    "with their kin",
];

/// Returns the text with the lines of each comment, string and paragraph joined, in lower case.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim().trim_end_matches('\\');
        line.trim_start_matches("///")
            .trim_start_matches("//!")
            .trim_start_matches("//")
            .trim()
    });
    lines.collect::<Vec<_>>().join(" ").to_lowercase()
}

#[test]
fn no_text_has_a_phrase_that_a_native_would_not_use() {
    let files = tracked()
        .into_iter()
        .filter(|file| file.ends_with(".rs") || file.ends_with(".md"));
    let mut found = Vec::new();
    for file in files.filter(|file| file != "tests/tidy/words.rs") {
        let text = joined(&read(&file));
        let said = PHRASES.iter().filter(|phrase| text.contains(**phrase));
        found.extend(said.map(|phrase| format!("{file}: {phrase}")));
    }
    assert_eq!(found, [""; 0], "rewrite these: subject, verb, object");
}

/// Words of the code, for which users have plainer ones.
const OF_THE_CODE: [&str; 6] = [
    "bereft",
    "door",
    "doors",
    "incumbent",
    "incumbents",
    "lives",
];

/// Returns a text without what stands in backticks: commands, keys and what is printed.
fn prose(text: &str) -> String {
    let blocks = text.split("```").step_by(2).collect::<String>();
    blocks.split('`').step_by(2).collect()
}

#[test]
fn no_text_for_users_has_a_word_of_the_code() {
    let of_users = |file: &String| {
        let is_document = file.starts_with("daemon/docs/") && file.ends_with(".md");
        let is_manual = file.starts_with("daemon/dist/man/");
        let is_code = file.ends_with("/architecture.md");
        file == "README.md" || (is_document || is_manual) && !is_code
    };
    let mut found = Vec::new();
    for file in tracked().into_iter().filter(of_users) {
        let text = prose(&read(&file)).to_lowercase();
        let words = text.split(|c: char| !c.is_alphanumeric());
        found.extend(
            words
                .filter(|word| OF_THE_CODE.contains(word))
                .map(|word| format!("{file}: {word}")),
        );
    }
    assert_eq!(found, [""; 0]);
}
