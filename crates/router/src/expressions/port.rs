//! What an expression asks of one port. A candidate stores it in place, so that most expressions that fail by a port are not
//! evaluated.
use super::check::{Check, IntegerCheck};
use super::field::Field;
use super::subject::{Request, Subject};
use super::{Node, Test};

/// A comparison of a port with a number. A request has both ports, so its opposite is one too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortCheck {
    than: i64,
    check: IntegerCheck,
    side: Side,
}

/// Whose port it is.
#[derive(Debug, Clone, Copy)]
enum Side {
    Source,
    Destination,
}

const _: () = assert!(size_of::<Option<PortCheck>>() == 16);

impl PortCheck {
    /// What a node asks for, if it is nothing but one port.
    pub(super) fn of(node: &Node) -> Option<PortCheck> {
        match node {
            Node::Test(Test { field, check: Check::Integer(check, than), .. }) => {
                let side = match field {
                    Field::SourcePort => Side::Source,
                    Field::DestinationPort => Side::Destination,
                    _ => return None,
                };
                Some(PortCheck { than: *than, check: *check, side })
            }
            Node::Not(inner) => {
                let port = PortCheck::of(inner)?;
                Some(PortCheck { check: port.check.opposite(), ..port })
            }
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn holds(self, request: &Request<'_>) -> bool {
        let port = match self.side {
            Side::Source => request.source().port().into(),
            Side::Destination => request.destination_port(),
        };
        self.check.holds(port, self.than)
    }
}
