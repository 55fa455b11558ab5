//! A table's rows as lines: `Cleaning: price $90, time 30 minutes`.

use super::html::{Place, labelled};

/// With more words, or more lines in a cell, a row is no data but a way to place things on a page.
const ROW_WORDS_MAX: usize = 40;
const CELL_LINES_MAX: usize = 3;

#[derive(Default)]
pub struct Table {
    /// The names of its columns.
    names: Vec<String>,
    /// Rows came after the names.
    has_rows: bool,
    row: Vec<Cell>,
    /// Where the cell begins that is being read, and whether it is a name.
    cell: Option<(Place, bool)>,
    /// It has a caption.
    pub is_called: bool,
}

struct Cell {
    lines: Vec<String>,
    is_name: bool,
}

impl Table {
    pub fn begin_cell(&mut self, place: Place, is_name: bool) {
        self.cell = Some((place, is_name));
    }

    /// Where the open cell begins, if there is one.
    pub fn cell(&self) -> Option<Place> {
        self.cell.map(|(place, _)| place)
    }

    pub fn end_cell(&mut self, lines: Vec<String>) {
        if let Some((_, is_name)) = self.cell.take() {
            self.row.push(Cell { lines, is_name });
        }
    }

    /// The lines of the row that is over.
    pub fn end_row(&mut self) -> Vec<String> {
        self.cell = None;
        let row = std::mem::take(&mut self.row);
        if row.iter().all(|cell| cell.lines.is_empty()) {
            return Vec::new();
        }
        let words = row.iter().flat_map(|cell| &cell.lines).map(|line| line.split_whitespace().count());
        let is_layout =
            words.sum::<usize>() > ROW_WORDS_MAX || row.iter().any(|cell| cell.lines.len() > CELL_LINES_MAX);
        if is_layout {
            return row.into_iter().flat_map(|cell| cell.lines).collect();
        }
        let is_names = row.len() > 1 && row.iter().all(|cell| cell.is_name);
        let cells: Vec<String> = row.into_iter().map(|cell| one_line(&cell.lines)).collect();
        if is_names && self.names.is_empty() {
            self.names = cells;
            return Vec::new();
        }
        self.has_rows = true;
        vec![self.line(&cells)]
    }

    fn line(&self, cells: &[String]) -> String {
        let Some((first, rest)) = cells.split_first() else { return String::new() };
        let names = if self.names.len() == cells.len() { self.names.as_slice() } else { &[] };
        let rest = rest.iter().enumerate().filter(|(_, text)| !text.is_empty()).map(|(at, text)| {
            let name = names.get(at + 1).filter(|name| !name.is_empty());
            // `Monday: 9 to 5` says enough; `Cleaning: 90` does not.
            let is_number = !text.contains(|c: char| c.is_alphabetic() || "$€£:–-%".contains(c));
            match name.filter(|_| cells.len() > 2 || is_number) {
                Some(name) => format!("{} {text}", uncapitalized(name)),
                None => text.clone(),
            }
        });
        labelled(first, &rest.collect::<Vec<_>>().join(", "))
    }

    /// Takes the lines of the unfinished row as they are.
    pub fn spill(&mut self) -> Vec<String> {
        self.cell = None;
        std::mem::take(&mut self.row).into_iter().flat_map(|cell| cell.lines).collect()
    }

    /// The column names, where no rows came after them.
    pub fn end(self) -> Option<String> {
        (!self.has_rows && !self.names.is_empty()).then(|| self.names.join(", "))
    }
}

/// The lines of a cell in one.
fn one_line(lines: &[String]) -> String {
    let mut line = String::new();
    for next in lines {
        match line.chars().next_back() {
            None => {}
            Some(last) if last.is_ascii_punctuation() => line.push(' '),
            Some(_) => line.push_str(", "),
        }
        line.push_str(next);
    }
    line
}

/// `Price` becomes `price`, and `VAT` stays.
fn uncapitalized(name: &str) -> String {
    let mut letters = name.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(letters).collect(),
        _ => name.to_owned(),
    }
}
