//! A table with aligned columns.

use super::escape;

/// Formats rows under a header; the last column is not padded. Widths count characters. A cell never ends its line.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| escape::line(cell).into_owned()).collect()).collect();
    let mut widths: Vec<usize> = header.iter().map(|title| title.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let last = cells.len().saturating_sub(1);
        let padded = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(index, (cell, width))| if index == last { cell.clone() } else { format!("{cell:<width$}") });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let header: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
    std::iter::once(line(&header)).chain(rows.iter().map(|row| line(row))).collect()
}

/// A text that is cut to fit into this many columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let text = escape::line(text);
    if text.chars().count() <= columns {
        return text.into_owned();
    }
    text.chars().take(columns.saturating_sub(3)).collect::<String>() + "..."
}

#[cfg(test)]
mod tests {
    use super::{fit, table};

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(fit("größer", 6), "größer");
        assert_eq!(fit("größer", 5), "gr...");
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "long cell".to_owned(), "x".to_owned()],
            vec!["öö".to_owned(), String::new(), "y".to_owned()],
        ];
        assert_eq!(table(&["ID", "B", "C"], &rows), "ID  B          C\na   long cell  x\nöö             y\n");
    }
}
