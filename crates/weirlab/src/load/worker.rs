//! One thread of the generator: an epoll loop over its share of the connections.
mod bookkeeping;
mod exchange;
mod messages;
mod opening;
mod streams;
use super::arrivals::Arrivals;
use super::counters::{LoadCounters, thread_cpu};
use super::live::ThreadCounters;
use super::request::{Requests, Stream};
use super::shared::{Phase, Shared};
use super::slot::{Link, Slot};
use super::wire::{Buffers, Tls};
use super::{LoadError, Plan};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::Duration;
use weir_http1::ResponseHead;

/// So long before an arrival is due a thread wakes and then polls, in nanoseconds: about what waking takes.
const BUSY_POLL: u64 = 30_000;
/// So long after the beginning of a window, in nanoseconds, what has been waited for since before it is stuck at the
/// earliest.
const STUCK_AFTER: u64 = 500_000_000;
/// What stands for [`Shared::over`] among the events.
const OVER: u64 = u64::MAX;

/// A thread's part of a load.
pub(super) struct Worker<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    requests: &'a Requests,
    thread: usize,
    tls: Option<Tls>,
    stream: Stream<'a>,
    arrivals: Option<Arrivals>,
    epoll: OwnedFd,
    links: Vec<Link>,
    /// Those of a link are next to each other.
    slots: Vec<Slot>,
    /// How many slots each link has.
    streams: usize,
    /// Idle slots, those first that have been so for longest; each with the instant since when.
    idle: VecDeque<(usize, u64)>,
    /// Links.
    to_open: VecDeque<usize>,
    /// How many were opened since when.
    batch: (usize, u64),
    /// Links that are opened again at an instant.
    retries: BinaryHeap<Reverse<(u64, usize)>>,
    /// Links that have requests to write.
    unwritten: Vec<usize>,
    next_sweep: u64,
    buffers: Buffers,
    head: ResponseHead,
    phase: Phase,
    begin: u64,
    cpu_at_begin: Duration,
    answers: u64,
    tally: LoadCounters,
    /// What others read meanwhile.
    live: Option<&'a ThreadCounters>,
}

impl<'a> Worker<'a> {
    /// The part of thread `thread` out of `threads`.
    pub(super) fn new(
        plan: &'a Plan,
        shared: &'a Shared,
        requests: &'a Requests,
        tls: Option<Tls>,
        (thread, threads): (usize, usize),
    ) -> Result<Worker<'a>, LoadError> {
        let system = |error: rustix::io::Errno| LoadError::System("epoll", error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let data = epoll::EventData::new_u64(OVER);
        epoll::add(&epoll, &shared.over, data, epoll::EventFlags::IN).map_err(system)?;
        let numbers = (thread..plan.connections).step_by(threads);
        let links: Vec<Link> =
            numbers.map(|number| Link::new(plan.addresses[number % plan.addresses.len()])).collect();
        let streams = plan.protocol.streams();
        let seed = plan.seed.wrapping_add((thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Ok(Worker {
            plan,
            shared,
            requests,
            thread,
            tls,
            stream: requests.stream(seed, thread, threads),
            arrivals: Arrivals::new(plan.pace, seed, thread, threads),
            epoll,
            idle: VecDeque::with_capacity(links.len() * streams),
            to_open: VecDeque::with_capacity(links.len()),
            batch: (0, 0),
            retries: BinaryHeap::new(),
            unwritten: Vec::with_capacity(links.len()),
            next_sweep: 0,
            buffers: Buffers::new(),
            head: ResponseHead::default(),
            phase: Phase::WarmUp,
            begin: 0,
            cpu_at_begin: Duration::ZERO,
            answers: 0,
            tally: LoadCounters::new(plan.duration),
            live: plan.live.as_ref().and_then(|live| live.thread(thread)),
            slots: (0..links.len() * streams).map(|_| Slot::new()).collect(),
            streams,
            links,
        })
    }

    /// Generates load until it is over.
    pub(super) fn run(mut self) -> Result<LoadCounters, LoadError> {
        (0..self.links.len()).for_each(|link| self.revive(link, 0));
        let mut events = Vec::with_capacity(256);
        while self.observe() != Phase::Done {
            self.turn(&mut events)?;
        }
        self.outlast(&mut events)?;
        self.account_for_outstanding();
        Ok(self.tally)
    }

    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        self.attend(self.shared.now());
        self.wait(events)?;
        for event in events.drain(..) {
            let (data, flags) = (event.data.u64(), event.flags);
            let (generation, link) = ((data >> 32) as u32, data as u32 as usize);
            if data != OVER && self.links[link].generation == generation {
                self.ready(link, flags);
            }
        }
        self.write_requests();
        Ok(())
    }

    /// A window may be so short that a pause of the machine outlasts it; what then still comes was not stuck.
    fn outlast(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        let (begin, _) = self.shared.window();
        while self.stuck(begin) > 0 && self.shared.now() < begin + STUCK_AFTER {
            self.turn(events)?;
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        let timeout = self.poll_timeout();
        let timeout =
            Timespec { tv_sec: (timeout / 1_000_000_000) as i64, tv_nsec: (timeout % 1_000_000_000) as _ };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(LoadError::System("epoll", error.into())),
        }
    }

    /// How long there is nothing to do unless something happens.
    fn poll_timeout(&self) -> u64 {
        let retry = self.retries.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let arrival = match &self.arrivals {
            Some(arrivals) if !self.idle.is_empty() => arrivals.next().saturating_sub(BUSY_POLL),
            _ => u64::MAX,
        };
        let opening = if self.to_open.is_empty() { u64::MAX } else { self.batch.1 + opening::PAUSE };
        self.next_sweep.min(retry).min(arrival).min(opening).saturating_sub(self.shared.now())
    }

    /// Does what time alone brings about.
    fn attend(&mut self, now: u64) {
        while let Some(Reverse((at, link))) = self.retries.peek().copied()
            && at <= now
        {
            self.retries.pop();
            self.revive(link, now);
        }
        if self.next_sweep <= now {
            self.sweep(now);
        }
        self.open_queued();
        self.send_due(now);
        self.write_requests();
    }

    fn slots_of(&self, link: usize) -> Range<usize> {
        link * self.streams..(link + 1) * self.streams
    }

    fn link_of(&self, slot: usize) -> usize {
        slot / self.streams
    }

    /// Whether the phase has changed; its first and last moment are when this thread sees them.
    fn observe(&mut self) -> Phase {
        let phase = self.shared.phase();
        if phase != self.phase {
            if self.phase == Phase::WarmUp {
                self.cpu_at_begin = thread_cpu();
                self.begin = self.shared.window().0;
            }
            if phase == Phase::Done {
                self.tally.cpu = thread_cpu().saturating_sub(self.cpu_at_begin);
            }
            self.phase = phase;
        }
        phase
    }

    fn within(&self) -> bool {
        self.phase == Phase::Measure
    }

    fn is_open_loop(&self) -> bool {
        self.arrivals.is_some()
    }
}
