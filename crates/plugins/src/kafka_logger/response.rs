//! The responses of a broker, read so that no length in them allocates more than the response has bytes.

use super::error::KafkaError;
use kafka_protocol::error::ParseResponseErrorCode;
use std::collections::HashMap;

/// The most bytes of a broker's text that a message has.
const MAX_TEXT_LEN: usize = 200;
/// The longest name of a host.
const MAX_HOST_LEN: usize = 255;

/// Host and port of a broker.
pub(super) type Address = (String, u16);

/// What a broker answers, in the version that its request asks for.
pub(super) trait Response: Sized {
    fn read(from: &mut Reader<'_>) -> Result<Self, KafkaError>;
}

/// The cluster, and the one topic that was asked for. Version 4.
#[derive(Debug, PartialEq)]
pub(super) struct Metadata {
    pub(super) addresses: HashMap<i32, Address>,
    pub(super) error_code: i16,
    pub(super) topic: String,
    /// The number of each partition, and the broker that leads it, if one does.
    pub(super) partitions: Vec<(i32, Option<i32>)>,
}

/// Whether the records for one partition were taken. Version 3.
#[derive(Debug, PartialEq)]
pub(super) struct Produced {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) error_code: i16,
}

/// Whether the broker has the mechanism. Version 1.
#[derive(Debug, PartialEq)]
pub(super) struct Handshake {
    pub(super) error_code: i16,
    /// The mechanisms that it has, cut.
    pub(super) offered: String,
}

/// A step of a login. Version 0.
#[derive(Debug, PartialEq)]
pub(super) struct Authenticated {
    pub(super) error_code: i16,
    /// The broker's reason, cut; empty without one.
    pub(super) error_message: String,
    pub(super) message: String,
}

impl Response for Metadata {
    fn read(from: &mut Reader<'_>) -> Result<Self, KafkaError> {
        let _throttle_time = from.int32()?;
        let mut addresses = HashMap::new();
        from.list(|broker| {
            addresses.insert(broker.int32()?, address(broker)?);
            let _rack = broker.nullable_text()?;
            Ok(())
        })?;
        let _cluster_id = from.nullable_text()?;
        let _controller_id = from.int32()?;
        from.only("topic")?;
        let error_code = from.int16()?;
        let topic = from.text()?.to_owned();
        let _is_internal = from.array::<1>()?;
        let mut partitions = Vec::new();
        from.list(|partition| {
            let _error_code = partition.int16()?;
            let index = partition.int32()?;
            partitions.push((index, Some(partition.int32()?).filter(|leader| *leader >= 0)));
            partition.list(|replica| replica.int32().map(drop))?;
            partition.list(|in_sync| in_sync.int32().map(drop))
        })?;
        Ok(Self { addresses, error_code, topic, partitions })
    }
}

fn address(from: &mut Reader<'_>) -> Result<Address, KafkaError> {
    let host = from.text()?;
    if host.len() > MAX_HOST_LEN {
        return Err(malformed(format!("a broker's host of {} bytes", host.len())));
    }
    let port = from.int32()?;
    let port = u16::try_from(port).map_err(|_| malformed(format!("a broker's port is {port}")))?;
    Ok((host.to_owned(), port))
}

impl Response for Produced {
    fn read(from: &mut Reader<'_>) -> Result<Self, KafkaError> {
        from.only("topic")?;
        let topic = from.text()?.to_owned();
        from.only("partition")?;
        let partition = from.int32()?;
        let error_code = from.int16()?;
        let _base_offset = from.array::<8>()?;
        let _log_append_time = from.array::<8>()?;
        let _throttle_time = from.int32()?;
        Ok(Self { topic, partition, error_code })
    }
}

impl Produced {
    /// Whether this confirms the records for a partition.
    pub(super) fn confirm(&self, topic: &str, partition: i32) -> Result<(), KafkaError> {
        if self.topic != topic || self.partition != partition {
            return Err(malformed("an answer for another partition".to_owned()));
        }
        self.error_code.err().map_or(Ok(()), |error| Err(KafkaError::Refused(error)))
    }
}

impl Response for Handshake {
    fn read(from: &mut Reader<'_>) -> Result<Self, KafkaError> {
        let error_code = from.int16()?;
        let mut offered = String::new();
        from.list(|mechanism| {
            let name = mechanism.text()?;
            if offered.len() < MAX_TEXT_LEN {
                let comma = if offered.is_empty() { "" } else { ", " };
                offered.extend([comma, &cut(name)]);
            }
            Ok(())
        })?;
        Ok(Self { error_code, offered: cut(&offered) })
    }
}

impl Response for Authenticated {
    fn read(from: &mut Reader<'_>) -> Result<Self, KafkaError> {
        let error_code = from.int16()?;
        let error_message = cut(from.nullable_text()?.unwrap_or_default());
        let length = from.int32()?;
        let message = utf8(from.bytes(length)?)?.to_owned();
        Ok(Self { error_code, error_message, message })
    }
}

/// The start of a broker's text on one line.
fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT_LEN);
    let line = text[..end].replace(char::is_control, " ");
    if end < text.len() { line + "..." } else { line }
}

/// What is left of a response.
pub(super) struct Reader<'r>(pub(super) &'r [u8]);

impl<'r> Reader<'r> {
    pub(super) fn int32(&mut self) -> Result<i32, KafkaError> {
        self.array().map(i32::from_be_bytes)
    }

    fn int16(&mut self) -> Result<i16, KafkaError> {
        self.array().map(i16::from_be_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], KafkaError> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(|| self.ends_early(N))?;
        self.0 = rest;
        Ok(*array)
    }

    fn bytes(&mut self, length: i32) -> Result<&'r [u8], KafkaError> {
        let whole = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (bytes, rest) = whole.ok_or_else(|| self.ends_early(length))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'r str, KafkaError> {
        let length = self.int16()?;
        utf8(self.bytes(length.into())?)
    }

    fn nullable_text(&mut self) -> Result<Option<&'r str>, KafkaError> {
        match self.int16()? {
            -1 => Ok(None),
            length => utf8(self.bytes(length.into())?).map(Some),
        }
    }

    /// Reads each item of a list. A list that claims more items than it has ends with the response, because an item has a
    /// byte or more.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), KafkaError>) -> Result<(), KafkaError> {
        let count = self.int32()?;
        if usize::try_from(count).map_or(true, |count| count > self.0.len()) {
            return Err(malformed(format!("a list of {count} items in {} bytes", self.0.len())));
        }
        (0..count).try_for_each(|_| item(self))
    }

    /// Reads the length of a list that has one item.
    fn only(&mut self, of: &str) -> Result<(), KafkaError> {
        match self.int32()? {
            1 => Ok(()),
            count => Err(malformed(format!("an answer for {count} {of}s in place of one"))),
        }
    }

    fn ends_early(&self, wanted: impl std::fmt::Display) -> KafkaError {
        malformed(format!("a field of {wanted} bytes where {} are left", self.0.len()))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, KafkaError> {
    std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))
}

fn malformed(why: String) -> KafkaError {
    KafkaError::Malformed(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of a response, one after the other.
    #[derive(Default)]
    struct Fields(Vec<u8>);

    impl Fields {
        fn int16(mut self, value: i16) -> Self {
            self.0.extend(value.to_be_bytes());
            self
        }

        fn int32(mut self, value: i32) -> Self {
            self.0.extend(value.to_be_bytes());
            self
        }

        fn raw(mut self, bytes: &[u8]) -> Self {
            self.0.extend(bytes);
            self
        }

        fn text(self, text: &str) -> Self {
            self.int16(text.len().try_into().unwrap()).raw(text.as_bytes())
        }
    }

    fn metadata(brokers: i32, topics: i32, partitions: i32, replicas: i32, in_sync: i32) -> Vec<u8> {
        let brokers = Fields::default().int32(0).int32(brokers);
        let brokers = brokers.int32(7).text("a.test").int32(9092).int16(-1).text("id").int32(7);
        let topic = brokers.int32(topics).int16(0).text("t").raw(&[0]).int32(partitions);
        let first = topic.int16(0).int32(0).int32(7).int32(replicas).int32(7).int32(in_sync).int32(7);
        first.int16(5).int32(1).int32(-1).int32(0).int32(0).0
    }

    fn produced(topics: i32, partitions: i32) -> Vec<u8> {
        let topic = Fields::default().int32(topics).text("t").int32(partitions);
        topic.int32(3).int16(6).raw(&[0; 16]).int32(0).0
    }

    fn handshake(count: i32, name: &str) -> Vec<u8> {
        Fields::default().int16(33).int32(count).text("PLAIN").text(name).0
    }

    fn authenticated(error_message: &str, length: i32) -> Vec<u8> {
        Fields::default().int16(58).text(error_message).int32(length).raw(b"v=x").0
    }

    fn read<R: Response>(bytes: &[u8]) -> Result<R, KafkaError> {
        R::read(&mut Reader(bytes))
    }

    #[test]
    fn responses_are_read() {
        let topic = "t".to_owned();
        let addresses = HashMap::from([(7, ("a.test".to_owned(), 9092))]);
        let partitions = vec![(0, Some(7)), (1, None)];
        let expected = Metadata { addresses, error_code: 0, topic: topic.clone(), partitions };
        assert_eq!(read::<Metadata>(&metadata(1, 1, 2, 1, 1)).unwrap(), expected);
        let expected = Produced { topic, partition: 3, error_code: 6 };
        assert_eq!(read::<Produced>(&produced(1, 1)).unwrap(), expected);
        let expected = Handshake { error_code: 33, offered: "PLAIN, GSSAPI".to_owned() };
        assert_eq!(read::<Handshake>(&handshake(2, "GSSAPI")).unwrap(), expected);
        let [error_message, message] = ["no", "v=x"].map(str::to_owned);
        let expected = Authenticated { error_code: 58, error_message, message };
        assert_eq!(read::<Authenticated>(&authenticated("no", 3)).unwrap(), expected);
    }

    #[test]
    fn only_an_answer_for_the_partition_confirms_its_records() {
        let answer = |error_code| Produced { topic: "t".to_owned(), partition: 3, error_code };
        assert!(answer(0).confirm("t", 3).is_ok());
        assert!(matches!(answer(6).confirm("t", 3), Err(KafkaError::Refused(_))));
        for (topic, partition) in [("t", 0), ("u", 3), ("", 3)] {
            assert!(matches!(answer(0).confirm(topic, partition), Err(KafkaError::Malformed(_))), "{topic}");
        }
    }

    #[test]
    fn a_response_that_is_cut_anywhere_is_malformed() {
        fn check<R: Response>(whole: &[u8]) {
            assert!(read::<R>(whole).is_ok());
            for length in 0..whole.len() {
                assert!(matches!(read::<R>(&whole[..length]), Err(KafkaError::Malformed(_))), "{length}");
            }
        }
        check::<Metadata>(&metadata(1, 1, 2, 1, 1));
        check::<Produced>(&produced(1, 1));
        check::<Handshake>(&handshake(2, "GSSAPI"));
        check::<Authenticated>(&authenticated("no", 3));
    }

    #[test]
    fn lengths_that_a_response_does_not_have_are_malformed() {
        fn check<R: Response>(bytes: &[u8]) {
            assert!(matches!(read::<R>(bytes), Err(KafkaError::Malformed(_))), "{bytes:?}");
        }
        for hostile in [i32::MAX, i32::MIN, -1, 1000] {
            check::<Metadata>(&metadata(hostile, 1, 2, 1, 1));
            check::<Metadata>(&metadata(1, hostile, 2, 1, 1));
            check::<Metadata>(&metadata(1, 1, hostile, 1, 1));
            check::<Metadata>(&metadata(1, 1, 2, hostile, 1));
            check::<Metadata>(&metadata(1, 1, 2, 1, hostile));
            check::<Produced>(&produced(hostile, 1));
            check::<Produced>(&produced(1, hostile));
            check::<Handshake>(&handshake(hostile, "GSSAPI"));
            check::<Authenticated>(&authenticated("no", hostile));
        }
        for hostile in [i16::MAX, i16::MIN, -2] {
            check::<Produced>(&Fields::default().int32(1).int16(hostile).raw(&[0; 64]).0);
            check::<Handshake>(&Fields::default().int16(0).int32(1).int16(hostile).raw(&[0; 64]).0);
            check::<Authenticated>(&Fields::default().int16(0).int16(hostile).raw(&[0; 64]).0);
        }
        check::<Produced>(&produced(0, 1));
        check::<Produced>(&produced(1, 0));
    }

    #[test]
    fn texts_of_a_broker_are_cut() {
        let long = "é\n".repeat(5000);
        let Handshake { offered, .. } = read(&handshake(2, &long)).unwrap();
        let Authenticated { error_message, .. } = read(&authenticated(&long, 3)).unwrap();
        assert!(offered.starts_with("PLAIN, é é") && error_message.starts_with("é é"));
        for text in [offered, error_message] {
            assert!(text.len() < 210 && text.ends_with("...") && !text.contains('\n'), "{text}");
        }
    }
}
