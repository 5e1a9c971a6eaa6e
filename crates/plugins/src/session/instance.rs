//! What happens to the session of a request: before the other authentication plugins run, and once they have.

use super::Config;
use super::content::{Entry, Session};
use super::keeper::{Changes, Incoming, KeepError, Keeper};
use super::logout::is_logout;
use super::properties::{self, Property};
use super::store::Store;
use std::sync::Arc;
use weir_plugin::entity::Consumer;
use weir_plugin::{ConsumerIndex, Credential, Exchange, Flow, Known, LocalResponse, Resume, Uuid, unix_time};

const GROUPS: &str = "X-Authenticated-Groups";

/// One configured instance.
pub(super) struct Instance {
    pub(super) config: Config,
    pub(super) session: Keeper,
    /// Keeps the cookie by which a browser is remembered, where that is configured.
    pub(super) remember: Option<Keeper>,
    pub(super) store: Option<Arc<Store>>,
    pub(super) request_headers: Vec<Property>,
    pub(super) response_headers: Vec<Property>,
}

/// The sessions of a request, which the access hook leaves to the response hook.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) session: Option<Session>,
    pub(super) remembered: Option<Session>,
    /// The values of `Set-Cookie` for the client.
    pub(super) cookies: Vec<String>,
}

impl Instance {
    pub(super) fn access(self: &Arc<Self>, exchange: &mut Exchange) -> Flow {
        // The upstream must not take what the client says for what a session says.
        for property in &self.request_headers {
            exchange.request.headers.remove(property.header);
        }
        if exchange.header(Known::Cookie).is_none() {
            return Flow::Continue;
        }
        let incoming = Incoming::of(exchange);
        let sessions = Sessions {
            session: self.session.open(&incoming),
            remembered: self.remember.as_ref().and_then(|keeper| keeper.open(&incoming)),
            cookies: Vec::new(),
        };
        match &self.store {
            _ if sessions.session.is_none() && sessions.remembered.is_none() => Flow::Continue,
            None => self.settle(exchange, sessions),
            Some(store) => self.clone().load(store.clone(), sessions),
        }
    }

    /// Reads the entries of the sessions, then goes on.
    fn load(self: Arc<Self>, store: Arc<Store>, mut sessions: Sessions) -> Flow {
        Flow::Wait(Box::pin(async move {
            sessions.session = with_entries(&store, sessions.session).await;
            if sessions.session.is_none() {
                sessions.remembered = with_entries(&store, sessions.remembered).await;
            }
            let rest: Resume = Box::new(move |exchange| self.settle(exchange, sessions));
            rest
        }))
    }

    /// Logs the client in or out, as its session and the request say.
    fn settle(self: &Arc<Self>, exchange: &mut Exchange, mut sessions: Sessions) -> Flow {
        let (incoming, mut changes) = (Incoming::of(exchange), Changes::default());
        sessions.recover(&self.config.audience, incoming.now);
        let entry = sessions.session.as_ref().and_then(|session| session.entry(&self.config.audience));
        let Some(entry) = entry.cloned() else {
            exchange.extensions.insert(sessions);
            return Flow::Continue;
        };
        let is_logout = is_logout(&self.config, exchange);
        let consumer = exchange.find_consumer(entry.consumer).filter(|_| !is_logout);
        report(match consumer {
            Some(_) => self.refresh(&mut sessions, &incoming, &mut changes),
            // Its consumer is gone, or the client logs out.
            None => self.log_out(&mut sessions, &incoming, &mut changes),
        });
        if let Some((consumer, session)) = consumer.zip(sessions.session.as_ref()) {
            let now = incoming.now;
            self.authenticate(exchange, consumer, &entry);
            self.describe(exchange, session, now);
        }
        let response = is_logout.then(|| LocalResponse::raw(200, None, ""));
        self.finish(exchange, sessions, changes, response)
    }

    /// Saves a session that begins, and gives one in rows a new id when that is due.
    pub(super) fn refresh(
        &self,
        sessions: &mut Sessions,
        incoming: &Incoming<'_>,
        changes: &mut Changes,
    ) -> Result<(), KeepError> {
        let Some(session) = &mut sessions.session else { return Ok(()) };
        let timeouts = self.session.timeouts;
        if !session.is_saved() {
            let entries = session.entries.clone();
            self.session.save(session, entries.clone(), incoming, changes)?;
            return self.remember(&mut sessions.remembered, entries, incoming, changes);
        }
        let is_replaced = session.history.successor.is_some();
        if self.store.is_some() && !is_replaced && timeouts.is_rolling_due(session, incoming.now) {
            let entries = session.entries.clone();
            return self.session.save(session, entries, incoming, changes);
        }
        Ok(())
    }

    /// The cookie that says that the session is used, if it is time that one does.
    pub(super) fn touch(&self, sessions: &mut Sessions, now: u64) -> Result<Vec<String>, KeepError> {
        let session = sessions.session.as_mut().filter(|session| session.history.successor.is_none());
        let session = session.filter(|session| session.entry(&self.config.audience).is_some());
        session.map_or(Ok(Vec::new()), |session| self.session.touch(session, now))
    }

    /// Has the browser be remembered, where that is configured.
    fn remember(
        &self,
        remembered: &mut Option<Session>,
        entries: Vec<Entry>,
        incoming: &Incoming<'_>,
        changes: &mut Changes,
    ) -> Result<(), KeepError> {
        let is_replaced =
            remembered.as_ref().is_some_and(|remembered| remembered.history.successor.is_some());
        let Some(keeper) = self.remember.as_ref().filter(|_| !is_replaced) else { return Ok(()) };
        let remembered = remembered.get_or_insert_with(|| Session::new(incoming.now, Vec::new()));
        keeper.save(remembered, entries, incoming, changes)
    }

    fn authenticate(&self, exchange: &mut Exchange, consumer: ConsumerIndex, entry: &Entry) {
        let credential = Credential { id: id_of(&entry.credential), identifier: Some(&entry.credential) };
        exchange.authenticate(consumer, credential);
        exchange.request.headers.remove(GROUPS);
        if let Some(groups) = &entry.groups {
            exchange.request.headers.set(GROUPS, groups.join(", ").as_bytes());
            exchange.set_authenticated_groups(groups.clone());
        }
    }

    /// Describes the session to the upstream.
    fn describe(&self, exchange: &mut Exchange, session: &Session, now: u64) {
        if !self.request_headers.is_empty() {
            exchange.describe_caller(&session.id);
        }
        for (header, value) in self.properties(&self.request_headers, session, now) {
            exchange.request.headers.set(header, value.as_bytes());
        }
    }

    /// Ends the session, or its part of this audience.
    fn log_out(
        &self,
        sessions: &mut Sessions,
        incoming: &Incoming<'_>,
        changes: &mut Changes,
    ) -> Result<(), KeepError> {
        let Some(session) = &mut sessions.session else { return Ok(()) };
        let (old, rest) = (session.clone(), session.others(&self.config.audience));
        if !rest.is_empty() {
            self.session.save(session, rest.clone(), incoming, changes)?;
            changes.rows.extend(self.store.iter().flat_map(|store| store.delete(&old)));
            return match &sessions.remembered {
                Some(_) => self.remember(&mut sessions.remembered, rest, incoming, changes),
                None => Ok(()),
            };
        }
        self.session.end_session(&old, incoming, changes);
        if let Some((keeper, remembered)) = self.remember.as_ref().zip(sessions.remembered.as_ref()) {
            keeper.end_session(remembered, incoming, changes);
        }
        (sessions.session, sessions.remembered) = (None, None);
        Ok(())
    }

    /// Goes on, once the database has what has changed.
    fn finish(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        mut sessions: Sessions,
        changes: Changes,
        response: Option<LocalResponse>,
    ) -> Flow {
        sessions.cookies = changes.cookies;
        exchange.extensions.insert(sessions);
        let go_on = |response: Option<LocalResponse>| response.map_or(Flow::Continue, Flow::Respond);
        let Some(store) = self.store.clone().filter(|_| !changes.rows.is_empty()) else {
            return go_on(response);
        };
        Flow::Wait(Box::pin(async move {
            let done = store.apply(changes.rows).await;
            let rest: Resume = Box::new(move |exchange| {
                let Err(error) = done else { return go_on(response) };
                tracing::error!("session: a session cannot be changed: {error}");
                // What the client has is still true.
                exchange.extensions.get_mut::<Sessions>().iter_mut().for_each(|it| it.cookies.clear());
                go_on(response.map(|_| LocalResponse::error(500, "An unexpected error occurred")))
            });
            rest
        }))
    }

    pub(super) fn response(&self, exchange: &mut Exchange) {
        let mut sessions = exchange.extensions.remove::<Sessions>().unwrap_or_default();
        report(self.start(exchange, &mut sessions));
        // The response may be late, so what the request has found is not what the browser has by now.
        match self.touch(&mut sessions, unix_time()) {
            Ok(cookies) => sessions.cookies.extend(cookies),
            Err(error) => report(Err(error)),
        }
        for cookie in &sessions.cookies {
            exchange.response.headers.append("Set-Cookie", cookie.as_bytes());
        }
        let session = sessions.session.filter(|session| session.entry(&self.config.audience).is_some());
        let Some(session) = session.filter(|_| !self.response_headers.is_empty()) else { return };
        for (header, value) in self.properties(&self.response_headers, &session, unix_time()) {
            exchange.response.headers.set(header, value.as_bytes());
        }
    }

    /// Starts a session for a client that has logged in with this request.
    fn start(&self, exchange: &Exchange, sessions: &mut Sessions) -> Result<(), KeepError> {
        let Some((consumer, credential)) = exchange.consumer().zip(exchange.credential()) else {
            return Ok(());
        };
        let known = sessions.session.as_ref().and_then(|session| session.entry(&self.config.audience));
        if known.is_some_and(|known| known.is_of(consumer.entity.id, credential)) {
            return Ok(());
        }
        let entry = self.entry(exchange, &consumer.entity, known);
        let place = self.store.as_ref().map(|store| store.reserve());
        if place.as_ref().is_some_and(Option::is_none) {
            return Err(KeepError::TooMany);
        }
        let (incoming, mut changes) = (Incoming::of(exchange), Changes::default());
        let session = sessions.session.get_or_insert_with(|| Session::new(incoming.now, Vec::new()));
        let entries: Vec<_> = session.others(&entry.audience).into_iter().chain([entry]).collect();
        self.session.save(session, entries.clone(), &incoming, &mut changes)?;
        self.remember(&mut sessions.remembered, entries, &incoming, &mut changes)?;
        if let (Some(store), Some(Some(place))) = (&self.store, place) {
            store.apply_later(changes.rows, place);
        }
        sessions.cookies = changes.cookies;
        Ok(())
    }

    /// What a session holds of a consumer that has proved to be one, beside what it has held so far.
    fn entry(&self, exchange: &Exchange, consumer: &Consumer, known: Option<&Entry>) -> Entry {
        let name = consumer.username.as_ref().or(consumer.custom_id.as_ref());
        let groups = exchange.authenticated_groups();
        // Another consumer's session has set its groups, which are not those of this one.
        let is_of_other = known.is_some_and(|known| {
            known.consumer != consumer.id && known.groups.as_deref().unwrap_or_default() == groups
        });
        Entry {
            audience: self.config.audience.clone(),
            subject: name.cloned().unwrap_or_else(|| consumer.id.to_string()),
            consumer: consumer.id,
            credential: exchange.credential_text().unwrap_or_default().into_owned(),
            groups: (!groups.is_empty() && !is_of_other).then(|| groups.to_vec()),
        }
    }

    fn properties<'p>(
        &'p self,
        properties: &'p [Property],
        session: &'p Session,
        now: u64,
    ) -> impl Iterator<Item = (&'static str, String)> + 'p {
        properties::of(properties, session, (&self.config.audience, self.session.timeouts), now)
    }
}

impl Sessions {
    /// Has a session begin with the entries of the cookie by which the browser is remembered, where there is no other.
    fn recover(&mut self, audience: &str, now: u64) {
        let remembered = self.remembered.as_ref().filter(|it| it.entry(audience).is_some());
        if let Some(remembered) = remembered.filter(|_| self.session.is_none()) {
            self.session = Some(Session::new(now, remembered.entries.clone()));
        }
    }
}

impl Entry {
    fn is_of(&self, consumer: Uuid, credential: Uuid) -> bool {
        self.consumer == consumer && id_of(&self.credential) == credential
    }
}

async fn with_entries(store: &Store, session: Option<Session>) -> Option<Session> {
    let mut session = session?;
    let stored = store.find(&session).await?;
    (session.entries, session.history) = (stored.entries.clone(), stored.history);
    Some(session)
}

/// The id of a credential, as the engine has it where its text is no UUID.
fn id_of(credential: &str) -> Uuid {
    credential.parse().unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_OID, credential.as_bytes()))
}

fn report(done: Result<(), KeepError>) {
    if let Err(error) = done {
        tracing::error!("session: a session cannot be kept: {error}");
    }
}
