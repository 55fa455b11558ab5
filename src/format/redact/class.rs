//! The classes of numbers that can be hidden, and how a hidden number is shown.

/// The numbers to hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Numbers,
    AggressiveNumbers,
    Ssn,
    Pci,
}

/// The names of the classes, for messages.
pub const CLASSES: &str = "numbers, aggressive_numbers, ssn or pci";

impl Class {
    pub fn named(name: &str) -> Option<Self> {
        let classes = [
            ("numbers", Self::Numbers),
            ("true", Self::Numbers),
            ("aggressive_numbers", Self::AggressiveNumbers),
            ("ssn", Self::Ssn),
            ("pci", Self::Pci),
        ];
        classes.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, class)| class)
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Numbers | Self::AggressiveNumbers => "[NUMBER]",
            Self::Ssn => "[SSN]",
            Self::Pci => "[PCI]",
        }
    }
}

/// The replacement for a hidden number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// `*` for each digit.
    #[default]
    Mask,
    /// One `[SSN]` or the like for the whole number.
    Label,
}

impl Mode {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            _ if name.eq_ignore_ascii_case("mask") => Some(Self::Mask),
            _ if name.eq_ignore_ascii_case("label") => Some(Self::Label),
            _ => None,
        }
    }
}
