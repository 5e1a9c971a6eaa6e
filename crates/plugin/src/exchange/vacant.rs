//! What stands in the place of an exchange that is lent.

use super::connection::Connection;
use super::{Exchange, state};
use crate::body_memory::{BodyMemory, WorkerBodyMemory};
use crate::views::{Configuration, ConsumerIndex, Entities, Route};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use weir_model::Uuid;

impl Exchange {
    /// An exchange of no request. A host of guests swaps it with the exchange that a guest is to see, which it can keep
    /// so for as long as the guest runs, and swaps them back.
    pub fn vacant() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let connection = Connection::new(nowhere, nowhere, 0, None, false);
        let bodies = Rc::new(WorkerBodyMemory::new(Arc::new(BodyMemory::new(0, 1)), 0));
        let configuration =
            Configuration::new(Arc::new(NoEntities), Arc::default(), bodies, Rc::new(|_| false));
        let origin = (0, [b'0'; 32]);
        state::begin(&Rc::new(connection), Rc::new(configuration), origin, Default::default())
    }
}

struct NoEntities;

impl Entities for NoEntities {
    fn route(&self, _: u32) -> Option<&Route> {
        None
    }

    fn consumer(&self, _: Uuid) -> Option<ConsumerIndex> {
        None
    }

    fn consumer_by_username(&self, _: &str) -> Option<ConsumerIndex> {
        None
    }

    fn has_upstream(&self, _: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::Exchange;
    use crate::testing::Gateway;

    #[test]
    fn a_vacant_exchange_takes_the_place_of_another() {
        let (mut exchange, mut vacant) = (Gateway::new(&[]).exchange("GET /a"), Exchange::vacant());
        std::mem::swap(&mut exchange, &mut vacant);
        assert_eq!((vacant.path(), exchange.route().is_none()), ("/a", true));
        assert!(exchange.consumer().is_none() && exchange.find_consumer_by_username("bob").is_none());
        assert!(exchange.set_upstream("blue").is_err());
    }
}
