//! What the reader of a command's output takes: how wide it is, and whether it shows colours.

use std::env;
use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;

/// The width of a terminal that does not say, and of a file.
const WIDTH: usize = 80;

/// The reader of standard output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    width: usize,
    colour: bool,
}

/// How a word stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// All is well.
    Good,
    /// Somebody should look.
    Warn,
    /// Something is wrong.
    Bad,
}

impl Term {
    /// Returns what standard output leads to. Colours are only for a terminal, and not with `NO_COLOR` (no-color.org).
    pub(crate) fn of_stdout() -> Self {
        let is_terminal = stdout().is_terminal();
        let size = is_terminal.then(|| tcgetwinsize(stdout()).ok()).flatten();
        let width = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= WIDTH / 2);
        let colour = is_terminal && env::var_os("NO_COLOR").is_none_or(|said| said.is_empty());
        Self { width: width.unwrap_or(WIDTH), colour }
    }

    /// Returns a text as it should stand out.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Good => 32,
            Paint::Warn => 33,
            Paint::Bad => 31,
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns a text in lines no wider than the reader, whole words each, behind `head` and below its end. A word that is wider
    /// has a line of its own. Nothing in the text moves a terminal's cursor.
    pub(crate) fn wrapped(self, head: &str, text: &str) -> String {
        let indent = head.chars().count();
        let mut lines = head.to_owned();
        let mut column = indent;
        for word in printable(text).split(' ').filter(|word| !word.is_empty()) {
            let length = word.chars().count();
            if column > indent && column + 1 + length > self.width {
                lines = lines.trim_end().to_owned() + "\n" + &" ".repeat(indent);
                column = indent;
            }
            if column > indent {
                lines.push(' ');
                column += 1;
            }
            lines.push_str(word);
            column += length;
        }
        lines + "\n"
    }

    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { width: WIDTH, colour: false };
}

/// Returns a text from outside with everything escaped that a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_wrapped_behind_its_head() {
        let narrow = Term { width: 12, colour: false };
        assert_eq!(
            narrow.wrapped("- ", "one two three fourteenletters five"),
            "- one two\n  three\n  fourteenletters\n  five\n"
        );
        assert_eq!(narrow.wrapped("- ", ""), "- \n");
        assert_eq!(narrow.wrapped("", "it's \u{1b}[2J \"b\" \\x"), "it's\n\\u{1b}[2J\n\"b\" \\x\n");
    }

    #[test]
    fn colours_are_for_those_who_show_them() {
        let colourful = Term { width: 80, colour: true };
        assert_eq!(colourful.paint(Paint::Warn, "x"), "\x1b[33mx\x1b[0m");
        assert_eq!(Term::PLAIN.paint(Paint::Warn, "x"), "x");
    }
}
