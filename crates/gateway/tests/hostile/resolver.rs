//! Class 22: a name server, or who pretends to be it, answers with anything. The gateway answers 503 for a name that has no
//! good answer, takes no address from an answer to another question, and goes on.
use crate::harness::{Gateway, Upstream, document, service};
use std::net::{SocketAddr, UdpSocket};
use std::thread;

/// Length of a message's header.
const HEADER: usize = 12;
const NOERROR: [u8; 2] = [0x81, 0x80];
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
/// The name of the question, a class of 1, a minute, and the length of an address.
const A: [u8; 12] = [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4];

/// What the server does to the right answer to each name; true where the upstream is found all the same.
type Forge = fn(&[u8]) -> Vec<Vec<u8>>;

const CASES: &[(&str, bool, Forge)] = &[
    ("right", true, |query| vec![answer(query, 1, &[&A[..], &LOOPBACK].concat())]),
    ("behind-others", true, |query| {
        vec![vec![], vec![0xff; 9], other_id(query), answer(query, 1, &[&A[..], &LOOPBACK].concat())]
    }),
    ("empty", false, |_| vec![vec![]]),
    ("short", false, |query| vec![query[..5].to_vec()]),
    ("random", false, |query| vec![[&query[..2], &[0xA5; 400]].concat()]),
    ("other-id", false, |query| vec![other_id(query)]),
    ("other-question", false, |query| {
        let mut forged = answer(query, 1, &[&A[..], &LOOPBACK].concat());
        forged[HEADER + 1] ^= 0x01;
        vec![forged]
    }),
    ("query-bit", false, |query| {
        let mut forged = answer(query, 1, &[&A[..], &LOOPBACK].concat());
        forged[2] &= 0x7f;
        vec![forged]
    }),
    ("pointer-to-itself", false, |query| {
        let at = u8::try_from(question(query).len() + HEADER).unwrap();
        vec![answer(query, 1, &[&[0xC0, at][..], &A[2..], &LOOPBACK].concat())]
    }),
    ("pointer-behind-the-end", false, |query| {
        vec![answer(query, 1, &[&[0xFF, 0xFF][..], &A[2..], &LOOPBACK].concat())]
    }),
    ("label-behind-the-end", false, |query| vec![answer(query, 1, &[63, b'a'])]),
    ("name-too-long", false, |query| {
        let name = [&[63][..], &[b'a'; 63]].concat().repeat(5);
        vec![answer(query, 1, &[&name[..], &[0], &A[2..], &LOOPBACK].concat())]
    }),
    ("length-too-long", false, |query| vec![answer(query, 1, &[&A[..10], &[0xff, 0xff, 127]].concat())]),
    ("address-of-three-bytes", false, |query| {
        vec![answer(query, 1, &[&A[..10], &[0, 3, 127, 0, 0]].concat())]
    }),
    ("more-answers-than-there-are", false, |query| {
        vec![answer(query, 60_000, &[&A[..], &LOOPBACK].concat())]
    }),
    ("alias-of-itself", false, |query| {
        vec![answer(query, 1, &[0xC0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xC0, 12])]
    }),
    ("address-of-another-name", false, |query| {
        vec![answer(query, 1, &[&[4][..], b"evil", &[4], b"test", &[0], &A[2..], &LOOPBACK].concat())]
    }),
];

/// The question of a query: a name, a type and a class.
fn question(query: &[u8]) -> &[u8] {
    let name = query[HEADER..].iter().position(|byte| *byte == 0).unwrap();
    &query[HEADER..HEADER + name + 5]
}

/// The answer to a query for an address with these records, of which it says that they are so many; none to others.
fn answer(query: &[u8], count: u16, records: &[u8]) -> Vec<u8> {
    let question = question(query);
    let is_of_address = question.ends_with(&[0, 1, 0, 1]);
    let (count, records) = if is_of_address { (count, records) } else { (0, &[][..]) };
    [&query[..2], &NOERROR, &[0, 1], &count.to_be_bytes(), &[0; 4], question, records].concat()
}

fn other_id(query: &[u8]) -> Vec<u8> {
    let mut forged = answer(query, 1, &[&A[..], &LOOPBACK].concat());
    forged[0] ^= 0xff;
    forged
}

/// The server: the first label of a name says what it does.
fn server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let query = &packet[..length];
            let first = usize::from(query[HEADER]);
            let label = String::from_utf8_lossy(&query[HEADER + 1..HEADER + 1 + first]).to_lowercase();
            let Some((_, _, forge)) = CASES.iter().find(|(name, ..)| *name == label) else { continue };
            for message in forge(query) {
                let _ = socket.send_to(&message, from);
            }
        }
    });
    address
}

#[test]
fn answers_of_a_name_server_that_are_none() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let port = upstream.address.port();
    let services: Vec<_> = CASES
        .iter()
        .map(|(name, ..)| service(&format!("/{name}"), format!("{name}.test:{port}"), "retries: 0", ""))
        .chain([service("/beside", upstream.address, "", "")])
        .collect();
    let gateway = Gateway::builder(&document(&services, ""))
        .set("dns_resolver", &server().to_string())
        .set("dns_hostsfile", "/dev/null")
        .set("dns_order", "A")
        .start();
    // At a time, because the gateway waits for what is no answer.
    thread::scope(|scope| {
        for (name, is_found, _) in CASES {
            let gateway = &gateway;
            scope.spawn(move || {
                let response = gateway.get(&format!("/{name}"));
                assert_eq!(response.status, if *is_found { 200 } else { 503 }, "{name}: {}", response.text());
                assert_eq!(gateway.get("/beside").status, 200, "{name}");
            });
        }
    });
}
