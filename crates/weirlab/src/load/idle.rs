//! Connections that stay open and idle after one answer each: what is measured is not the load but what they cost the
//! target. They are opened one after another, so that the target never has more than one request at hand.
use super::answer::Answer;
use super::request::{Requests, Template};
use super::run::{OTHER_FILES, allow_files, check};
use super::wire::{Buffers, Received, Tls, Wire, wait};
use super::{LoadError, Plan};
use rustix::event::PollFlags;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_http1::ResponseHead;

/// Connections that are held open. Dropping this ends them.
pub struct Idle {
    plan: Plan,
    requests: Requests,
    tls: Option<Tls>,
    buffers: Buffers,
    head: ResponseHead,
    wires: Vec<Wire>,
}

impl Idle {
    /// Prepares to open the plan's connections and `more` beyond them.
    ///
    /// # Errors
    /// When the plan makes no sense, or the limit of open files is too low.
    pub fn new(plan: &Plan, more: usize) -> Result<Idle, LoadError> {
        check(plan)?;
        allow_files((plan.connections + more) as u64 + OTHER_FILES)?;
        Ok(Idle {
            requests: Requests::new(plan)?,
            tls: plan.tls.then(|| Tls::new(plan)).transpose()?,
            buffers: Buffers::new(),
            head: ResponseHead::default(),
            wires: Vec::new(),
            plan: plan.clone(),
        })
    }

    /// Opens `count` connections and waits for a response on each.
    ///
    /// # Errors
    /// When one cannot be opened or is not answered rightly, and when `stop` is raised.
    pub fn open(&mut self, count: usize, stop: &AtomicBool) -> Result<(), LoadError> {
        let mut stream = self.requests.stream(self.plan.seed, 0, 1);
        for _ in 0..count {
            if stop.load(Ordering::Relaxed) {
                return Err(LoadError::Idle("it was stopped".to_owned()));
            }
            let drawn = stream.next();
            let place = self.wires.len();
            let address = self.plan.addresses[place % self.plan.addresses.len()];
            let deadline = Instant::now() + self.plan.timeout;
            let opened = Wire::connect(address, self.tls.as_ref(), &mut self.buffers, deadline);
            let template = self.requests.template(drawn.template);
            let mut exchange = Exchange { buffers: &mut self.buffers, head: &mut self.head, deadline };
            let wire = opened.and_then(|wire| exchange.answered(wire, drawn.bytes, template));
            let failed = |why| LoadError::Idle(format!("connection {} to {address}: {why}", place + 1));
            self.wires.push(wire.map_err(failed)?);
        }
        Ok(())
    }

    /// How many connections the peer has ended.
    pub fn ended(&mut self) -> usize {
        let buffers = &mut self.buffers;
        let ended = |wire: &mut Wire| matches!(wire.receive(buffers), Ok(Received::End) | Err(_));
        self.wires.iter_mut().map(ended).filter(|ended| *ended).count()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // Thousands of connections in TIME_WAIT would be in the way of whatever is measured next.
        self.wires.drain(..).for_each(Wire::reset);
    }
}

/// One request on a new connection.
struct Exchange<'a> {
    buffers: &'a mut Buffers,
    head: &'a mut ResponseHead,
    deadline: Instant,
}

impl Exchange<'_> {
    fn answered(&mut self, mut wire: Wire, request: &[u8], template: &Template) -> Result<Wire, String> {
        wire.send(request).map_err(|_| "the request could not be sent")?;
        let mut answer = Answer::default();
        let whole = loop {
            wait(wire.stream(), PollFlags::IN, self.deadline)?;
            wire.flush().map_err(|_| "the request could not be sent")?;
            match wire.receive(self.buffers) {
                Ok(Received::Bytes(bytes, _)) => {
                    let taken = answer.take(bytes, self.head, template.method, &template.expect);
                    if taken.map_err(|_| "the answer is malformed")?.is_some() {
                        break answer;
                    }
                }
                Ok(Received::Nothing) => {}
                Ok(Received::End) | Err(_) => return Err("it was closed before the answer".to_owned()),
            }
        };
        if whole.difference(&template.expect).is_some() {
            return Err(format!("the answer, with status {}, is not the one expected", whole.status()));
        }
        if whole.keep_alive() { Ok(wire) } else { Err("the target keeps no connection open".to_owned()) }
    }
}
