//! The traffic of the demo: a few requests a second, most of them good.
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// The requests of a round: their paths and what they show to prove who they are.
const ROUND: [(&str, &str); 14] = [
    ("/open", ""),
    ("/key/orders", "apikey: demo-key\r\n"),
    ("/open/catalogue?page=2", ""),
    ("/key/orders/17", "apikey: demo-key\r\n"),
    ("/limited", ""),
    ("/basic/account", "Authorization: Basic ZGVtbzpkZW1vLXBhc3N3b3Jk\r\n"),
    ("/open/catalogue", ""),
    ("/key/orders", ""),
    ("/open", ""),
    ("/key/orders", "apikey: demo-key\r\n"),
    ("/nowhere", ""),
    ("/open/catalogue", ""),
    ("/basic/account", "Authorization: Basic ZGVtbzpkZW1vLXBhc3N3b3Jk\r\n"),
    ("/closed", ""),
];

/// The requests a second, at the least and at the most: they rise and fall.
const RATES: (u32, u32) = (2, 10);

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests as long as the process runs.
pub(super) fn send(gateway: SocketAddr) {
    let (least, most) = RATES;
    let rates = (least..most).chain((least + 1..=most).rev()).cycle();
    let rates = rates.flat_map(|rate| (0..rate * 4).map(move |_| rate));
    for ((path, headers), rate) in ROUND.into_iter().cycle().zip(rates) {
        // A gateway that is being stopped takes none.
        let _ = request(gateway, path, headers);
        thread::park_timeout(Duration::from_secs(1) / rate);
    }
}

fn request(gateway: SocketAddr, path: &str, headers: &str) -> io::Result<()> {
    let mut connection = TcpStream::connect_timeout(&gateway, TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {gateway}\r\nUser-Agent: weir-demo\r\n{headers}Connection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes())?;
    io::copy(&mut connection, &mut io::sink()).map(drop)
}
