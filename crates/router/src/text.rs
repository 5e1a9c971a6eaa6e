//! A short text beside what it names, so that comparing it reads no other memory.
use std::ops::Deref;

/// A text of at most this length is stored in place.
const MAX_SHORT: usize = 30;

/// A name or a prefix, in 32 bytes unless it is long.
#[derive(Debug)]
pub(super) enum Text {
    /// Its length, and the text in as many of the bytes.
    Short(u8, [u8; MAX_SHORT]),
    Long(Box<[u8]>),
}

impl Text {
    pub(super) fn new(text: &[u8]) -> Text {
        let mut room = [0; MAX_SHORT];
        match room.get_mut(..text.len()) {
            Some(start) => {
                start.copy_from_slice(text);
                Text::Short(text.len() as u8, room)
            }
            None => Text::Long(text.into()),
        }
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Text::Short(length, room) => &room[..usize::from(*length)],
            Text::Long(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_is_what_it_was() {
        for length in 0..=2 * MAX_SHORT {
            let text: Vec<u8> = (0..length as u8).collect();
            assert_eq!(*Text::new(&text), *text);
        }
        assert_eq!(size_of::<Text>(), 32);
    }
}
