//! The methods of a route as a set of bits.

/// The methods that have a bit; a route that names another compares names.
const WITH_BIT: [&str; 9] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT"];

/// The methods that a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Methods(u16);

impl Methods {
    /// Whatever the method.
    pub(super) const ANY: Methods = Methods(0);

    /// These; nothing where one of them has no bit.
    pub(super) fn of(names: &[impl AsRef<str>]) -> Option<Methods> {
        names.iter().try_fold(Methods::ANY, |methods, name| Some(Methods(methods.0 | bit(name.as_ref())?)))
    }

    /// Whether the method is one of them.
    pub(super) fn allow(self, method: &str) -> bool {
        self == Methods::ANY || self.0 & bit(method).unwrap_or(0) != 0
    }
}

fn bit(method: &str) -> Option<u16> {
    WITH_BIT.iter().position(|name| *name == method).map(|at| 1 << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_those_named() {
        let of =
            |names: &[&str]| Methods::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), Some(Methods::ANY));
        assert_eq!(of(&["GET", "PURGE"]), None);
        let methods = of(&["GET", "CONNECT"]).unwrap();
        let allowed = |method| methods.allow(method);
        assert_eq!(
            ["GET", "CONNECT", "POST", "get", "PURGE", ""].map(allowed),
            [true, true, false, false, false, false]
        );
        assert!(Methods::ANY.allow("PURGE"));
    }
}
