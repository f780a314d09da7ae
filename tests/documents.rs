//! The commands in the documents, for tests that run them as printed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What Docker's users read.
pub const DOCKER: &str = "daemon/docs/docker.md";

/// Returns a document from the root of this workspace.
///
/// # Panics
/// If it cannot be read.
pub fn text(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(document);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the first block of shell commands behind a text of a document.
///
/// # Panics
/// If there is no such text, or no block behind it.
pub fn block(document: &str, after: &str) -> String {
    let text = text(document);
    let block = text.split_once(after).and_then(|(_, text)| {
        let (_, block) = text.split_once("```sh\n")?;
        Some(block.split_once("```")?.0)
    });
    let block = block.unwrap_or_else(|| panic!("{document}: no block behind {after}"));
    block.to_owned()
}

/// Returns the first command in backticks behind a text of a document, in one line.
///
/// # Panics
/// If there is no such text, or no command behind it.
pub fn command(document: &str, after: &str) -> String {
    let text = text(document)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let command = text
        .split_once(after)
        .and_then(|(_, text)| text.split('`').nth(1));
    let command = command.unwrap_or_else(|| panic!("{document}: no command behind {after}"));
    command.to_owned()
}

/// Returns the commands in backticks of a document that begin with this word, each in one line. What has only one word more is a
/// verb's name.
pub fn commands(document: &str, word: &str) -> BTreeSet<String> {
    let prose = text(document).split("```").step_by(2).collect::<String>();
    let prose = prose.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = prose.split('`').skip(1).step_by(2);
    quoted
        .filter(|command| command.split(' ').next() == Some(word))
        .filter(|command| command.split(' ').count() > 2)
        .map(str::to_owned)
        .collect()
}

/// Returns the blocks in a language under a document's heading.
///
/// # Panics
/// If there is no such heading.
pub fn blocks(document: &str, heading: &str, language: &str) -> Vec<String> {
    let text = text(document);
    let (_, section) = text
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("{document}: no {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let opening = format!("```{language}\n");
    let blocks = section.split(&opening).skip(1);
    blocks
        .filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()))
        .collect()
}

/// Returns Docker's commands and ours in the shell blocks under a document's heading, each split into words.
///
/// # Panics
/// As [`blocks`].
pub fn commands_of(document: &str, heading: &str) -> Vec<Vec<String>> {
    let lines = blocks(document, heading, "sh")
        .concat()
        .replace("\\\n", " ");
    let words = |line: &str| {
        line.split(" #")
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let ours = |words: &Vec<String>| {
        words
            .first()
            .is_some_and(|first| ["docker", "leasehold"].contains(&first.as_str()))
    };
    lines.lines().map(words).filter(ours).collect()
}
