//! Prints a fragment's plan, from its bytes.

use cleave_fragment::{decode_fragment, unread_task_context};
use datafusion_physical_plan::displayable;

use cleave_catalog::error::Result;

/// The lines that show the plan of a fragment: the bytes themselves, or hexadecimal digits as EXPLAIN (FORMAT FRAGMENT)
/// gives them, one fragment a line. Invalid bytes give the reason.
#[must_use]
pub fn fragment(input: &[u8]) -> Vec<String> {
    let text = str::from_utf8(input).unwrap_or_default();
    let digits: Vec<Vec<u8>> = text.lines().filter_map(from_digits).collect();
    let fragments = if digits.is_empty() { vec![input.to_vec()] } else { digits };
    let mut lines = Vec::new();
    for (number, bytes) in fragments.iter().enumerate() {
        lines.push(format!("fragment {number}, {} bytes", bytes.len()));
        match shown(bytes) {
            Ok(plan) => lines.extend(plan.lines().map(|line| format!("  {line}"))),
            Err(error) => lines.push(format!("  NO FRAGMENT of this build: {error}")),
        }
    }
    lines
}

fn shown(bytes: &[u8]) -> Result<String> {
    let task = unread_task_context()?;
    let plan = decode_fragment(bytes, &task)?;
    Ok(displayable(plan.as_ref()).indent(true).to_string())
}

/// The bytes of a line of digits; None where it is something else, as the title of a column.
fn from_digits(line: &str) -> Option<Vec<u8>> {
    let line = line.trim();
    if line.is_empty() || !line.len().is_multiple_of(2) {
        return None;
    }
    let pairs = line.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}
