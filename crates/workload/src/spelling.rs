//! What somebody may have meant who wrote a name that does not exist.

/// The name that is most like this one, if any is like it at all.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let (distance, best) = known.map(|known| (edits(&name, known), known)).min_by_key(|(d, _)| *d)?;
    (distance <= 2.max(best.chars().count() / 3)).then_some(best)
}

/// How many characters must be inserted, removed or replaced to make `a` of `b`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(100).enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
