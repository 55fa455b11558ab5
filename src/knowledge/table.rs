//! Tables as lines of text, one per row: `Cleaning: price $90, time 30 minutes`.

/// A row with more words, or more lines in a cell, is page layout and not data.
const ROW_WORDS_MAX: usize = 40;
const CELL_LINES_MAX: usize = 3;

/// A position in the text read so far. Everything after it is whole lines of the same section, unless a heading
/// came in between.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub sections: usize,
    pub lines: usize,
}

#[derive(Default)]
pub struct Table {
    /// Column names.
    names: Vec<String>,
    /// Whether rows followed the names.
    has_rows: bool,
    row: Vec<Cell>,
    /// The start of the open cell, and whether it is a header cell.
    cell: Option<(Place, bool)>,
    /// Whether it has a caption.
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

    /// The start of the open cell, if there is one.
    pub fn cell(&self) -> Option<Place> {
        self.cell.map(|(place, _)| place)
    }

    pub fn end_cell(&mut self, lines: Vec<String>) {
        if let Some((_, is_name)) = self.cell.take() {
            self.row.push(Cell { lines, is_name });
        }
    }

    /// Ends the row and returns its lines.
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

    /// Ends the table: the column names, if no rows followed them.
    pub fn end(self) -> Option<String> {
        (!self.has_rows && !self.names.is_empty()).then(|| self.names.join(", "))
    }
}

/// Joins the lines of a cell.
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

/// `text` with the name of its subject in front.
pub fn labelled(name: &str, text: &str) -> String {
    match (name.is_empty(), text.is_empty()) {
        (true, _) => text.to_owned(),
        (_, true) => name.to_owned(),
        _ if name.ends_with([':', '.', '!', '?']) => format!("{name} {text}"),
        _ => format!("{name}: {text}"),
    }
}
