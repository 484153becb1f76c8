//! The wire format of protocol buffers, read in place.
//!
//! ONNX files are protocol buffers. This reader is written out rather than derived with a library because it then borrows
//! everything from the file: gigabytes of weights are stepped over by their length, no length in a hostile file makes it
//! reserve memory, and nothing is decoded before it is asked for. The format is four shapes of field; that is all here.

use std::fmt;

/// Where a file is no protocol buffer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WireError {
    /// The byte of the file.
    pub at: usize,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.message)
    }
}

/// The bytes of one message, and where in the file they start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Message<'a> {
    pub bytes: &'a [u8],
    start: usize,
}

/// What one field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// A whole number of variable length.
    Number(u64),
    /// Four bytes.
    Four([u8; 4]),
    /// Eight bytes.
    Eight([u8; 8]),
    /// Text, bytes, a message or a list of numbers.
    Bytes(Message<'a>),
}

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    /// Its number.
    pub number: u64,
    content: Content<'a>,
    at: usize,
}

impl<'a> Message<'a> {
    /// A whole file.
    pub fn file(bytes: &'a [u8]) -> Message<'a> {
        Message { bytes, start: 0 }
    }

    /// Calls `each` with every field in turn.
    pub fn fields(self, mut each: impl FnMut(Field<'a>) -> Result<(), WireError>) -> Result<(), WireError> {
        let mut rest = Rest { bytes: self.bytes, at: self.start };
        while !rest.bytes.is_empty() {
            each(rest.field()?)?;
        }
        Ok(())
    }
}

impl<'a> Field<'a> {
    fn error(&self, wanted: &str) -> WireError {
        WireError { at: self.at, message: format!("field {} is not {wanted}", self.number) }
    }

    /// A whole number.
    pub fn int(&self) -> Result<i64, WireError> {
        match self.content {
            Content::Number(n) => Ok(n as i64),
            _ => Err(self.error("a whole number")),
        }
    }

    /// A 32-bit floating-point number.
    pub fn float(&self) -> Result<f32, WireError> {
        match self.content {
            Content::Four(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.error("a floating-point number")),
        }
    }

    /// A message, or any other bytes.
    pub fn message(&self) -> Result<Message<'a>, WireError> {
        match self.content {
            Content::Bytes(message) => Ok(message),
            _ => Err(self.error("a message")),
        }
    }

    /// Text.
    pub fn text(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.message()?.bytes).map_err(|_| self.error("UTF-8 text"))
    }

    /// Adds one whole number or a list of them.
    pub fn ints(&self, into: &mut Vec<i64>) -> Result<(), WireError> {
        match self.content {
            Content::Number(n) => into.push(n as i64),
            Content::Bytes(list) => {
                let mut rest = Rest { bytes: list.bytes, at: list.start };
                while !rest.bytes.is_empty() {
                    into.push(rest.number()? as i64);
                }
            }
            _ => return Err(self.error("a list of whole numbers")),
        }
        Ok(())
    }

    /// Adds one 32-bit floating-point number or a list of them.
    pub fn floats(&self, into: &mut Vec<f32>) -> Result<(), WireError> {
        match self.content {
            Content::Four(bytes) => into.push(f32::from_le_bytes(bytes)),
            Content::Bytes(list) if list.bytes.len().is_multiple_of(4) => {
                into.extend(list.bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)));
            }
            _ => return Err(self.error("a list of floating-point numbers")),
        }
        Ok(())
    }

    /// Adds one 64-bit floating-point number or a list of them.
    pub fn doubles(&self, into: &mut Vec<f32>) -> Result<(), WireError> {
        match self.content {
            Content::Eight(bytes) => into.push(f64::from_le_bytes(bytes) as f32),
            Content::Bytes(list) if list.bytes.len().is_multiple_of(8) => {
                into.extend(list.bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b) as f32));
            }
            _ => return Err(self.error("a list of floating-point numbers")),
        }
        Ok(())
    }
}

/// What is left to read of a message.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn error<T>(&self, message: &str) -> Result<T, WireError> {
        Err(WireError { at: self.at, message: message.to_string() })
    }

    fn number(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for (i, byte) in self.bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.skip(i + 1);
                return Ok(value);
            }
        }
        self.error("a number does not end")
    }

    fn skip(&mut self, n: usize) {
        self.bytes = &self.bytes[n..];
        self.at += n;
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8], WireError> {
        match usize::try_from(n).ok().and_then(|n| self.bytes.get(..n)) {
            Some(taken) => {
                self.skip(taken.len());
                Ok(taken)
            }
            None => self.error(&format!("{n} bytes should follow, and {} do", self.bytes.len())),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn field(&mut self) -> Result<Field<'a>, WireError> {
        let at = self.at;
        let key = self.number()?;
        let content = match key & 7 {
            0 => Content::Number(self.number()?),
            1 => Content::Eight(self.array()?),
            2 => {
                let length = self.number()?;
                let start = self.at;
                Content::Bytes(Message { bytes: self.take(length)?, start })
            }
            5 => Content::Four(self.array()?),
            other => return self.error(&format!("no field has the wire type {other}")),
        };
        match key >> 3 {
            0 => Err(WireError { at, message: "no field has the number 0".to_string() }),
            number => Ok(Field { number, content, at }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u64, String)>, WireError> {
        let mut seen = Vec::new();
        Message::file(bytes).fields(|f| {
            seen.push((f.number, format!("{:?}", f.content)));
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn fields_of_every_shape() {
        let bytes = b"\x08\x96\x01\x12\x02hi\x1d\x00\x00\x80\x3f\x21\x00\x00\x00\x00\x00\x00\xf0\x3f";
        let seen = read(bytes).expect("reads");
        let shown: Vec<String> = seen.iter().map(|(n, c)| format!("{n} {c}")).collect();
        assert_eq!(shown[0], "1 Number(150)");
        assert_eq!(shown[1], "2 Bytes(Message { bytes: [104, 105], start: 5 })");
        assert_eq!(shown[2], "3 Four([0, 0, 128, 63])");
        assert_eq!(shown[3], "4 Eight([0, 0, 0, 0, 0, 0, 240, 63])");
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        let error = |bytes: &[u8]| read(bytes).expect_err("is wrong").to_string();
        assert_eq!(error(b"\x08\x01\x12\x7fhi"), "byte 4: 127 bytes should follow, and 2 do");
        assert_eq!(
            error(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
            "byte 10: 9223372036854775807 bytes should follow, and 0 do"
        );
        assert_eq!(
            error(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            "byte 1: a number does not end"
        );
        assert_eq!(error(b"\x0b"), "byte 1: no field has the wire type 3");
        assert_eq!(error(b"\x00\x01"), "byte 0: no field has the number 0");
    }
}
