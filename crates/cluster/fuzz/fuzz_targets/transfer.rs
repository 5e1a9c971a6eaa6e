//! A transfer of any bytes, compressed or not, is read without panicking.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use weir_cluster::sync::identity::{Digest, Identity};
use weir_cluster::sync::message::TransferHeader;
use weir_cluster::sync::transfer::Receiver;

fuzz_target!(|input: (bool, bool, u8, &[u8])| {
    let (deflate, is_whole, cut, data) = input;
    let from = (!is_whole).then(Digest::default);
    let header = TransferHeader { to: Identity::default(), from, chunks: 2, deflate };
    let (first, second) = data.split_at(usize::from(cut).min(data.len()));
    let mut receiver = Receiver::new(header, Arc::new([]));
    if receiver.chunk(first).is_ok() && receiver.chunk(second).is_ok() {
        drop(receiver.finish());
    }
});
