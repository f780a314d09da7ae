//! How large the core may be, and that a name in it means one type. The numbers stand here and may only fall: a commit that takes code
//! out lowers them.

use std::collections::BTreeMap;

use crate::{read, tracked};

/// Lines of code in `daemon/core` and `daemon/range`, without blank lines, comments and tests.
const LINES: usize = 23_042;
/// Constants of the core that are a `Duration`.
const DURATIONS: usize = 49;

/// Room that was argued for: lines, durations, and the argument. It ends when the two numbers above take it in.
const ROOM: [(usize, usize, &str); 0] = [];

/// How many lines and durations the core may be below its number before the number has to follow: changes that land side by side do
/// not disturb each other.
const SLACK: (usize, usize) = (1_000, 10);

/// Returns the code of a file up to its tests, or nothing if it is a test.
fn code_of_core(file: &str) -> Option<String> {
    let is_core = file.starts_with("daemon/core/src/") || file.starts_with("daemon/range/");
    let is_test = file.contains("/tests") || file.contains("/testbed");
    if !is_core || is_test || !file.ends_with(".rs") {
        return None;
    }
    let text = read(file);
    let end = text.find("#[cfg(test)]\nmod tests {");
    Some(text[..end.unwrap_or(text.len())].to_owned())
}

fn is_code(line: &&str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

/// Returns whether a line declares a constant that is a `Duration`.
fn is_duration(line: &&str) -> bool {
    let declared = line.trim_start().split_once("const ");
    declared.is_some_and(|(before, rest)| {
        let name_ends = rest.find(|c: char| !matches!(c, 'A'..='Z' | '0'..='9' | '_'));
        let is_item = before.is_empty() || before.starts_with("pub");
        is_item && name_ends.is_some_and(|at| rest[at..].starts_with(": Duration"))
    })
}

#[test]
fn the_core_does_not_grow() {
    let code: Vec<String> = tracked()
        .iter()
        .filter_map(|file| code_of_core(file))
        .collect();
    let lines = || code.iter().flat_map(|text| text.lines()).filter(is_code);
    let (more_lines, more_durations) = ROOM.iter().fold((0, 0), |(lines, durations), room| {
        (lines + room.0, durations + room.1)
    });
    let durations = lines().filter(is_duration).count();
    for (what, has, may, slack, number) in [
        (
            "lines of code",
            lines().count(),
            LINES + more_lines,
            SLACK.0,
            "LINES",
        ),
        (
            "durations",
            durations,
            DURATIONS + more_durations,
            SLACK.1,
            "DURATIONS",
        ),
    ] {
        assert!(
            has <= may,
            "the core has {has} {what}, {may} are allowed. Take as much out: a rule that a simpler one replaces, a case that no \
             user met. What has to be larger gets a line in ROOM in tests/tidy/ratchet.rs, with the argument for it; do not raise \
             {number}"
        );
        assert!(
            may - has <= slack,
            "the core has {has} {what}, and {may} are allowed: lower {number} in tests/tidy/ratchet.rs to {has}, so that it stays \
             this small"
        );
    }
}

/// Returns the name of the type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let is_visibility = |word: &&str| word.starts_with("pub") || word.ends_with(')');
    let mut words = line.split_whitespace().skip_while(is_visibility);
    let is_type = matches!(words.next()?, "struct" | "enum" | "trait");
    let name = words.next().filter(|_| is_type)?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

#[test]
fn no_type_name_is_declared_twice_in_the_core() {
    let mut declarations = BTreeMap::<String, String>::new();
    for file in tracked() {
        for name in code_of_core(&file)
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(declared)
        {
            if let Some(first) = declarations.insert(name.to_owned(), file.clone()) {
                panic!(
                    "{name} is declared in {first} and in {file}: give one of them a name of its own"
                );
            }
        }
    }
    assert!(declarations.contains_key("Registry"));
}
