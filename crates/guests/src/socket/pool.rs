//! Connections that are kept for the next code that connects to the same server.

use super::connection::Connection;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// How many connections a VM keeps.
const MAX_KEPT: usize = 1024;

/// How often expired ones are closed.
const SWEEP: Duration = Duration::from_secs(1);

/// A connection that nobody uses.
struct Idle {
    pool: Rc<str>,
    connection: Box<Connection>,
    expires: Option<Instant>,
}

/// The idle connections of a VM, the oldest first.
#[derive(Default)]
pub(super) struct Pool {
    idle: RefCell<VecDeque<Idle>>,
    is_swept: Cell<bool>,
}

impl Pool {
    /// Keeps a connection for this long, or until it is closed. A pool has so many at most.
    pub(super) fn put(
        self: &Rc<Self>,
        pool: &Rc<str>,
        connection: Box<Connection>,
        (limit, size): (Option<Duration>, usize),
    ) {
        let expires = limit.map(|limit| Instant::now() + limit);
        let mut idle = self.idle.borrow_mut();
        while idle.iter().filter(|it| it.pool == *pool).count() >= size.max(1) {
            let oldest = idle.iter().position(|it| it.pool == *pool);
            oldest.map(|at| idle.remove(at));
        }
        if idle.len() >= MAX_KEPT {
            idle.pop_front();
        }
        idle.push_back(Idle { pool: pool.clone(), connection, expires });
        if !self.is_swept.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(self)));
        }
    }

    /// Takes the connection that was used last, if one is open.
    pub(super) fn take(&self, pool: &str) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(at) = idle.iter().rposition(|it| *it.pool == *pool) {
            let mut found = idle.remove(at)?;
            if !is_over(&found) && found.connection.is_idle() {
                found.connection.reused += 1;
                return Some(found.connection);
            }
        }
        None
    }

    /// Closes the oldest. False if there is none.
    pub(super) fn close_oldest(&self) -> bool {
        self.idle.borrow_mut().pop_front().is_some()
    }
}

fn is_over(idle: &Idle) -> bool {
    idle.expires.is_some_and(|expires| expires <= Instant::now())
}

/// Closes what has expired, and what servers have closed, until none is left.
async fn sweep(pool: std::rc::Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.idle.borrow_mut();
        idle.retain_mut(|it| !is_over(it) && it.connection.is_idle());
        if idle.is_empty() {
            pool.is_swept.set(false);
            return;
        }
    }
}
