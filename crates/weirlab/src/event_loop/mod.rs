//! The event loop under the servers of this crate: raw epoll, one thread, no runtime. Every descriptor is registered
//! once, edge-triggered, for reading and writing; what is ready is remembered by its [`Socket`].
mod service;
mod slots;
mod socket;

pub use service::{Announcement, Running, ServiceArgs, ServiceError, bind};
pub use slots::{Slots, Token};
pub use socket::{Received, Socket};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Events taken from the kernel at once.
const BATCH: usize = 256;
/// Tokens of this kind are the loop's own; handlers' kinds begin at 1.
const OWN: u8 = 0;
const STOP: Token = Token::new(OWN, 0, 0);
const TIMER: Token = Token::new(OWN, 0, 1);
const FIRST_LISTENER: u32 = 2;

/// What a server does with its connections.
pub trait Handler {
    /// A connection came to the listener of this number.
    fn accepted(&mut self, poll: &mut Poll, socket: OwnedFd, listener: usize);

    /// Something happened to what was registered under this token, which may be gone by now.
    fn ready(&mut self, poll: &mut Poll, token: Token, flags: EventFlags);

    /// When [`Handler::woken`] is due.
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// The instant of [`Handler::wake_at`] has come.
    fn woken(&mut self, _: &mut Poll) {}

    /// Events have come and are about to be handled.
    fn before_events(&mut self) {}
}

/// What handlers register descriptors with.
pub struct Poll {
    epoll: OwnedFd,
    again: Vec<Token>,
}

impl Poll {
    /// Reports every change of a descriptor from now on.
    ///
    /// # Errors
    /// Those of the kernel, out of memory or watches.
    pub fn watch(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(token.into()), flags)?)
    }

    /// Comes back to a descriptor that is still ready, once the others had their turn.
    pub fn again(&mut self, token: Token) {
        self.again.push(token);
    }
}

/// One thread's loop.
pub struct EventLoop {
    poll: Poll,
    listeners: Vec<TcpListener>,
    timer: OwnedFd,
    armed: Option<Instant>,
    /// A connection could not be accepted because no descriptor was left.
    starved: bool,
}

impl EventLoop {
    /// A loop over these listeners that ends when `stop` becomes readable.
    ///
    /// # Errors
    /// When the kernel is out of descriptors.
    pub fn new(listeners: Vec<TcpListener>, stop: impl AsFd) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let poll = Poll { epoll, again: Vec::new() };
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        poll.watch(&timer, TIMER)?;
        epoll::add(&poll.epoll, stop, EventData::new_u64(STOP.into()), EventFlags::IN)?;
        for (number, listener) in (FIRST_LISTENER..).zip(&listeners) {
            listener.set_nonblocking(true)?;
            poll.watch(listener, Token::new(OWN, 0, number))?;
        }
        Ok(Self { poll, listeners, timer, armed: None, starved: false })
    }

    /// Hands events to the handler until the loop is stopped.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(mut self, handler: &mut impl Handler) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            events.clear();
            let timeout =
                if self.poll.again.is_empty() { None } else { Some(&Timespec { tv_sec: 0, tv_nsec: 0 }) };
            match epoll::wait(&self.poll.epoll, spare_capacity(&mut events), timeout) {
                Err(Errno::INTR) => continue,
                waited => waited?,
            };
            handler.before_events();
            let again = std::mem::take(&mut self.poll.again);
            for event in &events {
                let (token, flags) = (Token::from(event.data.u64()), event.flags);
                match token {
                    STOP => return Ok(()),
                    TIMER => self.expire(handler),
                    _ if token.kind() == OWN => {
                        self.accept(handler, (token.index() - FIRST_LISTENER) as usize)
                    }
                    _ => handler.ready(&mut self.poll, token, flags),
                }
            }
            for token in again {
                handler.ready(&mut self.poll, token, EventFlags::empty());
            }
            self.after_events(handler)?;
        }
    }

    fn after_events(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        // One of the events may have closed a connection and so made room.
        if std::mem::take(&mut self.starved) {
            (0..self.listeners.len()).for_each(|number| self.accept(handler, number));
        }
        match handler.wake_at() {
            Some(due) if self.armed != Some(due) => self.arm(due),
            _ => Ok(()),
        }
    }

    fn accept(&mut self, handler: &mut impl Handler, number: usize) {
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::accept_with(&self.listeners[number], flags) {
                Ok(socket) => handler.accepted(&mut self.poll, socket, number),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.starved = true;
                    return;
                }
            }
        }
    }

    fn expire(&mut self, handler: &mut impl Handler) {
        let mut expirations = [0; 8];
        // Only resets the timer's readiness; that it is readable was just said.
        let _ = rustix::io::read(&self.timer, &mut expirations);
        self.armed = None;
        handler.woken(&mut self.poll);
    }

    fn arm(&mut self, due: Instant) -> io::Result<()> {
        // Zero would disarm it.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.armed = Some(due);
        Ok(())
    }
}
