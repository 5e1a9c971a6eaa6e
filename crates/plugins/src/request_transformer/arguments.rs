//! Query strings and urlencoded forms. Unchanged parts stay as they were written.

use super::operations::Fields;
use std::borrow::Cow;
use weir_plugin::form::{self, Pair};

pub(super) struct Arguments<'t>(Vec<Pair<'t>>);

impl<'t> Arguments<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self(form::pairs(text).collect())
    }

    pub(super) fn written(&self) -> String {
        self.0.iter().map(|pair| &*pair.raw).collect::<Vec<_>>().join("&")
    }
}

fn is(name: &str) -> impl Fn(&Pair<'_>) -> bool + '_ {
    move |pair| *pair.name == *name.as_bytes()
}

impl Fields for Arguments<'_> {
    fn holds(&self, name: &str) -> bool {
        self.0.iter().any(is(name))
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|pair| !is(name)(pair));
    }

    fn rename(&mut self, old: &str, new: &str) {
        self.remove(new);
        for pair in self.0.iter_mut().filter(|pair| is(old)(pair)) {
            *pair = Pair::new(new, pair.value.take());
        }
    }

    fn set(&mut self, name: &str, value: &[u8]) {
        let new = Pair::new(name, Some(value.to_vec().into()));
        let Some(first) = self.0.iter().position(is(name)) else { return self.0.push(new) };
        self.0[first] = new;
        let mut at = 0;
        self.0.retain(|pair| {
            at += 1;
            at - 1 == first || !is(name)(pair)
        });
    }

    /// If the argument has no value, it gets this one.
    fn append(&mut self, name: &str, value: &[u8]) {
        let value: Cow<'_, [u8]> = value.to_vec().into();
        let mut found = self.0.iter_mut().filter(|pair| is(name)(pair));
        match (found.next(), found.next()) {
            (Some(only), None) if only.value.is_none() => *only = Pair::new(name, Some(value)),
            _ => self.0.push(Pair::new(name, Some(value))),
        }
    }
}
