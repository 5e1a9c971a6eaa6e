//! The server of counters or of the configuration, with what is in front of it and what stands by for it.
use super::FaultError;
use super::act::{Act, StoreAct};
use super::relay::Relay;
use super::scenario::Scenario;
use super::store::{Kind, MASTER, Role, Store, until};
use std::net::SocketAddr;
use std::path::Path;

/// Servers that are one to the gateway. Dropping them ends them.
pub(super) struct Stores {
    relay: Option<Relay>,
    sentinel: Option<Store>,
    standby: Option<Store>,
    main: Store,
    kind: Kind,
}

impl Stores {
    /// Starts what a scenario needs, on these ports; none if it needs no server.
    pub(super) fn start(
        scenario: &Scenario,
        folder: &Path,
        ports: [u16; 3],
    ) -> Result<Option<Self>, FaultError> {
        let needs = |what: &str| scenario.needs.contains(what);
        let kind = match (needs("redis"), needs("postgres")) {
            (true, _) => Kind::Redis,
            (_, true) => Kind::Postgres,
            _ => return Ok(None),
        };
        let role = if needs("failover") { Role::Primary } else { Role::Alone };
        let main = Store::start(kind, role, &folder.join("store"), ports[0])?;
        let mut stores = Self { relay: None, sentinel: None, standby: None, main, kind };
        if role == Role::Primary {
            stores.stand_by(folder, [ports[1], ports[2]])?;
        }
        if scenario.steps.iter().any(|step| matches!(step.act, Act::Store(StoreAct::Slow(_)))) {
            let relay = Relay::start(stores.main.address);
            stores.relay = Some(relay.map_err(|error| FaultError::system("the relay cannot listen", error))?);
        }
        Ok(Some(stores))
    }

    /// Starts a standby, and a sentinel for Redis, and waits until they know of each other.
    fn stand_by(&mut self, folder: &Path, ports: [u16; 2]) -> Result<(), FaultError> {
        let role = Role::Follower(self.main.address);
        let standby = Store::start(self.kind, role, &folder.join("standby"), ports[0])?;
        if self.kind == Kind::Redis {
            until("the standby", || Ok(standby.says("INFO replication", "master_link_status:up")))?;
            let sentinel = Store::start(Kind::Sentinel, role, &folder.join("sentinel"), ports[1])?;
            let (known, port) = (format!("SENTINEL replicas {MASTER}"), ports[0].to_string());
            until("the sentinel", || Ok(sentinel.says(&known, &port)))?;
            self.sentinel = Some(sentinel);
        }
        self.standby = Some(standby);
        Ok(())
    }

    /// Where the gateway finds it.
    pub(super) fn address(&self) -> SocketAddr {
        self.relay.as_ref().map_or(self.main.address, |relay| relay.address)
    }

    /// Where its standby is.
    pub(super) fn standby(&self) -> Option<SocketAddr> {
        self.standby.as_ref().map(|standby| standby.address)
    }

    /// Where the sentinel is.
    pub(super) fn sentinel(&self) -> Option<SocketAddr> {
        self.sentinel.as_ref().map(|sentinel| sentinel.address)
    }

    /// What counters are kept in now, if they are.
    pub(super) fn counters(&self) -> Option<&Store> {
        let promoted =
            self.standby.as_ref().filter(|standby| standby.says("INFO replication", "role:master"));
        (self.kind == Kind::Redis).then(|| promoted.unwrap_or(&self.main))
    }

    /// Forgets what was counted, so that only what is counted from now on is found.
    pub(super) fn forget(&self) -> Result<(), FaultError> {
        let forgets = |counters: &Store| until("Redis", || Ok(counters.says("FLUSHALL", "+OK")));
        self.counters().map_or(Ok(()), forgets)
    }

    /// Whether an answer came late.
    #[must_use]
    pub(super) fn was_slow(&self) -> bool {
        self.relay.as_ref().is_some_and(Relay::has_acted)
    }

    pub(super) fn act(&mut self, act: StoreAct) -> Result<(), FaultError> {
        match act {
            StoreAct::Process(act) => self.main.act(act),
            StoreAct::Slow(is_slow) => {
                // A scenario with such a step has one.
                self.relay.iter().for_each(|relay| relay.slow(is_slow));
                Ok(())
            }
            StoreAct::Promote => self.promote(),
        }
    }

    /// A sentinel promotes by itself, which is waited for.
    fn promote(&self) -> Result<(), FaultError> {
        let unable =
            || FaultError::Unable("the scenario has a step for which it must need failover".to_owned());
        let standby = self.standby.as_ref().ok_or_else(unable)?;
        match &self.sentinel {
            None => standby.promote(),
            Some(_) => until("the standby", || Ok(standby.says("INFO replication", "role:master"))),
        }
    }
}
