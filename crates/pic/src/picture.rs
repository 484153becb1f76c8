//! Pictures of fields, densities and phase space, as PNG files inside a page.
//!
//! A picture is some thousand numbers on a rectangle. Pixels are written as they are: PNG allows data that is not packed, and
//! then needs checksums alone.

use crate::error::PicError;
use crate::simd::Real;
use crate::simulation::Simulation;

/// Numbers on a rectangle.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// What it shows.
    pub title: String,
    /// What goes to the right, from where to where.
    pub across: (String, f64, f64),
    /// What goes up.
    pub up: (String, f64, f64),
    /// How many numbers there are to the right, and up.
    pub size: [usize; 2],
    /// The numbers, lowest row first.
    pub values: Vec<f64>,
    /// Whether zero lies in the middle of the colours; otherwise at their beginning.
    pub signed: bool,
}

/// Colours from the least to the most, for what has a sign and for what has none.
const SIGNED: [[f64; 3]; 5] =
    [[0.02, 0.19, 0.38], [0.4, 0.66, 0.81], [0.97, 0.97, 0.97], [0.94, 0.54, 0.38], [0.4, 0.0, 0.12]];
const PLAIN: [[f64; 3]; 5] =
    [[1.0, 1.0, 1.0], [0.78, 0.86, 0.94], [0.42, 0.68, 0.84], [0.13, 0.44, 0.71], [0.03, 0.19, 0.42]];

fn colour(palette: &[[f64; 3]; 5], part: f64) -> [u8; 3] {
    let at = part.clamp(0.0, 1.0) * 4.0;
    let first = (at as usize).min(3);
    let part = at - first as f64;
    std::array::from_fn(|i| {
        (255.0 * (palette[first][i] * (1.0 - part) + palette[first + 1][i] * part)).round() as u8
    })
}

impl Picture {
    /// The largest magnitude in it.
    pub fn most(&self) -> f64 {
        self.values.iter().fold(0.0, |most, value| value.abs().max(most))
    }

    /// As a PNG file, highest row first.
    pub fn png(&self) -> Vec<u8> {
        let ([width, height], most) = (self.size, self.most().max(f64::MIN_POSITIVE));
        let mut raw = Vec::with_capacity(height * (3 * width + 1));
        for row in self.values.chunks(width.max(1)).rev() {
            raw.push(0);
            for value in row {
                let (palette, part) =
                    if self.signed { (&SIGNED, 0.5 + 0.5 * value / most) } else { (&PLAIN, value / most) };
                raw.extend_from_slice(&colour(palette, part));
            }
        }
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut head = Vec::new();
        head.extend_from_slice(&(width as u32).to_be_bytes());
        head.extend_from_slice(&(height as u32).to_be_bytes());
        head.extend_from_slice(&[8, 2, 0, 0, 0]);
        chunk(&mut file, b"IHDR", &head);
        chunk(&mut file, b"IDAT", &stored(&raw));
        chunk(&mut file, b"IEND", &[]);
        file
    }

    /// As a figure of an HTML page.
    pub fn figure(&self) -> String {
        let [_, height] = self.size;
        let tall = if height == 1 { 40 } else { 260 };
        let most = self.most();
        let range = if self.signed { format!("±{most:.3e}") } else { format!("0 to {most:.3e}") };
        format!(
            "<figure><figcaption>{} <small>({range})</small></figcaption><img alt=\"{}\" style=\"height:{tall}px\" \
             src=\"data:image/png;base64,{}\"><div class=\"axes\">{} {:.4} to {:.4} across, {} {:.4} to {:.4} up</div></figure>",
            escaped(&self.title),
            escaped(&self.title),
            base64(&self.png()),
            escaped(&self.across.0),
            self.across.1,
            self.across.2,
            escaped(&self.up.0),
            self.up.1,
            self.up.2
        )
    }
}

/// A text without what HTML reads as its own.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A part of a PNG file: its length, its kind, its bytes, and their checksum.
fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], bytes: &[u8]) {
    file.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend_from_slice(kind);
    file.extend_from_slice(bytes);
    let sum = crc32fast::hash(&file[start..]);
    file.extend_from_slice(&sum.to_be_bytes());
}

/// Bytes in the format of zlib, not packed.
fn stored(raw: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let blocks = raw.chunks(0xFFFF);
    let count = blocks.len();
    for (at, block) in blocks.enumerate() {
        let length = block.len() as u16;
        out.push(u8::from(at + 1 == count));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in raw {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    out.extend_from_slice(&((b << 16) | a).to_be_bytes());
    out
}

/// Bytes as text.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len() * 4 / 3 + 4);
    for three in bytes.chunks(3) {
        let all =
            three.iter().fold(0u32, |all, byte| (all << 8) | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(all >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { letter as char } else { '=' });
        }
    }
    out
}

const NAMES: [&str; 3] = ["x", "y", "z"];

/// The axes of pictures: the longest in cells to the right, the next up, and the one that is cut through.
fn axes(cells: [usize; 3]) -> [usize; 3] {
    let mut axes = [2, 0, 1];
    axes.sort_by_key(|axis| std::cmp::Reverse(cells[*axis]));
    axes
}

/// The most places to the right and up.
const MOST: [usize; 2] = [1024, 512];

/// Pictures of what there is now: the fields in the middle, and of each species its density and its phase space.
pub fn pictures<R: Real>(simulation: &mut Simulation<R>) -> Result<Vec<Picture>, PicError> {
    let grid = simulation.setup().grid.clone();
    let [a, b, c] = axes(grid.cells);
    let begins = |axis: usize| if axis == 2 { simulation.shift() as f64 * grid.spacing[2] } else { 0.0 };
    let span = |axis: usize| {
        let length = grid.cells[axis] as f64 * grid.spacing[axis];
        (format!("{} in c/ωp:", NAMES[axis]), begins(axis), begins(axis) + length)
    };
    let (across, up) = (span(a), span(b));
    let size = [grid.cells[a].min(MOST[0]), grid.cells[b].min(MOST[1])];
    let place = |cell: [usize; 3]| {
        let of = |axis: usize, size: usize| cell[axis] * size / grid.cells[axis];
        of(b, size[1]) * size[0] + of(a, size[0])
    };
    let picture = |title: String, values: Vec<f64>, signed: bool| Picture {
        title,
        across: across.clone(),
        up: up.clone(),
        size,
        values,
        signed,
    };
    let mut made = Vec::new();
    let mut fields = vec![vec![0.0; size[0] * size[1]]; 6];
    let [nx, ny, _] = grid.cells;
    simulation.layers(false, |layer, all| {
        let each = all.len() / 6;
        let first = layer * grid.tile[2];
        for (component, values) in fields.iter_mut().enumerate() {
            for (at, value) in all[component * each..(component + 1) * each].iter().enumerate() {
                let cell = [at % nx, at / nx % ny, first + at / (nx * ny)];
                if cell[c] == grid.cells[c] / 2 {
                    values[place(cell)] = value.wide();
                }
            }
        }
    })?;
    for (component, values) in fields.into_iter().enumerate() {
        let name = format!("{}{}", ["E", "B"][component / 3], NAMES[component % 3]);
        let cut = if grid.cells[c] > 1 { format!(" in the middle of {}", NAMES[c]) } else { String::new() };
        if values.iter().any(|value| *value != 0.0) {
            made.push(picture(format!("{name}{cut}"), values, true));
        }
    }
    // Of cells that share a place, and along the axis that is not seen, the mean.
    let volume = grid.cell_volume() * grid.volume() as f64 / (size[0] * size[1]) as f64;
    for species in 0..simulation.setup().species.len() {
        let name = simulation.setup().species[species].name.clone();
        let mut density = vec![0.0; size[0] * size[1]];
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        simulation.visit(species, |cell, single| {
            density[place(cell)] += single[6].wide() / volume;
            let momentum = single[3 + a].wide();
            (low, high) = (low.min(momentum), high.max(momentum));
        })?;
        made.push(picture(format!("density of {name}"), density, false));
        // What the rank that leads has seen is what there is.
        if simulation.team().led(low > high)? {
            continue;
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if high - low < 1e-9 {
            (low, high) = (low - 1e-3, high + 1e-3);
        }
        let rows = 160;
        let mut phase = vec![0.0; size[0] * rows];
        simulation.visit(species, |cell, single| {
            let row = ((single[3 + a].wide() - low) / (high - low) * rows as f64) as usize;
            phase[row.min(rows - 1) * size[0] + cell[a] * size[0] / grid.cells[a]] += single[6].wide();
        })?;
        // What is rare is to be seen, too.
        let least = phase.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        phase.iter_mut().filter(|value| **value > 0.0).for_each(|value| *value = 1.0 + (*value / least).ln());
        made.push(Picture {
            title: format!("phase space of {name}, logarithm"),
            across: across.clone(),
            up: (format!("momentum along {} in mc:", NAMES[a]), low, high),
            size: [size[0], rows],
            values: phase,
            signed: false,
        });
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_picture_is_a_png() {
        let axis = || (String::from("x"), 0.0, 1.0);
        let picture = Picture {
            title: "<field>".to_string(),
            across: axis(),
            up: axis(),
            size: [300, 100],
            values: (0..30_000).map(f64::from).collect(),
            signed: true,
        };
        let png = picture.png();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        // Two blocks that are not packed: 100 rows of 901 bytes, with heads and sums.
        assert_eq!(png.len(), 8 + 25 + 12 + 2 + 2 * 5 + 100 * 901 + 4 + 12);
        assert_eq!(colour(&SIGNED, 0.5), [247, 247, 247]);
        assert!(picture.figure().contains("&lt;field&gt;"));
    }

    #[test]
    fn the_longest_axis_goes_to_the_right() {
        assert_eq!(axes([48, 48, 256]), [2, 0, 1]);
        assert_eq!(axes([64, 1, 1])[0], 0);
        assert_eq!(axes([8, 8, 8]), [2, 0, 1]);
    }
}
