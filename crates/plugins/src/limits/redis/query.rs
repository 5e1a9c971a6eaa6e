//! Commands of other plugins than those that limit.

use super::super::store::Unavailable;
use super::{Commands, RedisStore, connection};
use redis::{Cmd, Value, cmd};

impl RedisStore {
    /// Runs commands, each with the key that it is about, and returns their replies.
    pub(crate) async fn query(&self, commands: Vec<(String, Cmd)>) -> Result<Vec<Value>, Unavailable> {
        let commands: Vec<_> = commands
            .into_iter()
            .map(|(key, command)| Commands { key, make: Box::new(move |_| command.clone()) })
            .collect();
        self.in_time(self.run(&commands)).await
    }

    /// Runs a script on a key. An error about the key's value is its reply, because the server is available.
    pub(crate) async fn evaluate(&self, key: String, script: Cmd) -> Result<Value, Unavailable> {
        let commands = [Commands { key, make: Box::new(move |_| script.clone()) }];
        let mut replies = self.in_time(self.run_all(&commands)).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    /// The keys of all servers that match a pattern. For one reply, a server looks at about so many of its keys.
    pub(crate) async fn keys(&self, pattern: &str, count: u32) -> Result<Vec<String>, Unavailable> {
        let linked = self.in_time(self.linked()).await?;
        let mut keys = Vec::new();
        for link in linked.all() {
            let (mut connection, mut cursor) = (link.connection.clone(), 0u64);
            loop {
                let scan =
                    cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(count).to_owned();
                let found = self.in_time(connection::ask::<(u64, Vec<String>)>(&mut connection, &scan)).await;
                let (next, some) = found.inspect_err(|_| self.forget(&linked))?;
                keys.extend(some);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(keys)
    }
}

/// A text in a pattern of Redis, where it means itself.
pub(crate) fn glob(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if "*?[]^\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn a_pattern_means_the_text() {
        assert_eq!(glob("/a*[b]\\?"), "/a\\*\\[b\\]\\\\\\?");
    }
}
