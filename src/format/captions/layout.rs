//! The division of a caption's text into lines.

use super::atoms::{Atom, LINE_COLUMNS};
use super::phrases::{ends_clause, leans_on_next};

const LINES: usize = 2;

/// The cost of a break within a phrase, in columns of unevenness.
const NO_PUNCTUATION: usize = 12;
/// The same for one after a word that belongs to the next: `the`.
const PARTS_PHRASE: usize = 10;
/// The cost of a longer first line: it hides more of the picture.
const TOP_HEAVY: usize = 2;

/// Columns of `atoms` on one line.
pub fn columns(atoms: &[Atom]) -> usize {
    let columns: usize = atoms.iter().map(Atom::columns_after).sum();
    columns - atoms.first().map_or(0, |atom| usize::from(atom.is_spaced))
}

/// The number of `atoms` that one caption can hold.
pub fn fitting(atoms: &[Atom]) -> usize {
    let mut fitting = 0;
    for _ in 0..LINES {
        let mut columns = 0;
        for (index, atom) in atoms.get(fitting..).unwrap_or_default().iter().enumerate() {
            columns += if index == 0 { atom.columns } else { atom.columns_after() };
            if columns > LINE_COLUMNS && index > 0 {
                break;
            }
            fitting += 1;
        }
    }
    fitting
}

/// `atoms`, which fit, on as many lines as they need.
pub fn lines(atoms: &[Atom]) -> Vec<String> {
    if columns(atoms) <= LINE_COLUMNS {
        return vec![line(atoms)];
    }
    let halves = (1..atoms.len()).map(|at| atoms.split_at(at));
    let fits =
        |(top, bottom): &(&[Atom], &[Atom])| columns(top) <= LINE_COLUMNS && columns(bottom) <= LINE_COLUMNS;
    match halves.filter(fits).min_by_key(|(top, bottom)| cost(top, bottom)) {
        Some((top, bottom)) => vec![line(top), line(bottom)],
        None => vec![line(atoms)],
    }
}

fn cost(top: &[Atom], bottom: &[Atom]) -> usize {
    let (above, below) = (columns(top), columns(bottom));
    let last = top.last().map_or("", |atom| atom.text.as_str());
    let is_stopped = ends_clause(last);
    let heavy = if above > below { TOP_HEAVY } else { 0 };
    let parted = if is_stopped { 0 } else { NO_PUNCTUATION };
    let phrase = if leans_on_next(last) { PARTS_PHRASE } else { 0 };
    above.abs_diff(below) + heavy + parted + phrase
}

fn line(atoms: &[Atom]) -> String {
    let mut line = String::new();
    for atom in atoms {
        if atom.is_spaced && !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&atom.text);
    }
    line
}
