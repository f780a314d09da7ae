//! Text for a terminal.

use std::fmt::Write;

/// Returns a value as a cell: a dash if there is none.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns the width of each column.
pub(super) fn widths<const N: usize>(rows: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|column| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or_default()
    })
}

/// Lays rows out in columns, two spaces apart.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            write!(line, "{cell:width$}  ").expect("a String takes everything");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
