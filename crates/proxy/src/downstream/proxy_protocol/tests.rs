//! Headers as others write them, and any bytes at all.

use super::*;
use proptest::prelude::*;

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, body].concat()
}

fn addresses(source: &str, destination: &str) -> Option<Addresses> {
    Some(Addresses { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
}

#[test]
fn headers_are_read_and_what_follows_is_left() {
    let four = [10, 0, 0, 1, 10, 0, 0, 2, 0x1f, 0x90, 0, 80];
    let tlv = [0x04, 0, 1, 0];
    let six = [&[0; 15][..], &[1], &[0; 15], &[2], &[0, 1, 0, 2]].concat();
    let v4 = addresses("10.0.0.1:8080", "10.0.0.2:80");
    let cases: &[(Vec<u8>, Option<Addresses>)] = &[
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 8080 80\r\n".to_vec(), v4),
        (b"PROXY TCP6 ::1 ::2 1 2\r\n".to_vec(), addresses("[::1]:1", "[::2]:2")),
        (b"PROXY UNKNOWN\r\n".to_vec(), None),
        (b"PROXY UNKNOWN ffff:: ffff:: 65535 65535\r\n".to_vec(), None),
        (v2(0x21, 0x11, &four), v4),
        (v2(0x21, 0x12, &four), v4),
        (v2(0x21, 0x11, &[&four[..], &tlv].concat()), v4),
        (v2(0x21, 0x21, &six), addresses("[::1]:1", "[::2]:2")),
        (v2(0x20, 0x11, &four), None),
        (v2(0x20, 0x00, &[]), None),
        (v2(0x21, 0x00, &tlv), None),
        (v2(0x21, 0x31, &[0; 216]), None),
    ];
    for (bytes, expected) in cases {
        let whole = [&bytes[..], b"GET / HTTP/1.1\r\n"].concat();
        let header = Header { addresses: *expected, length: bytes.len() };
        assert_eq!(parse(&whole), Ok(Some(header)), "{}", bytes.escape_ascii());
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{}", bytes[..end].escape_ascii());
        }
    }
}

#[test]
fn what_is_no_header_is_refused() {
    use Malformed::*;
    let cases: &[(&[u8], Malformed)] = &[
        (b"GET / HTTP/1.1\r\n", Missing),
        (b"\x16\x03\x01", Missing),
        (b"proxy TCP4 ", Missing),
        (b"\r\n\r\n\0\r\nQUIT\r", Missing),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 8080 80\n", Line),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 8080\r\n", Line),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 8080 80 1\r\n", Line),
        (b"PROXY TCP4 ::1 ::2 8080 80\r\n", Line),
        (b"PROXY TCP6 10.0.0.1 10.0.0.2 8080 80\r\n", Line),
        (b"PROXY TCP4 10.0.0.1  10.0.0.2 8080 80\r\n", Line),
        (b"PROXY TCP4 10.0.0.01 10.0.0.2 8080 80\r\n", Line),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 +80 80\r\n", Line),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 080 80\r\n", Line),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 65536 80\r\n", Line),
        (b"PROXY UNKNOWNX\r\n", Line),
        (b"PROXY \xff\r\n", Line),
        (b"PROXY \r\n", Line),
    ];
    for (bytes, expected) in cases {
        assert_eq!(parse(bytes), Err(*expected), "{}", bytes.escape_ascii());
    }
    assert_eq!(parse(&[&b"PROXY TCP4 "[..], &[b'1'; 200]].concat()), Err(TooLong));
    assert_eq!(parse(&v2(0x31, 0x11, &[0; 12])), Err(Version));
    assert_eq!(parse(&v2(0x22, 0x11, &[0; 12])), Err(Version));
    assert_eq!(parse(&v2(0x21, 0x11, &[0; 11])), Err(Addresses));
    assert_eq!(parse(&v2(0x21, 0x21, &[0; 35])), Err(Addresses));
    assert_eq!(parse(&v2(0x21, 0x31, &[0; 215])), Err(Addresses));
    assert_eq!(parse(&v2(0x21, 0x41, &[0; 12])), Err(Addresses));
    assert_eq!(parse(&v2(0x21, 0x11, &[0; MAX_HEADER_LEN])), Err(TooLong));
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port))
}

/// What fuzzing starts from.
fn corpus() -> Vec<Vec<u8>> {
    let folder =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/proxy_protocol")).unwrap();
    folder.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

/// Bytes of the corpus with some of them changed, cut short, and with others behind.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let rest = prop::collection::vec(any::<u8>(), 0..200);
    (prop::sample::select(corpus()), changes, any::<prop::sample::Index>(), any::<bool>(), rest).prop_map(
        |(mut bytes, changes, end, is_cut, rest)| {
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            if is_cut {
                bytes.truncate(end.index(bytes.len() + 1));
            }
            bytes.extend(rest);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(source in any_address(), destination in any_address()) {
        let written = Addresses { source, destination };
        for form in [Form::V1, Form::V2] {
            let mut bytes = Vec::new();
            write(&mut bytes, form, &written);
            bytes.push(b'x');
            let header = parse(&bytes).unwrap().unwrap();
            prop_assert_eq!(header.length, bytes.len() - 1);
            let read = header.addresses.unwrap();
            prop_assert_eq!(read.source.ip().to_canonical(), source.ip());
            prop_assert_eq!(read.destination.ip().to_canonical(), destination.ip());
            prop_assert_eq!((read.source.port(), read.destination.port()), (source.port(), destination.port()));
        }
    }

    #[test]
    fn any_bytes_read_alike_whole_and_in_pieces(bytes in mutated()) {
        let whole = parse(&bytes);
        let first = (0..=bytes.len()).map(|end| parse(&bytes[..end])).find(|it| *it != Ok(None));
        prop_assert_eq!(first.unwrap_or(Ok(None)), whole);
        let Ok(Some(header)) = whole else { return Ok(()) };
        prop_assert!(header.length <= bytes.len() && header.length <= MAX_HEADER_LEN);
        for form in [Form::V1, Form::V2] {
            let Some(addresses) = header.addresses else { continue };
            let mut written = Vec::new();
            write(&mut written, form, &addresses);
            let read = parse(&written).unwrap().unwrap();
            prop_assert_eq!((read.length, read.addresses.is_some()), (written.len(), true));
        }
    }
}
