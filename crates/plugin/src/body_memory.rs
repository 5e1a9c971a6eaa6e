//! How much memory the bodies that plugins read may take, all those of a node together. Workers take it in pieces, so that
//! none waits for another, and a request whose body nobody reads takes nothing.

use crate::count::Count;
use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How many pieces of the whole there are for each worker. It keeps two at most that it does not use.
const PIECES: usize = 32;
const LARGEST_PIECE: usize = 1024 * 1024;

/// The fewest bytes a second that a body is waited for while it is held, beyond the timeout; Apache's `MinRate`.
const SLOWEST: u64 = 500;

/// The same while memory is scarce: what few clients keep for long, others are refused.
const SLOWEST_IF_SCARCE: u64 = 16 * 1024;

/// The memory for bodies of a node.
pub struct BodyMemory {
    most: usize,
    piece: usize,
    /// What workers have taken: what they hold, and what they keep at hand.
    taken: AtomicUsize,
    /// Somebody was refused, which is told once until there is room again.
    is_short: AtomicBool,
    /// One body alone was larger than all there is, which is told once.
    is_small: AtomicBool,
    accounts: Box<[Account]>,
}

/// What one worker counts.
#[repr(align(128))]
#[derive(Default)]
struct Account {
    held: Count,
    refused: Count,
    passed: Count,
}

/// What a node holds of bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldBodies {
    /// Bytes held now.
    pub bytes: u64,
    /// How many may be held; none is any number.
    pub most: Option<u64>,
    /// Exchanges that were answered 503, since there was no room.
    pub refused: u64,
    /// Bodies that passed a plugin by that can do without them, for the same reason.
    pub passed: u64,
}

impl BodyMemory {
    /// So many bytes for so many workers; 0 is any number.
    pub fn new(most: u64, workers: usize) -> Self {
        let most = if most == 0 { usize::MAX } else { usize::try_from(most).unwrap_or(usize::MAX) };
        Self {
            most,
            piece: (most / PIECES / workers.max(1)).clamp(1, LARGEST_PIECE),
            taken: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
            is_small: AtomicBool::new(false),
            accounts: (0..workers.max(1)).map(|_| Account::default()).collect(),
        }
    }

    /// What is held now.
    pub fn held(&self) -> HeldBodies {
        let sum = |of: fn(&Account) -> &Count| self.accounts.iter().map(|account| of(account).get()).sum();
        HeldBodies {
            bytes: sum(|account| &account.held),
            most: (self.most < usize::MAX).then_some(self.most as u64),
            refused: sum(|account| &account.refused),
            passed: sum(|account| &account.passed),
        }
    }

    /// Whether more than three quarters are taken.
    fn is_scarce(&self) -> bool {
        self.taken.load(Relaxed) > self.most / 4 * 3
    }

    fn tell(&self) {
        if self.is_short.load(Relaxed) || self.is_short.swap(true, Relaxed) {
            return;
        }
        tracing::warn!(
            mem_bodies_size = self.most,
            "the bodies that plugins read take all of mem_bodies_size: requests that need more are answered 503 until \
             there is room; raise mem_bodies_size, or lower client_body_timeout and send_timeout if clients that are \
             slow hold it"
        );
    }

    /// A body that never fits is no shortage.
    fn tell_too_small(&self, bytes: usize) {
        if !self.is_small.swap(true, Relaxed) {
            tracing::warn!(
                mem_bodies_size = self.most,
                bytes,
                "a body that a plugin reads is larger than mem_bodies_size, and answered 503, as all such are; raise it \
                 to 16m or more"
            );
        }
    }
}

/// A worker's part of the memory.
pub struct Share {
    memory: Arc<BodyMemory>,
    worker: usize,
    taken: Cell<usize>,
}

impl Share {
    /// That of this worker.
    pub fn new(memory: Arc<BodyMemory>, worker: usize) -> Self {
        Self { memory, worker, taken: Cell::new(0) }
    }

    fn account(&self) -> &Account {
        &self.memory.accounts[self.worker]
    }

    /// What is taken and not used.
    fn idle(&self) -> usize {
        self.taken.get().saturating_sub(self.account().held.get() as usize)
    }

    /// Takes so many bytes, while no more than `most` are taken of the node's.
    fn take(&self, bytes: usize, most: usize) -> bool {
        let idle = self.idle();
        let has = bytes <= idle || self.take_more(bytes - idle, most);
        if has {
            self.account().held.add(bytes as u64);
        }
        has
    }

    #[cold]
    fn take_more(&self, least: usize, most: usize) -> bool {
        let taken = &self.memory.taken;
        let fits = |bytes| {
            let more = |taken: usize| taken.checked_add(bytes).filter(|all| *all <= most);
            taken.fetch_update(Relaxed, Relaxed, more).is_ok()
        };
        let got = [least.max(self.memory.piece), least].into_iter().find(|bytes| fits(*bytes));
        self.taken.set(self.taken.get() + got.unwrap_or(0));
        got.is_some()
    }

    fn give_back(&self, bytes: usize) {
        let memory = &*self.memory;
        self.account().held.sub(bytes as u64);
        let idle = self.idle();
        if idle <= 2 * memory.piece {
            return;
        }
        let returned = idle - memory.piece;
        self.taken.set(self.taken.get() - returned);
        memory.taken.fetch_sub(returned, Relaxed);
        if !memory.is_scarce() && memory.is_short.load(Relaxed) {
            memory.is_short.store(false, Relaxed);
        }
    }
}

/// What is taken for one body, until this is dropped.
pub struct Room {
    share: Rc<Share>,
    bytes: usize,
    /// For what can be done without: half of the memory is for others.
    is_spare: bool,
}

/// There is no room for a body.
#[derive(Debug)]
pub struct NoRoom;

impl Room {
    /// None is taken yet.
    pub fn new(share: Rc<Share>, is_spare: bool) -> Self {
        Self { share, bytes: 0, is_spare }
    }

    /// Makes it so large, if the node has room; it is never made smaller.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let memory = &*self.share.memory;
        let most = if self.is_spare { memory.most / 2 } else { memory.most };
        let more = bytes.saturating_sub(self.bytes);
        if self.share.take(more, most) {
            self.bytes += more;
            return Ok(());
        }
        let account = self.share.account();
        if self.is_spare {
            account.passed.add(1);
        } else {
            account.refused.add(1);
            if bytes > memory.most { memory.tell_too_small(bytes) } else { memory.tell() }
        }
        Err(NoRoom)
    }

    /// Makes it as large as what is there already.
    pub fn fit(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.share.take(bytes - self.bytes, usize::MAX);
        } else {
            self.share.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.share.give_back(self.bytes);
    }
}

/// A body in memory.
#[derive(Default)]
pub struct HeldBody {
    bytes: Vec<u8>,
    /// None, where it is so short that it counts as one of the connection's buffers.
    room: Option<Room>,
}

impl HeldBody {
    /// An empty one, that may take this memory.
    pub fn within(room: Room) -> Self {
        Self { bytes: Vec::new(), room: Some(room) }
    }

    /// Adds to the end of a body that will have `length` bytes, or more. Nothing is added where there is no room.
    pub fn push(&mut self, data: &[u8], length: usize) -> Result<(), NoRoom> {
        let needed = self.bytes.len() + data.len();
        if needed > self.bytes.capacity() {
            let capacity = needed.max(length.min(2 * self.bytes.capacity()));
            if let Some(room) = &mut self.room {
                room.grow_to(capacity)?;
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// Whether plugins that read it can do without it.
    pub fn is_spare(&self) -> bool {
        self.room.as_ref().is_none_or(|room| room.is_spare)
    }

    /// Puts another in its place.
    pub fn replace(&mut self, replace: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        self.bytes = replace(std::mem::take(&mut self.bytes));
        if let Some(room) = &mut self.room {
            room.fit(self.bytes.capacity());
        }
    }

    /// When so much of it has to be here, or gone, if that began at `since`; never, where it counts as a buffer.
    pub fn due(&self, since: Instant, timeout: Duration, moved: usize) -> Option<Instant> {
        let is_scarce = self.room.as_ref()?.share.memory.is_scarce();
        let slowest = if is_scarce { SLOWEST_IF_SCARCE } else { SLOWEST };
        Some(since + timeout + Duration::from_millis(moved as u64 * 1_000 / slowest))
    }

    /// The bytes, which are the caller's to account for.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for HeldBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests;
