//! The counters of limits in a table that all workers share.

use super::counter::{Counters, Windows, windows};
use super::window::Period;
use crate::shared::counters::{Counter, Recent};
use std::cell::RefCell;
use std::thread::LocalKey;

thread_local! {
    static OWN: RefCell<Recent<Counters>> = const { RefCell::new(Recent::new()) };
}

impl Counter for Counters {
    type Time = Windows;

    fn time(seconds: u64) -> Windows {
        windows(seconds)
    }

    fn is_over(&self, windows: &Windows) -> bool {
        self.is_over(windows)
    }

    const NUMBERS: usize = Period::ALL.len();

    fn numbers(&self) -> Vec<u64> {
        self.numbers()
    }

    fn restore(&self, numbers: &[u64]) {
        self.restore(numbers);
    }

    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        &OWN
    }
}
