//! GPT-2's mapping of bytes to characters, which turns BPE over text into BPE over bytes.

/// Maps a byte to a character (`bytes_to_unicode` in GPT-2's `encoder.py`): printable Latin-1 maps to itself, and the
/// 68 other bytes map in order to the characters from U+0100 on. A space is `Ġ`, and a newline is `Ċ`.
pub const fn byte_to_char(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => return byte as char,
        0x00..=0x20 => 0x100 + byte as u32,
        0x7f..=0xa0 => 0x100 + 0x21 + (byte as u32 - 0x7f),
        0xad => 0x100 + 0x21 + 0x22,
    };
    match char::from_u32(code) {
        Some(character) => character,
        None => unreachable!(),
    }
}

/// Inverse of [`byte_to_char`]; none for other characters.
pub fn char_to_byte(character: char) -> Option<u8> {
    match character as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_gpt2s() {
        assert_eq!([b' ', b'\n', b'A', 0x7f, 0xad].map(byte_to_char), ['Ġ', 'Ċ', 'A', 'ġ', 'Ń']);
        for byte in 0..=255 {
            assert_eq!(char_to_byte(byte_to_char(byte)), Some(byte));
        }
    }
}
