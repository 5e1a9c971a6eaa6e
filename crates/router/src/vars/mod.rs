//! Conditions on variables, as APISIX writes them: `[["arg_user", "==", "jack"]]`. Routes and plugins have them; each says
//! which variables there are.
mod comparison;
mod network;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use request::RequestVariable;

use comparison::Comparison;
use weir_model::schema::Json;

/// A condition on variables of the type `V`.
#[derive(Debug, Clone)]
pub enum Condition<V> {
    /// Each of these holds.
    All(Vec<Condition<V>>),
    /// One of these holds.
    Any(Vec<Condition<V>>),
    /// This does not hold.
    Not(Box<Condition<V>>),
    /// A variable compares so. One without a value counts as null.
    Compare(V, Comparison),
}

/// The values of variables.
pub trait Variables<V> {
    /// Calls the predicate with the value of a variable, and returns what it returns.
    fn test(&self, variable: &V, predicate: &dyn Fn(Option<&[u8]>) -> bool) -> bool;
}

/// Checks the `vars` of a route.
///
/// # Errors
/// The first thing that is wrong with them.
pub fn check_vars(written: &Json) -> Result<(), String> {
    Condition::of_route(written).map(drop)
}

impl<V> Default for Condition<V> {
    /// What always holds.
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

impl<V> Condition<V> {
    /// Parses a list of conditions, which may begin with `AND`, `OR`, `!AND` or `!OR`. `named` returns the variable of a
    /// name.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(written: &Json, named: fn(&str) -> Result<V, String>) -> Result<Self, String> {
        let Json::Array(elements) = written else {
            return Err(format!("expected a list such as [\"arg_user\", \"==\", \"jack\"], got {written}"));
        };
        let joined =
            |rest: &[Json]| rest.iter().map(|one| Self::parse(one, named)).collect::<Result<Vec<_>, _>>();
        match elements.as_slice() {
            [] => Ok(Self::All(Vec::new())),
            [Json::String(word), rest @ ..] => match word.to_ascii_uppercase().as_str() {
                "AND" => joined(rest).map(Self::All),
                "OR" => joined(rest).map(Self::Any),
                "!AND" => Ok(Self::Not(Box::new(Self::All(joined(rest)?)))),
                "!OR" => Ok(Self::Not(Box::new(Self::Any(joined(rest)?)))),
                _ => Self::compare(word, rest, named),
            },
            all => joined(all).map(Self::All),
        }
    }

    /// `variable operator value`, or `variable ! operator value`.
    fn compare(name: &str, rest: &[Json], named: fn(&str) -> Result<V, String>) -> Result<Self, String> {
        let (is_negated, operator, value) = match rest {
            [Json::String(not), Json::String(operator), value] if not == "!" => (true, operator, value),
            [Json::String(operator), value] => (false, operator, value),
            [Json::String(operator)] => (false, operator, &Json::Null),
            _ => {
                return Err(format!(
                    "the condition on `{name}` has no operator; write [\"{name}\", \"==\", …]"
                ));
            }
        };
        let (is_opposite, comparison) = Comparison::parse(operator, value)?;
        // With a null in its place, a mistyped name could switch off a plugin that authenticates.
        let compare = Self::Compare(named(name)?, comparison);
        Ok(if is_negated != is_opposite { Self::Not(Box::new(compare)) } else { compare })
    }

    /// Whether the variables meet the condition.
    pub fn is_met(&self, variables: &dyn Variables<V>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|one| one.is_met(variables)),
            Self::Any(any) => any.iter().any(|one| one.is_met(variables)),
            Self::Not(one) => !one.is_met(variables),
            Self::Compare(variable, comparison) => variables.test(variable, &|value| comparison.holds(value)),
        }
    }
}
