//! One line for every request, written off the workers' threads.
//!
//! Each worker formats into a buffer of its own and hands full ones to a thread that writes. Nothing ever waits for the
//! disk: when the thread cannot keep up, or the disk is full, records are dropped and counted, and the node's log says so.
//!
//! Lines hold the request's target as it came, query string included. Where clients send secrets there (`?apikey=…`),
//! the log holds them too: protect it as such, or have clients send them as headers, which are not logged. Only of paths
//! that the node answers itself is the query left out.

mod date;
mod format;
mod losses;
mod output;
mod record;
#[cfg(test)]
mod tests;
mod writer;

pub use record::{Consumer, Entity, Record, SessionRecord, Tls, Upstream};

use date::Dates;
use output::Output;
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use tokio::sync::Notify;
use writer::{Batch, Message, Queue};

/// A buffer of this size is handed over at once.
const BATCH_BYTES: usize = 32 * 1024;

/// What a worker holds back at most while the thread cannot keep up.
const WORKER_BYTES: usize = 256 * 1024;

/// How old a record gets before it is handed over.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// How long [`AccessLog::flush`] waits for a blocked target.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(PathBuf),
}

/// What lines look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// There are none.
    Off,
    /// Kong's and nginx's: addresses, time in UTC, request, status, size, referer, user agent, request id.
    Combined,
    /// One JSON object a line, with the keys of Kong's log plugins.
    Json,
    /// Kong's of sessions: address, time in UTC, protocol, status, bytes sent and received, seconds.
    Basic,
}

/// The node's access log. Dropping it writes what workers have handed over, so drop the [`WorkerLog`]s before.
pub struct AccessLog {
    format: Format,
    path: Option<PathBuf>,
    queue: Arc<Queue>,
}

impl AccessLog {
    /// Opens the target and starts the thread that writes; it ends when the log and all its workers are dropped.
    pub fn open(target: Target, format: Format) -> io::Result<Self> {
        let (queue, messages) = Queue::new();
        let mut log = Self { format, path: None, queue: Arc::new(queue) };
        if format == Format::Off {
            return Ok(log);
        }
        log.start(Output::open(&target)?, messages)?;
        if let Target::File(path) = target {
            log.path = Some(path);
        }
        Ok(log)
    }

    fn start(&self, output: Output, messages: Receiver<Message>) -> io::Result<()> {
        let counters = self.queue.counters.clone();
        let serve = move || writer::serve(output, &messages, &counters);
        std::thread::Builder::new().name("weir-access-log".into()).spawn(serve).map(drop)
    }

    /// The side of one worker.
    pub fn worker(&self) -> WorkerLog {
        WorkerLog {
            format: self.format,
            queue: self.queue.clone(),
            buffer: RefCell::default(),
            filled: Notify::new(),
        }
    }

    /// Opens the file again, for log rotation: what was handed over before goes to the old file.
    pub fn reopen(&self) -> io::Result<()> {
        if let Some(path) = &self.path {
            self.queue.control(Message::Output(Output::append_to(path)?));
        }
        Ok(())
    }

    /// Waits until what was handed over is written, but not for a target that takes nothing.
    pub fn flush(&self) {
        if self.format != Format::Off {
            let (done, written) = mpsc::sync_channel(1);
            self.queue.control(Message::Flush(done));
            // Ignores a timeout, because the node can only go on.
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }

    /// How many records were lost because the target was too slow, was full or failed.
    pub fn dropped(&self) -> u64 {
        self.queue.counters.dropped()
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A worker's side of the access log. Dropping it hands over what it holds.
pub struct WorkerLog {
    format: Format,
    queue: Arc<Queue>,
    buffer: RefCell<Buffer>,
    filled: Notify,
}

#[derive(Default)]
struct Buffer {
    batch: Batch,
    dates: Dates,
}

impl WorkerLog {
    /// Whether records are written at all; if not, there is no need to make them.
    pub fn is_on(&self) -> bool {
        self.format != Format::Off
    }

    /// Adds a line. Never waits.
    pub fn write(&self, record: &Record<'_>) {
        let Buffer { batch, dates } = &mut *self.buffer.borrow_mut();
        if batch.text.len() >= WORKER_BYTES {
            return self.queue.counters.drop_records(1);
        }
        match self.format {
            // Lines of this kind are of sessions.
            Format::Off | Format::Basic => return,
            Format::Combined => format::combined(&mut batch.text, record, dates),
            Format::Json => format::json(&mut batch.text, record),
        }
        self.added(batch);
    }

    /// Adds the line of a session. Never waits.
    pub fn write_session(&self, record: &SessionRecord) {
        let Buffer { batch, dates } = &mut *self.buffer.borrow_mut();
        if batch.text.len() >= WORKER_BYTES {
            return self.queue.counters.drop_records(1);
        }
        format::basic(&mut batch.text, record, dates);
        self.added(batch);
    }

    fn added(&self, batch: &mut Batch) {
        batch.records += 1;
        if batch.text.len() >= BATCH_BYTES {
            self.queue.hand_over(batch);
        } else if batch.records == 1 {
            self.filled.notify_one();
        }
    }

    /// Hands over what it holds, unless the thread cannot keep up.
    pub fn flush(&self) {
        self.queue.hand_over(&mut self.buffer.borrow_mut().batch);
    }

    /// Flushes soon after each write, for ever. To be spawned on the worker, beside its connections.
    pub async fn flush_regularly(&self) {
        loop {
            self.filled.notified().await;
            tokio::time::sleep(FLUSH_INTERVAL).await;
            self.flush();
            if self.buffer.borrow().batch.records > 0 {
                self.filled.notify_one();
            }
        }
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        self.flush();
        self.queue.counters.drop_records(self.buffer.get_mut().batch.records);
    }
}
