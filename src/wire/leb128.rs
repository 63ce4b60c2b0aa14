//! Whole numbers in as few bytes as they need (unsigned LEB128): seven bits a byte, the least
//! significant bits first, the top bit set on every byte but the last. A number has one form only,
//! so that a number that is read and written again is the same bytes.

/// Most bytes of a number: 64 bits, seven a byte.
pub const LEB128_BYTES_MAX: usize = 10;

/// Appends `value` in at most [`LEB128_BYTES_MAX`] bytes.
#[inline]
pub fn write_leb128(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`write_leb128`] appends for `value`.
#[inline]
pub const fn leb128_bytes(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Takes a number off the front of `input`. `None`: the number is cut off, above 64 bits, or longer
/// than its shortest form; then `input` may stand at any byte.
#[inline]
pub fn read_leb128(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            let is_shortest = byte != 0 || shift == 0;
            let fits = shift < 63 || byte == 1;
            return (is_shortest && fits).then_some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write_leb128(value, &mut out);
        out
    }

    #[test]
    fn edges() {
        assert_eq!(written(0), [0]);
        assert_eq!(written(0x7f), [0x7f]);
        assert_eq!(written(0x80), [0x80, 1]);
        assert_eq!(written(u64::MAX).len(), LEB128_BYTES_MAX);
        for refused in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff, 0x80, 0],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(read_leb128(&mut &refused[..]), None, "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn comes_back(value: u64, bits in 0..64_u32, tail: Vec<u8>) {
            let value = value >> bits;
            let bytes = written(value);
            prop_assert_eq!(bytes.len(), leb128_bytes(value));
            for cut in 0..bytes.len() {
                prop_assert_eq!(read_leb128(&mut &bytes[..cut]), None);
            }
            let input = [bytes, tail.clone()].concat();
            let mut rest = &input[..];
            prop_assert_eq!(read_leb128(&mut rest), Some(value));
            prop_assert_eq!(rest, &tail[..]);
        }
    }
}
