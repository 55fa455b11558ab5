//! Telephone numbers.

/// `text` as a telephone number of ITU-T E.164: `+` and 8 to 15 digits, without the spaces, hyphens, dots and
/// parentheses that it may contain.
pub fn phone_number(text: &str) -> Option<String> {
    let number: String = text.chars().filter(|c| !matches!(c, ' ' | '-' | '.' | '(' | ')')).collect();
    let digits = number.strip_prefix('+')?;
    let is_number = (8..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}
