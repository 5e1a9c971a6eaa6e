//! Times within times.

use std::time::Duration;
use weir_plugin::json_text::Object;

/// How long something took, and what it consists of.
#[derive(Clone, Default)]
pub(crate) struct Tree {
    pub(crate) total: Duration,
    /// Of a name that was looked up.
    pub(crate) cache_hit: Option<bool>,
    children: Vec<(String, Tree)>,
}

impl Tree {
    /// What lies at the end of a path.
    pub(crate) fn at(&mut self, path: &[&str]) -> &mut Tree {
        let [name, rest @ ..] = path else { return self };
        let known = self.children.iter().position(|(child, _)| child == name);
        let at = known.unwrap_or_else(|| {
            self.children.push(((*name).to_owned(), Tree::default()));
            self.children.len() - 1
        });
        self.children[at].1.at(rest)
    }

    /// Adds to the time of everything along a path. Returns its end.
    pub(crate) fn spend(&mut self, path: &[&str], took: Duration) -> &mut Tree {
        for length in 1..path.len() {
            self.at(&path[..length]).total += took;
        }
        let end = self.at(path);
        end.total += took;
        end
    }

    /// Writes what it consists of as a member of an object.
    pub(crate) fn write_children(&self, object: &mut Object<'_>) {
        if self.children.is_empty() {
            return;
        }
        let mut members = Object::open(object.key("child"));
        for (name, child) in &self.children {
            let mut member = Object::open(members.name(name.as_bytes()));
            member.milliseconds("total_time", child.total);
            if let Some(cache_hit) = child.cache_hit {
                member.raw("cache_hit", if cache_hit { "true" } else { "false" });
            }
            child.write_children(&mut member);
            member.close();
        }
        members.close();
    }
}
