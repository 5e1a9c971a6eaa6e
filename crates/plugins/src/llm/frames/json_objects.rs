//! JSON objects one behind the other, on lines of their own or as the members of an array.

use super::{Event, FrameError, MAX_EVENT_LEN};

/// Finds the objects at the top, and leaves out what stands between them.
#[derive(Debug, Default)]
pub(crate) struct JsonObjects {
    object: Vec<u8>,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl JsonObjects {
    /// Appends the objects that are complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), FrameError> {
        for byte in bytes {
            if self.depth == 0 && *byte != b'{' {
                continue;
            }
            if self.object.len() == MAX_EVENT_LEN {
                return Err(FrameError::TooLong);
            }
            self.object.push(*byte);
            self.advance(*byte);
            if self.depth == 0 {
                let object = std::mem::take(&mut self.object);
                let data = String::from_utf8_lossy(&object).into_owned();
                events.push(Event { name: String::new(), data });
            }
        }
        Ok(())
    }

    fn advance(&mut self, byte: u8) {
        if self.in_string {
            let was_escaped = std::mem::take(&mut self.is_escaped);
            match byte {
                b'"' if !was_escaped => self.in_string = false,
                b'\\' => self.is_escaped = !was_escaped,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' => self.depth += 1,
            b'}' => self.depth -= 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&[u8]]) -> Vec<String> {
        let (mut reader, mut events) = (JsonObjects::default(), Vec::new());
        parts.iter().for_each(|part| reader.push(part, &mut events).unwrap());
        events.into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn objects_are_found_on_lines_and_in_arrays() {
        let stream = br#"[{"a":{"b":1}},
            {"text":"} \" { \\"}]{"c":[{}]}
{"half""#;
        let expected = [r#"{"a":{"b":1}}"#, r#"{"text":"} \" { \\"}"#, r#"{"c":[{}]}"#];
        assert_eq!(read(&[stream]), expected);
        assert_eq!(read(&stream.chunks(1).collect::<Vec<_>>()), expected);
        assert!(read(&[b"rubbish } ] \" }"]).is_empty());
    }

    #[test]
    fn an_endless_object_is_an_error() {
        let (mut reader, mut events) = (JsonObjects::default(), Vec::new());
        assert_eq!(reader.push(&vec![b'{'; MAX_EVENT_LEN + 1], &mut events), Err(FrameError::TooLong));
    }
}
