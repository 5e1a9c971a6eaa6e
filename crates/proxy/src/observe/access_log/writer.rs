//! The way from the workers to the target.

use super::losses::Losses;
use super::output::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use tokio::time::Instant;

/// How many batches wait at most.
pub(super) const QUEUED_BATCHES: usize = 64;

/// Lines, and how many.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) text: Vec<u8>,
    pub(super) records: u64,
}

pub(super) enum Message {
    Batch(Batch),
    /// Go on with another output.
    Output(Output),
    /// Say when everything before is written.
    Flush(SyncSender<()>),
}

#[derive(Default)]
pub(super) struct Counters {
    queued: AtomicUsize,
    dropped: AtomicU64,
}

impl Counters {
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn drop_records(&self, records: u64) {
        self.dropped.fetch_add(records, Ordering::Relaxed);
    }
}

/// The workers' end. The channel itself is unbounded so that control messages always pass; batches are counted.
pub(super) struct Queue {
    messages: Sender<Message>,
    pub(super) counters: Arc<Counters>,
}

impl Queue {
    pub(super) fn new() -> (Self, Receiver<Message>) {
        let (messages, received) = mpsc::channel();
        (Self { messages, counters: Arc::default() }, received)
    }

    /// Takes the batch's content, or leaves it when the queue is full.
    pub(super) fn hand_over(&self, batch: &mut Batch) {
        if batch.records == 0 {
            return;
        }
        if self.counters.queued.fetch_add(1, Ordering::Relaxed) >= QUEUED_BATCHES {
            self.counters.queued.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let room = Vec::with_capacity(batch.text.len());
        let full = Batch { text: std::mem::replace(&mut batch.text, room), records: batch.records };
        let records = std::mem::take(&mut batch.records);
        if self.messages.send(Message::Batch(full)).is_err() {
            self.counters.drop_records(records);
        }
    }

    pub(super) fn control(&self, message: Message) {
        // When the thread is gone there is nothing left to control.
        let _ = self.messages.send(message);
    }
}

/// Writes until every sender is gone, and says in the node's log what is lost.
pub(super) fn serve(mut output: Output, messages: &Receiver<Message>, counters: &Counters) {
    let mut losses = Losses::default();
    loop {
        let message = match losses.next_report(counters.dropped(), Instant::now()) {
            Some(wait) => messages.recv_timeout(wait),
            None => messages.recv().map_err(RecvTimeoutError::from),
        };
        match message {
            Ok(Message::Batch(batch)) => {
                counters.queued.fetch_sub(1, Ordering::Relaxed);
                if let Err(failed) = output.write(&batch.text) {
                    counters.drop_records(failed.lines);
                    losses.failed(failed.error);
                }
            }
            Ok(Message::Output(next)) => output = next,
            Ok(Message::Flush(done)) => {
                losses.report(counters.dropped(), output.name());
                // The one who asked may have stopped waiting.
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if losses.is_due(counters.dropped(), Instant::now()) {
            losses.report(counters.dropped(), output.name());
        }
    }
}
