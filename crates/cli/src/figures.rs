//! Numbers and curves as people read them.

use tiercel_core::Bytes;

/// `12345678` as `12,345,678`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 kernel`, `12,345 kernels`.
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// A large count with its unit: `19.6 G`.
pub fn scaled(n: f64) -> String {
    let units = ["", " K", " M", " G", " T", " P", " E"];
    let mut value = n;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = if unit == 0 || value >= 100.0 { 0 } else { 3 - (value.log10().floor() as usize + 1) };
    format!("{value:.decimals$}{}", units[unit])
}

/// One character a figure, as high as the figure is against the largest.
pub fn sparkline(figures: &[Bytes]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let top = figures.iter().map(|b| b.0).max().unwrap_or(0).max(1);
    let bar = |b: &Bytes| BARS[((u128::from(b.0) * 8 / u128::from(top)) as usize).min(7)];
    figures.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let shown: Vec<String> = [0, 999, 1000, 143_667_240].map(grouped).to_vec();
        assert_eq!(shown, ["0", "999", "1,000", "143,667,240"]);
        let shown: Vec<String> = [0.0, 7.0, 1000.0, 19.632e9, 568.7e6, 2.5e12].map(scaled).to_vec();
        assert_eq!(shown, ["0", "7", "1.00 K", "19.6 G", "569 M", "2.50 T"]);
    }

    #[test]
    fn curves_reach_from_bottom_to_top() {
        assert_eq!(sparkline(&[Bytes(0), Bytes(4), Bytes(8), Bytes(7)]), "▁▅██");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[Bytes(u64::MAX)]), "█");
    }
}
