//! The coroutines of a call: the one that it began with, and the light threads that code has begun in it.
//!
//! Each waits for its own operation. The call goes on with whichever is done first, and has ended when all have.

use crate::group::{ENTRY, Group, Waiting, soon};
use crate::host::Host;
use crate::machine::Machine;
use crate::operation::Outcome;
use futures_util::stream::{FuturesUnordered, Stream};
use mlua::{Lua, MultiValue, Thread};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// How many of the values that a call returns are kept.
const MAX_RETURNED: usize = 16;

/// A coroutine that goes on next.
pub(crate) struct Next {
    thread: Thread,
    number: u64,
}

impl Next {
    /// The one that a call begins with.
    pub(crate) fn entry(thread: Thread) -> Self {
        Self { thread, number: ENTRY }
    }
}

/// The coroutines of a call that wait.
pub(crate) struct Strands {
    pub(crate) machine: Rc<Machine>,
    group: Option<Rc<Group>>,
    entry: Option<Waiting>,
    light: Option<FuturesUnordered<Light>>,
    /// What the first coroutine has returned.
    pub(crate) returned: MultiValue,
}

/// A light thread that waits, until its operation is done.
struct Light(Option<Waiting>);

impl Future for Light {
    type Output = Option<(Waiting, Outcome)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiting) = &mut self.0 else { return Poll::Ready(None) };
        match waiting.operation.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(self.0.take().map(|waiting| (waiting, outcome))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Strands {
    /// Of a call that begins.
    pub(crate) fn new(machine: Rc<Machine>) -> Self {
        Self { machine, group: None, entry: None, light: None, returned: MultiValue::new() }
    }

    /// Whether all have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.entry.is_none() && self.light.as_ref().is_none_or(|light| light.is_empty())
    }

    /// Resumes one of them until it ends or waits, or asks the host to end the call. The VM has been lent to the call.
    pub(crate) fn resume(
        &mut self,
        next: Next,
        values: impl FnOnce(&Lua) -> mlua::Result<MultiValue>,
    ) -> mlua::Result<()> {
        let host = self.machine.host.clone();
        host.group.replace(self.group.take());
        let ran = values(&self.machine.lua).and_then(|values| run(&host, &next.thread, values));
        self.group = host.group.take();
        self.settle(next, ran?)
    }

    /// Notes what a coroutine waits for, and those that it has begun or ended.
    fn settle(&mut self, next: Next, ran: Ran) -> mlua::Result<()> {
        let Next { thread, number } = next;
        let Ran { mut returned, waits } = ran;
        if waits {
            let operation = self.machine.host.operation.take().unwrap_or_else(soon);
            let thread = self.machine.lua.create_registry_value(thread)?;
            self.add(Waiting { thread, number, operation });
        } else if number == ENTRY {
            returned.truncate(MAX_RETURNED);
            self.returned = returned;
            self.machine.put_back(thread);
        }
        let Some(group) = self.group.clone() else { return Ok(()) };
        group.begun.borrow_mut().drain(..).for_each(|waiting| self.add(waiting));
        let killed = group.killed.take();
        if let Some(light) = self.light.take_if(|_| !killed.is_empty()) {
            let left = |it: &Light| it.0.as_ref().is_some_and(|it| !killed.contains(&it.number));
            self.light = Some(light.into_iter().filter(left).collect());
        }
        Ok(())
    }

    fn add(&mut self, waiting: Waiting) {
        match waiting.number {
            ENTRY => self.entry = Some(waiting),
            _ => self.light.get_or_insert_default().push(Light(Some(waiting))),
        }
    }

    /// Waits for one of them, of which there is at least one.
    pub(crate) async fn next(&mut self) -> mlua::Result<(Next, Outcome)> {
        let (Waiting { thread, number, .. }, outcome) = poll_fn(|cx| self.poll_next(cx)).await;
        Ok((Next { thread: self.machine.lua.registry_value(&thread)?, number }, outcome))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(Waiting, Outcome)> {
        if let Some(entry) = &mut self.entry
            && let Poll::Ready(outcome) = entry.operation.as_mut().poll(cx)
            && let Some(entry) = self.entry.take()
        {
            return Poll::Ready((entry, outcome));
        }
        while let Some(light) = &mut self.light {
            match Pin::new(light).poll_next(cx) {
                Poll::Ready(Some(Some(done))) => return Poll::Ready(done),
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Pending
    }
}

/// What a coroutine has returned or yielded, and whether it has yielded.
struct Ran {
    returned: MultiValue,
    waits: bool,
}

/// Resumes a coroutine until it ends, or asks something of the host.
fn run(host: &Host, thread: &Thread, mut values: MultiValue) -> mlua::Result<Ran> {
    loop {
        let returned = thread.resume::<MultiValue>(values)?;
        let waits = thread.is_resumable();
        // A yield that asks for nothing goes on at once, within the same budget, unless there are others.
        if !waits || host.is_asked() || host.group.borrow().is_some() {
            return Ok(Ran { returned, waits });
        }
        values = MultiValue::new();
    }
}
