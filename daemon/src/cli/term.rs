//! What the reader of a command's output can show: how many columns, and whether colours.

use std::env;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use rustix::termios::tcgetwinsize;

/// The width for a terminal that does not say, and for a file.
const WIDTH: usize = 80;

/// The reader of standard output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    width: usize,
    colour: bool,
    /// Whether a text can replace the one before it.
    redraws: bool,
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
        let width = size
            .map(|size| usize::from(size.ws_col))
            .filter(|columns| *columns >= WIDTH / 2);
        let colour = is_terminal && env::var_os("NO_COLOR").is_none_or(|said| said.is_empty());
        Self {
            width: width.unwrap_or(WIDTH),
            colour,
            redraws: is_terminal,
        }
    }

    /// Returns how many columns a terminal shows; `None`: the reader is no terminal, and has room for whole names.
    pub(crate) fn columns(self) -> Option<usize> {
        self.redraws.then_some(self.width)
    }

    /// Returns a text that replaces the one before it on a terminal (ECMA-48: CUP, EL, ED).
    pub(crate) fn in_place(self, text: &str) -> String {
        match self.redraws {
            true => format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\r\n")),
            false => text.to_owned() + "\n",
        }
    }

    /// Returns a text with the codes that make it stand out.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Good => 32,
            Paint::Warn => 33,
            Paint::Bad => 31,
        };
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Returns a text in lines no wider than the reader, broken between words; the first begins with `head`, the others are
    /// indented by its width. A wider word has a line of its own. Nothing in the text moves a terminal's cursor.
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
    pub(crate) const PLAIN: Self = Self {
        width: WIDTH,
        colour: false,
        redraws: false,
    };
}

/// Returns a time in a form that people read: its two largest units.
pub(crate) fn brief(seconds: u64) -> String {
    leasehold_core::time::brief(Duration::from_secs(seconds))
}

/// Returns a text from outside in which everything that a terminal would obey is escaped.
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
        let narrow = Term {
            width: 12,
            ..Term::PLAIN
        };
        assert_eq!(
            narrow.wrapped("- ", "one two three fourteenletters five"),
            "- one two\n  three\n  fourteenletters\n  five\n"
        );
        assert_eq!(narrow.wrapped("- ", ""), "- \n");
        assert_eq!(
            narrow.wrapped("", "it's \u{1b}[2J \"b\" \\x"),
            "it's\n\\u{1b}[2J\n\"b\" \\x\n"
        );
    }

    #[test]
    fn a_text_takes_the_place_of_the_one_before_on_a_terminal() {
        let terminal = Term {
            redraws: true,
            ..Term::PLAIN
        };
        assert_eq!(
            terminal.in_place("a\nb\n"),
            "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J"
        );
        assert_eq!(Term::PLAIN.in_place("a\n"), "a\n\n");
    }

    #[test]
    fn a_time_has_its_two_largest_units() {
        let table = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m0s"),
            (3_599, "59m59s"),
            (3_600, "1h0m"),
            (86_399, "23h59m"),
        ];
        for (seconds, text) in table
            .into_iter()
            .chain([(90_000, "1d1h"), (u64::from(u32::MAX), "49710d6h")])
        {
            assert_eq!(brief(seconds), text);
        }
    }

    #[test]
    fn colours_are_for_those_who_show_them() {
        let colourful = Term {
            colour: true,
            ..Term::PLAIN
        };
        assert_eq!(colourful.paint(Paint::Warn, "x"), "\x1b[33mx\x1b[0m");
        assert_eq!(Term::PLAIN.paint(Paint::Warn, "x"), "x");
    }
}
