//! Changes headers in place.

use super::operations::{Entry, Rendered, Values, entries};
use crate::shared::transformer::{is_settable, rename, split, values as all_values};
use weir_plugin::{Exchange, Known};

pub(super) struct HeaderOperations {
    remove: Vec<Box<str>>,
    /// Old and new names.
    rename: Vec<(Box<str>, Box<str>)>,
    replace: Vec<Entry>,
    add: Vec<Entry>,
    append: Vec<Entry>,
}

fn is_host(name: &str) -> bool {
    Known::of(name.as_bytes()) == Known::Host
}

impl HeaderOperations {
    pub(super) fn new(
        remove: &[String],
        [rename, replace, add, append]: [&Vec<String>; 4],
        values: &mut Values,
    ) -> Result<Self, String> {
        let mut settable = |list: &[String], host: bool| -> Result<Vec<Entry>, String> {
            let mut found = entries(list, values)?;
            found.retain(|entry| is_settable(&entry.name) && (host || !is_host(&entry.name)));
            Ok(found)
        };
        let removed = remove.iter().map(|entry| split(entry).0).filter(|name| !is_host(name));
        let renamed = rename.iter().map(|entry| split(entry));
        let renamed = renamed.filter(|(old, new)| is_settable(new) && !is_host(old) && !is_host(new));
        Ok(Self {
            remove: removed.map(Into::into).collect(),
            rename: renamed.map(|(old, new)| (old.into(), new.into())).collect(),
            replace: settable(replace, true)?,
            add: settable(add, false)?,
            append: settable(append, false)?,
        })
    }

    /// Whether it may give a request another type of body.
    pub(super) fn sets_content_type(&self) -> bool {
        let set = [&self.replace, &self.add, &self.append].into_iter().flatten().map(|entry| &*entry.name);
        let mut names = set.chain(self.rename.iter().map(|(_, new)| &**new));
        names.any(|name| Known::of(name.as_bytes()) == Known::ContentType)
    }

    /// The headers that it changes.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let set = [&self.replace, &self.add, &self.append].into_iter().flatten().map(|entry| &*entry.name);
        let renamed = self.rename.iter().flat_map(|(old, new)| [&**old, &**new]);
        self.remove.iter().map(|name| &**name).chain(renamed).chain(set)
    }

    pub(super) fn apply(&self, exchange: &mut Exchange, values: &Rendered) {
        let headers = &mut exchange.request.headers;
        for name in &self.remove {
            headers.remove(name);
        }
        for (old, new) in &self.rename {
            rename(headers, old, new, &all_values(headers, old));
        }
        let mut host = None;
        for Entry { name, value } in &self.replace {
            if is_host(name) {
                host = Some(value);
            } else if headers.get(name).is_some() {
                headers.set(&**name, values.get(value).trim_ascii());
            }
        }
        for Entry { name, value } in &self.add {
            if headers.get(name).is_none() {
                headers.append(&**name, values.get(value).trim_ascii());
            }
        }
        for Entry { name, value } in &self.append {
            headers.append(&**name, values.get(value).trim_ascii());
        }
        if let Some(host) = host {
            exchange.set_upstream_host(values.text(host).trim());
        }
    }
}
