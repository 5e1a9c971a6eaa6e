//! What code of a configuration names that the sandbox hides from it: such code fails for each request.

use crate::sandbox::{HIDDEN_OF_KONG, HIDDEN_OF_VAULT};
use crate::settings::{LuaSettings, UntrustedLua};
use crate::tokens::{Token, Tokens, is_condition, tokens};
use weir_plugin::{FieldWarning, Json, PluginSchema};

impl LuaSettings {
    /// The schema of a plugin that runs code of configurations, with warnings of what these settings hide from that code.
    pub fn with_sandbox_warnings(&self, schema: PluginSchema) -> PluginSchema {
        // Settings may show what is hidden.
        let shows_more =
            self.sandbox_environment.iter().any(|path| path == "kong" || path.starts_with("kong."));
        match self.untrusted {
            UntrustedLua::Sandbox if !shows_more => schema.with_warnings(warnings),
            _ => schema,
        }
    }
}

/// What the code of each phase names that is hidden.
fn warnings(config: &Json) -> Vec<FieldWarning> {
    let phases = config.as_object().into_iter().flatten();
    let functions = phases.flat_map(|(phase, functions)| {
        let functions = functions.as_array().into_iter().flatten().filter_map(Json::as_str);
        functions.enumerate().map(move |(at, code)| (format!("{phase}[{at}]"), code))
    });
    functions.flat_map(|(path, code)| of_code(&path, code)).collect()
}

fn of_code(path: &str, code: &str) -> Vec<FieldWarning> {
    let tokens = tokens(code);
    let mut found: Vec<FieldWarning> = Vec::new();
    for at in 0..tokens.len() {
        let Some((name, length)) = hidden(&tokens, at) else { continue };
        let message = format!(
            "line {}: the code fails where it uses {name}, which the sandbox hides: move it to a plugin on disk, or set \
             `untrusted_lua=on`",
            tokens[at].1
        );
        let is_known = found.iter().any(|known| known.message == message);
        if !is_known && !is_condition(&tokens, at..at + length) {
            found.push(FieldWarning::new(path, message));
        }
    }
    found
}

/// The hidden member of `kong` that a token begins, and how many tokens it takes.
fn hidden(tokens: &Tokens<'_>, at: usize) -> Option<(String, usize)> {
    if at > 0 && matches!(tokens[at - 1].0, Token::Sign('.' | ':')) {
        return None;
    }
    match tokens[at..] {
        [
            (Token::Name("kong"), _),
            (Token::Sign('.'), _),
            (Token::Name("vault"), _),
            (Token::Sign('.'), _),
            (Token::Name(name), _),
            ..,
        ] if HIDDEN_OF_VAULT.contains(&name) => Some((format!("kong.vault.{name}"), 5)),
        [(Token::Name("kong"), _), (Token::Sign('.'), _), (Token::Name(name), _), ..]
            if HIDDEN_OF_KONG.contains(&name) =>
        {
            Some((format!("kong.{name}"), 3))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::of_code;

    #[test]
    fn code_that_uses_what_is_hidden_is_found() {
        for (code, expected) in [
            (
                "local x = 1\nkong.db.consumers:select({})",
                &["line 2: the code fails where it uses kong.db,"][..],
            ),
            ("local db = kong.db", &["line 1: the code fails where it uses kong.db,"]),
            ("kong.db.a() kong.db.b()", &["line 1: the code fails where it uses kong.db,"]),
            ("kong.worker_events.post()", &["line 1: the code fails where it uses kong.worker_events,"]),
            ("kong.vault.get('{vault://env/x}')", &["line 1: the code fails where it uses kong.vault.get,"]),
            ("kong.vault.is_reference('x') x.kong.db() -- kong.db\nprint('kong.db')", &[]),
            ("if kong.db then return end", &[]),
        ] {
            let found: Vec<_> = of_code("access[0]", code).into_iter().map(|it| it.message).collect();
            assert_eq!(found.len(), expected.len(), "{code}: {found:?}");
            assert!(found.iter().zip(expected).all(|(it, start)| it.starts_with(start)), "{code}: {found:?}");
        }
    }
}
