use super::*;
use std::task::Waker;

/// What a peer has got, write by write, and how many bytes more it takes.
#[derive(Default)]
struct Peer {
    got: Vec<Vec<u8>>,
    takes: usize,
    sends: Vec<u8>,
    shut: bool,
}

struct Memory(Rc<RefCell<Peer>>);

impl AsyncRead for Memory {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut peer = self.0.borrow_mut();
        if peer.sends.is_empty() {
            return Poll::Pending;
        }
        let n = peer.sends.len().min(room.remaining());
        room.put_slice(&peer.sends.drain(..n).collect::<Vec<_>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut peer = self.0.borrow_mut();
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        bytes.truncate(peer.takes);
        if bytes.is_empty() {
            return Poll::Pending;
        }
        peer.takes -= bytes.len();
        let n = bytes.len();
        peer.got.push(bytes);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().shut = true;
        Poll::Ready(Ok(()))
    }
}

fn transport(takes: usize) -> (Transport, Rc<RefCell<Peer>>) {
    let peer = Rc::new(RefCell::new(Peer { takes, ..Peer::default() }));
    (Transport::from(Io::Memory(Box::new(Memory(peer.clone())))), peer)
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Writes the start of a frame and its body, as the `h2` crate does.
fn write(transport: &mut Transport, start: &[u8], body: &[u8]) -> Poll<usize> {
    let pieces = [IoSlice::new(start), IoSlice::new(body)];
    let taken = Pin::new(transport).poll_write_vectored(&mut context(), &pieces);
    taken.map(|taken| taken.unwrap_or_default())
}

#[test]
fn small_frames_leave_together() {
    let (mut transport, peer) = transport(usize::MAX);
    for _ in 0..10 {
        assert_eq!(write(&mut transport, b"head", b"body"), Poll::Ready(8));
        assert!(Pin::new(&mut transport).poll_flush(&mut context()).is_ready());
    }
    assert!(peer.borrow().got.is_empty());
    assert!(transport.sender().poll_flush(&mut context()).is_ready());
    assert_eq!(peer.borrow().got, [b"headbody".repeat(10)]);
}

#[test]
fn a_large_frame_leaves_at_once_with_what_waits() {
    let (mut transport, peer) = transport(usize::MAX);
    let body = vec![b'x'; COPIED + 1];
    assert_eq!(write(&mut transport, b"first", b""), Poll::Ready(5));
    assert_eq!(write(&mut transport, b"head", &body), Poll::Ready(5 + COPIED));
    assert_eq!(peer.borrow().got, [[b"firsthead", &body[..]].concat()]);
}

#[test]
fn no_more_waits_than_may_and_nothing_is_lost() {
    let (mut transport, peer) = transport(10);
    let frames = (0..).map(|number| [number as u8; 1000]);
    let taken: Vec<u8> =
        frames.take_while(|frame| write(&mut transport, frame, b"").is_ready()).flatten().collect();
    assert!(taken.len() <= HELD + 10, "{} bytes are taken", taken.len());
    assert!(taken.len() > HELD - 1000, "{} bytes are taken", taken.len());
    assert!(transport.sender().poll_flush(&mut context()).is_pending());
    peer.borrow_mut().takes = usize::MAX;
    assert!(transport.sender().poll_flush(&mut context()).is_ready());
    assert!(peer.borrow().got.concat() == taken, "it comes as it was taken");
}

#[test]
fn a_large_frame_behind_what_waits_is_taken_as_far_as_it_goes() {
    let (mut transport, peer) = transport(6);
    let body = vec![b'x'; 2 * COPIED];
    assert_eq!(write(&mut transport, b"first", b""), Poll::Ready(5));
    assert_eq!(write(&mut transport, b"", &body), Poll::Ready(1));
    assert_eq!(write(&mut transport, b"", &body[1..]), Poll::Pending);
    peer.borrow_mut().takes = 3;
    assert_eq!(write(&mut transport, b"", &body[1..]), Poll::Ready(3));
    assert_eq!(peer.borrow().got.concat(), b"firstxxxx");
}

#[test]
fn what_waits_leaves_before_the_end() {
    let (mut transport, peer) = transport(2);
    assert_eq!(write(&mut transport, b"bye", b""), Poll::Ready(3));
    assert!(Pin::new(&mut transport).poll_shutdown(&mut context()).is_pending());
    assert!(!peer.borrow().shut);
    peer.borrow_mut().takes = 1;
    assert!(Pin::new(&mut transport).poll_shutdown(&mut context()).is_ready());
    assert_eq!(peer.borrow().got.concat(), b"bye");
    assert!(peer.borrow().shut);
}

#[test]
fn what_a_future_writes_leaves_when_it_waits() {
    let (mut transport, peer) = transport(usize::MAX);
    let sender = transport.sender();
    let mut driven = Box::pin(sender.with(poll_fn(|_| {
        let _ = write(&mut transport, b"hello", b"");
        Poll::<()>::Pending
    })));
    assert!(driven.as_mut().poll(&mut context()).is_pending());
    assert_eq!(peer.borrow().got, [b"hello"]);
}

#[test]
fn one_read_fills_many_rooms() {
    let (mut transport, peer) = transport(0);
    peer.borrow_mut().sends = b"abcdef".to_vec();
    let mut read = |most: usize| {
        let mut room = vec![0; most];
        let mut room = ReadBuf::new(&mut room);
        let read = Pin::new(&mut transport).poll_read(&mut context(), &mut room);
        read.map(|_| room.filled().to_vec())
    };
    assert_eq!(read(4), Poll::Ready(b"abcd".to_vec()));
    assert!(peer.borrow().sends.is_empty());
    assert_eq!(read(4), Poll::Ready(b"ef".to_vec()));
    assert_eq!(read(4), Poll::Pending);
}

/// A client that takes nothing opens as many streams as it may have at a time, and the rest once it takes what waits.
#[test]
fn a_client_that_takes_nothing_opens_no_more_streams_than_it_may() {
    let (transport, peer) = transport(1);
    let mut transport = transport.guarded(2, 1000);
    let head = b"\0\0\x01\x01\x05\0\0\0\x01\x82";
    peer.borrow_mut().sends = [&[b'p'; crate::http2::PREFACE_LENGTH][..], head].concat();
    for stream in 1..10 {
        let mut head = *head;
        head[8] = 2 * stream + 1;
        peer.borrow_mut().sends.extend(head);
    }
    let read = |transport: &mut Transport| {
        transport.0.borrow_mut().begin_turn();
        let (mut room, mut all) = ([0; 1000], 0);
        loop {
            let mut room = ReadBuf::new(&mut room);
            match Pin::new(&mut *transport).poll_read(&mut context(), &mut room) {
                Poll::Ready(_) => all += room.filled().len(),
                Poll::Pending => return all,
            }
        }
    };
    let body = [b'x'; 2 * COPIED];
    assert_eq!(write(&mut transport, &body, b""), Poll::Ready(1));
    assert_eq!(write(&mut transport, &body[1..], b""), Poll::Pending);
    // The head of a turn in which nothing was known yet.
    let first = read(&mut transport);
    assert_eq!((first, read(&mut transport)), (crate::http2::PREFACE_LENGTH + 2 * head.len(), 0));
    peer.borrow_mut().takes = usize::MAX;
    assert_eq!(write(&mut transport, &body[1..], b""), Poll::Ready(2 * COPIED - 1));
    assert_eq!([(); 4].map(|()| read(&mut transport)), [2 * head.len(); 4]);
}

/// Has the transport read what a client sends.
fn receive(transport: &mut Transport, peer: &RefCell<Peer>, bytes: &[u8]) {
    peer.borrow_mut().sends.extend(bytes);
    transport.0.borrow_mut().begin_turn();
    let mut room = [0; 1000];
    while Pin::new(&mut *transport).poll_read(&mut context(), &mut ReadBuf::new(&mut room)).is_ready() {}
}

#[test]
fn a_head_that_has_begun_is_known_until_its_end() {
    let (transport, peer) = transport(usize::MAX);
    let mut transport = transport.guarded(2, 1000);
    let sender = transport.sender();
    receive(&mut transport, &peer, &[b'p'; crate::http2::PREFACE_LENGTH]);
    assert_eq!(sender.head_begun(), None);
    // The start of HEADERS without END_HEADERS, what is in it, and a part of its CONTINUATION.
    receive(&mut transport, &peer, b"\0\0\x01\x01\x01\0\0\0\x01");
    let begun = sender.head_begun();
    assert!(begun.is_some());
    for part in [&b"\x82"[..], b"\0\0\x02\x09\x04\0\0\0\x01\x84"] {
        receive(&mut transport, &peer, part);
        assert_eq!(sender.head_begun(), begun);
    }
    receive(&mut transport, &peer, b"\x86");
    assert_eq!(sender.head_begun(), None);
    // A body may take its time, and another head has its own.
    receive(&mut transport, &peer, b"\0\0\x05\0\0\0\0\0\x01abc");
    assert_eq!(sender.head_begun(), None);
    receive(&mut transport, &peer, b"de\0\0\x01\x01\x05\0\0\0\x03");
    assert!(sender.head_begun() > begun);
    sender.give_up_head();
    assert_eq!((sender.head_begun(), sender.failure()), (None, Some(Failure::LateHead)));
}

mod tables;
