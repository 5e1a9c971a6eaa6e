//! What a VM knows of the call that runs: the exchange that is lent to it, the phase, and what the call asks of the host.

use crate::budget::Budget;
use crate::group::Group;
use crate::operation::{Operation, Outcome};
use crate::phase::{Phase, Phases};
use crate::source;
use crate::spent::Spent;
use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use weir_plugin::{Exchange, Handshake, LocalResponse};

/// Whose code runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The plugin's name.
    pub(crate) plugin: Box<str>,
    /// The id of its entity; empty where code runs for none, as in `init_worker`.
    pub(crate) id: Box<str>,
}

impl Origin {
    /// Logs that its code has failed for a request, which the client may know by its id.
    pub(crate) fn log_failure_in(&self, exchange: &Exchange, phase: Phase, error: &mlua::Error) {
        let message = source::cut(source::message(error));
        tracing::error!(
            plugin = &*self.plugin,
            id = &*self.id,
            phase = phase.name(),
            request_id = exchange.id(),
            "Lua failed: {message}"
        );
    }

    /// The same of code that runs for no request, and perhaps for no entity.
    pub(crate) fn log_failure(&self, phase: Phase, error: &mlua::Error) {
        let message = source::cut(source::message(error));
        tracing::error!(
            plugin = &*self.plugin,
            id = Some(&*self.id).filter(|id| !id.is_empty()),
            phase = phase.name(),
            "Lua failed: {message}"
        );
    }
}

/// The part of a response's body that passes.
#[derive(Debug, Default)]
pub(crate) struct BodyPart {
    /// What is sent of it.
    pub(crate) data: Vec<u8>,
    /// Whether it is the last.
    pub(crate) is_last: bool,
    /// What was withheld of the parts before.
    pub(crate) collected: Vec<u8>,
}

/// What code has asked for of a handshake.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HandshakeWishes {
    pub(crate) requests_certificate: bool,
    pub(crate) disables_session_reuse: bool,
}

impl HandshakeWishes {
    /// Has the handshake be so.
    pub(crate) fn apply(self, handshake: &mut Handshake) {
        if self.requests_certificate {
            handshake.request_client_certificate();
        }
        if self.disables_session_reuse {
            handshake.disable_session_reuse();
        }
    }
}

/// What a VM knows of the call that runs.
pub(crate) struct Host {
    /// The exchange while a call runs, else a vacant one.
    exchange: RefCell<Exchange>,
    phase: Cell<Phase>,
    origin: RefCell<Rc<Origin>>,
    /// What the call answers.
    pub(crate) answer: RefCell<Option<LocalResponse>>,
    /// What the call waits for.
    pub(crate) operation: RefCell<Option<Operation>>,
    /// The part of the body that the call filters.
    pub(crate) body: RefCell<BodyPart>,
    /// What the call asks of the handshake.
    pub(crate) handshake: Cell<HandshakeWishes>,
    /// The call must end, although it cannot yield.
    pub(crate) unwinds: Cell<bool>,
    /// The call ends, and the request goes on.
    pub(crate) leaves: Cell<bool>,
    /// The light threads of the call, if it has begun some.
    pub(crate) group: RefCell<Option<Rc<Group>>>,
    pub(crate) budget: Rc<Budget>,
    /// A call has panicked, so that nothing is known of the VM.
    has_panicked: Cell<bool>,
}

impl Host {
    pub(crate) fn new(budget: Rc<Budget>) -> Rc<Self> {
        Rc::new(Self {
            exchange: RefCell::new(Exchange::vacant()),
            phase: Cell::new(Phase::InitWorker),
            origin: RefCell::new(Rc::new(Origin { plugin: "".into(), id: "".into() })),
            answer: RefCell::default(),
            operation: RefCell::default(),
            body: RefCell::default(),
            handshake: Cell::default(),
            unwinds: Cell::new(false),
            leaves: Cell::new(false),
            group: RefCell::default(),
            budget,
            has_panicked: Cell::new(false),
        })
    }

    /// Lends an exchange to the VM for as long as the function takes. The calls for the exchange share one budget.
    pub(crate) fn lend<R>(
        &self,
        exchange: &mut Exchange,
        (phase, origin): (Phase, &Rc<Origin>),
        run: impl FnOnce() -> R,
    ) -> R {
        self.begin(phase, origin, Spent::time(exchange));
        let loan = Loan::of(self, exchange);
        let ran = run();
        drop(loan);
        Spent::set_time(exchange, self.budget.spent());
        ran
    }

    fn begin(&self, phase: Phase, origin: &Rc<Origin>, spent: Duration) {
        self.phase.set(phase);
        if !Rc::ptr_eq(&self.origin.borrow(), origin) {
            *self.origin.borrow_mut() = origin.clone();
        }
        self.unwinds.set(false);
        self.leaves.set(false);
        // What a call before has begun and could not wait for.
        self.operation.take();
        self.group.take();
        self.budget.restart(spent);
        if Phases::REQUEST.has(phase) {
            self.budget.is_for_request();
        }
    }

    /// The exchange, in these phases. The error is Kong's text.
    pub(crate) fn exchange(&self, phases: Phases) -> mlua::Result<RefMut<'_, Exchange>> {
        self.check(phases)?;
        self.exchange
            .try_borrow_mut()
            .map_err(|_| mlua::Error::runtime("the request is in use by another function"))
    }

    /// Whether a function may be called in the phase.
    pub(crate) fn check(&self, phases: Phases) -> mlua::Result<()> {
        let phase = self.phase.get();
        if phases.has(phase) { Ok(()) } else { Err(mlua::Error::runtime(phases.refusal(phase))) }
    }

    /// Has the call wait for an operation. Returns `true`, as a function that waits must; it may return
    /// `false` and values instead.
    pub(crate) fn wait_for(&self, operation: impl Future<Output = Outcome> + 'static) -> mlua::Result<bool> {
        self.check_waiting()?;
        *self.operation.borrow_mut() = Some(Box::pin(operation));
        Ok(true)
    }

    /// Whether the call may wait in its phase. The error is OpenResty's text.
    pub(crate) fn check_waiting(&self) -> mlua::Result<()> {
        self.phase.get().may_wait().map_err(mlua::Error::runtime)
    }

    /// Whether a call has panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.get()
    }

    /// The phase.
    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Whose code runs.
    pub(crate) fn origin(&self) -> Rc<Origin> {
        self.origin.borrow().clone()
    }

    /// The light threads of the call, made when they are first asked for.
    pub(crate) fn light_threads(&self) -> Rc<Group> {
        self.group.borrow_mut().get_or_insert_with(Group::new).clone()
    }

    /// Whether the call has asked for something that the host does.
    pub(crate) fn is_asked(&self) -> bool {
        self.leaves.get() || self.answer.borrow().is_some() || self.operation.borrow().is_some()
    }

    /// Whether errors must reach the host: no code of Lua may catch them.
    pub(crate) fn must_end(&self) -> bool {
        self.unwinds.get() || self.budget.is_exceeded()
    }
}

/// An exchange that is in the VM. It comes back when this is dropped.
struct Loan<'a> {
    host: &'a Host,
    lender: &'a mut Exchange,
}

impl<'a> Loan<'a> {
    fn of(host: &'a Host, lender: &'a mut Exchange) -> Self {
        let mut loan = Self { host, lender };
        loan.swap();
        loan
    }

    fn swap(&mut self) {
        std::mem::swap(&mut *self.host.exchange.borrow_mut(), self.lender);
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.swap();
        if std::thread::panicking() {
            self.host.has_panicked.set(true);
        }
    }
}
