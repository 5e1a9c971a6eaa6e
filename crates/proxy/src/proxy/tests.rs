//! What the acceptor does at the edges: when it is full, and when it is told to close.

use super::acceptor::Complaint;
use super::*;
use crate::access_log::{Format, Target};
use crate::testing::Gateway;
use std::net::{SocketAddr, TcpStream};

fn start(options: Options) -> Proxy {
    let listen = |tls| Listen { tls, ..Listen::http(SocketAddr::from(([127, 0, 0, 1], 0))) };
    let options = Options { listen: vec![listen(false), listen(true)], ..options };
    let off = || AccessLog::open(Target::Stderr, Format::Off).unwrap();
    Proxy::start(options, AccessLogs { requests: off(), sessions: off() }, Gateway::new().snapshot()).unwrap()
}

#[tokio::test]
async fn a_drain_leaves_no_listener_open() {
    for _ in 0..20 {
        let proxy = start(Options::default());
        assert!(proxy.drain(Duration::ZERO).await);
        for Listening { address, .. } in proxy.listening() {
            assert!(TcpStream::connect(address.ip().unwrap()).is_err(), "{address} is still listened on");
        }
    }
}

#[test]
fn complaints_come_once_a_second() {
    let start = Instant::now();
    let mut complaint = Complaint::default();
    let due = |ms| start + Duration::from_millis(ms);
    let said: Vec<_> = [0, 50, 999, 1000, 1050, 3000].map(|ms| complaint.is_due(due(ms))).into();
    assert_eq!(said, [true, false, false, true, false, true]);
}
