//! The options that choose the rules.

/// The choice of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// All but `measurements`; numbers below ten stay words if they stand alone.
    pub smart: bool,
    /// Every number in digits. Alone: without commas, and nothing but numbers.
    pub numerals: bool,
    /// Units after a number as their signs, the number in digits.
    pub measurements: bool,
}
