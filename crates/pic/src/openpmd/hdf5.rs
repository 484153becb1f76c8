//! HDF5, as much of it as openPMD wants: groups, attributes, and contiguous numbers of double precision.
//!
//! A file is a superblock of version 2, the numbers one after the other, and an object header of version 2 for each group and
//! dataset, those inside before those around (HDF5 File Format Specification 3.0). Nothing is compressed, and nothing can be
//! added later: files are written as a whole.

use super::tree::{Data, Node, Says};

/// The address of what is not there.
const NOWHERE: u64 = u64::MAX;

/// How long the superblock is.
const SUPERBLOCK: usize = 48;

/// The bytes of a file.
pub(crate) fn bytes(root: &Node) -> Vec<u8> {
    let mut file = vec![0; SUPERBLOCK];
    let at = object(&mut file, root);
    let mut block = b"\x89HDF\r\n\x1a\n".to_vec();
    // Version 2; addresses and lengths of 8 bytes.
    block.extend_from_slice(&[2, 8, 8, 0]);
    for address in [0, NOWHERE, file.len() as u64, at] {
        block.extend_from_slice(&address.to_le_bytes());
    }
    let sum = checksum(&block);
    block.extend_from_slice(&sum.to_le_bytes());
    file[..SUPERBLOCK].copy_from_slice(&block);
    file
}

/// Writes a node and what is inside; where its header is.
fn object(file: &mut Vec<u8>, node: &Node) -> u64 {
    let mut messages = Vec::new();
    if let Some(data) = &node.data {
        dataset(file, data, &mut messages);
    } else {
        // A group whose links stand in its header: no heap, no index.
        let mut info = vec![0, 0];
        info.extend_from_slice(&NOWHERE.to_le_bytes());
        info.extend_from_slice(&NOWHERE.to_le_bytes());
        message(&mut messages, 0x02, &info);
        message(&mut messages, 0x0A, &[0, 0]);
        for (name, inside) in &node.inside {
            let at = object(file, inside);
            // Version 1; the length of a name takes two bytes.
            let mut link = vec![1, 1];
            link.extend_from_slice(&(name.len() as u16).to_le_bytes());
            link.extend_from_slice(name.as_bytes());
            link.extend_from_slice(&at.to_le_bytes());
            message(&mut messages, 0x06, &link);
        }
    }
    for (name, says) in &node.attributes {
        message(&mut messages, 0x0C, &attribute(name, says));
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let at = file.len();
    // Version 2; the size of what follows takes four bytes.
    let mut header = b"OHDR\x02\x02".to_vec();
    header.extend_from_slice(&(messages.len() as u32).to_le_bytes());
    header.extend_from_slice(&messages);
    let sum = checksum(&header);
    header.extend_from_slice(&sum.to_le_bytes());
    file.extend_from_slice(&header);
    at as u64
}

/// Writes numbers, and what a header says of them.
fn dataset(file: &mut Vec<u8>, data: &Data, messages: &mut Vec<u8>) {
    file.resize(file.len().next_multiple_of(8), 0);
    let size = data.values.len() * 8;
    let at = if size > 0 { file.len() as u64 } else { NOWHERE };
    data.values.iter().for_each(|value| file.extend_from_slice(&value.to_le_bytes()));
    message(messages, 0x01, &dataspace(Some(&data.shape)));
    message(messages, 0x03, &real(8));
    // Space is taken when it is wanted, and there is nothing to fill it with.
    message(messages, 0x05, &[3, 0x0A]);
    let mut layout = vec![3, 1];
    layout.extend_from_slice(&at.to_le_bytes());
    layout.extend_from_slice(&(size as u64).to_le_bytes());
    message(messages, 0x08, &layout);
}

/// A message of a header: its kind, its size, no flags.
fn message(messages: &mut Vec<u8>, kind: u8, body: &[u8]) {
    messages.push(kind);
    messages.extend_from_slice(&(body.len() as u16).to_le_bytes());
    messages.push(0);
    messages.extend_from_slice(body);
}

/// One value, or an array of them.
fn dataspace(shape: Option<&[usize]>) -> Vec<u8> {
    let Some(shape) = shape else { return vec![2, 0, 0, 0] };
    let mut space = vec![2, shape.len() as u8, 0, 1];
    shape.iter().for_each(|length| space.extend_from_slice(&(*length as u64).to_le_bytes()));
    space
}

/// IEEE numbers of 4 or 8 bytes, the lowest byte first.
fn real(size: u8) -> Vec<u8> {
    // The sign's place; where the exponent is and how long, how long the mantissa is, and the exponent's bias.
    let (sign, exponent, long, mantissa, bias) =
        if size == 8 { (63, 52, 11, 52, 1023u32) } else { (31, 23, 8, 23, 127) };
    let mut kind = vec![0x11, 0x20, sign, 0, size, 0, 0, 0];
    kind.extend_from_slice(&[0, 0, size * 8, 0, exponent, long, 0, mantissa]);
    kind.extend_from_slice(&bias.to_le_bytes());
    kind
}

/// Whole numbers without a sign.
fn whole(size: u8) -> Vec<u8> {
    vec![0x10, 0, 0, 0, size, 0, 0, 0, 0, 0, size * 8, 0]
}

/// Texts of so many bytes, in UTF-8, with zeros behind.
fn texts(size: usize) -> Vec<u8> {
    let mut kind = vec![0x13, 0x11, 0, 0];
    kind.extend_from_slice(&(size as u32).to_le_bytes());
    kind
}

fn attribute(name: &str, says: &Says) -> Vec<u8> {
    let numbers = |all: &[f64]| all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let padded = |all: &[&str]| {
        let size = all.iter().map(|text| text.len()).max().unwrap_or(0).max(1);
        let bytes: Vec<u8> = all
            .iter()
            .flat_map(|text| text.bytes().chain(std::iter::repeat_n(0, size - text.len())))
            .collect();
        (texts(size), bytes)
    };
    let (kind, shape, data) = match says {
        Says::Text(text) => {
            let (kind, data) = padded(&[text]);
            (kind, None, data)
        }
        Says::Texts(all) => {
            let (kind, data) = padded(&all.iter().map(String::as_str).collect::<Vec<_>>());
            (kind, Some(vec![all.len()]), data)
        }
        Says::Number(number) => (real(8), None, number.to_le_bytes().to_vec()),
        Says::Single(number) => (real(4), None, number.to_le_bytes().to_vec()),
        Says::Count(count) => (whole(4), None, count.to_le_bytes().to_vec()),
        Says::Numbers(all) => (real(8), Some(vec![all.len()]), numbers(all)),
        Says::Powers(all) => (real(8), Some(vec![all.len()]), numbers(all)),
        Says::Counts(all) => {
            (whole(8), Some(vec![all.len()]), all.iter().flat_map(|x| x.to_le_bytes()).collect())
        }
    };
    let space = dataspace(shape.as_deref());
    let mut body = vec![3, 0];
    for length in [name.len() + 1, kind.len(), space.len()] {
        body.extend_from_slice(&(length as u16).to_le_bytes());
    }
    // The name is plain ASCII, with a zero behind.
    body.push(0);
    body.extend_from_slice(name.as_bytes());
    body.push(0);
    body.extend_from_slice(&kind);
    body.extend_from_slice(&space);
    body.extend_from_slice(&data);
    body
}

/// Jenkins's lookup3, which HDF5 sums up its metadata with.
fn checksum(bytes: &[u8]) -> u32 {
    let start = 0xDEAD_BEEFu32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let word = |bytes: &[u8], at: usize| {
        (0..4).map(|i| u32::from(bytes.get(at + i).copied().unwrap_or(0)) << (8 * i)).sum::<u32>()
    };
    let mut left = bytes;
    while left.len() > 12 {
        (a, b, c) =
            (a.wrapping_add(word(left, 0)), b.wrapping_add(word(left, 4)), c.wrapping_add(word(left, 8)));
        for (turn, which) in [(4, 0), (6, 1), (8, 2), (16, 0), (19, 1), (4, 2)] {
            match which {
                0 => (a, c) = (a.wrapping_sub(c) ^ c.rotate_left(turn), c.wrapping_add(b)),
                1 => (b, a) = (b.wrapping_sub(a) ^ a.rotate_left(turn), a.wrapping_add(c)),
                _ => (c, b) = (c.wrapping_sub(b) ^ b.rotate_left(turn), b.wrapping_add(a)),
            }
        }
        left = &left[12..];
    }
    if left.is_empty() {
        return c;
    }
    (a, b, c) = (a.wrapping_add(word(left, 0)), b.wrapping_add(word(left, 4)), c.wrapping_add(word(left, 8)));
    for (turn, which) in [(14, 0), (11, 1), (25, 2), (16, 0), (4, 1), (14, 2), (24, 0)] {
        match which {
            0 => c = (c ^ b).wrapping_sub(b.rotate_left(turn)),
            1 => a = (a ^ c).wrapping_sub(c.rotate_left(turn)),
            _ => b = (b ^ a).wrapping_sub(a.rotate_left(turn)),
        }
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the function's author gives beside it.
    #[test]
    fn sums_are_those_of_lookup3() {
        assert_eq!(checksum(b""), 0xDEAD_BEEF);
        assert_eq!(checksum(b"Four score and seven years ago"), 0x1777_0551);
    }

    /// A file's parts are where they are said to be: the root's header, its link, and numbers behind it.
    #[test]
    fn what_is_written_is_where_it_is_said_to_be() {
        let root =
            Node::default().with("E", Node::default().holding(vec![2, 3], (0..6).map(f64::from).collect()));
        let file = bytes(&root);
        let address = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("8 bytes")) as usize;
        assert_eq!(address(28), file.len());
        let root = address(36);
        assert_eq!(&file[root..root + 6], b"OHDR\x02\x02");
        let name =
            (root..file.len()).find(|at| file[*at..].starts_with(&[1, 1, 1, 0, b'E'])).expect("a link") + 5;
        let dataset = address(name);
        assert_eq!(&file[dataset..dataset + 4], b"OHDR");
        let layout =
            (dataset..root).find(|at| file[*at..].starts_with(&[8, 18, 0, 0, 3, 1])).expect("a layout") + 6;
        let data = address(layout);
        assert_eq!(address(layout + 8), 48);
        let numbers: Vec<f64> = file[data..data + 48]
            .chunks_exact(8)
            .map(|bytes| f64::from_le_bytes(bytes.try_into().expect("8 bytes")))
            .collect();
        assert_eq!(numbers, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }
}
