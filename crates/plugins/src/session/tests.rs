//! Sessions in cookies, without a network. `crates/gateway/tests/session.rs` has those in a database, and a browser's.

mod rows;

use super::content::{Entry, Session, Timeouts};
use super::keeper::{Changes, Incoming};
use super::*;
use crate::PLUGINS;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_plugin::testing::{Gateway, Outcome, entity, id};
use weir_plugin::{Credential, ErrorTemplates, Uuid};

/// Stands for an authentication plugin whose keys are the consumers' names. With `anonymous` another plugin's success suffices.
fn authenticate(exchange: &mut Exchange, has_anonymous: bool) {
    if has_anonymous && exchange.credential().is_some() {
        return;
    }
    let name = exchange.request.headers.get("apikey").unwrap_or_default();
    let name = String::from_utf8(name.to_vec()).unwrap();
    match exchange.find_consumer_by_username(&name) {
        Some(consumer) => exchange.authenticate(consumer, Credential { id: id(0xa), identifier: None }),
        None => exchange.authenticate_anonymous(exchange.find_consumer_by_username("guest").unwrap()),
    }
}

/// A gateway with a session plugin.
struct Setup {
    gateway: Gateway,
    session: Arc<dyn Hooks>,
}

/// The configuration of these tests, with other values of some fields.
fn config(more: &Value) -> Value {
    let mut config = json!({ "secret": "a secret of the tests", "cookie_secure": false });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

impl Setup {
    fn new(more: &Value) -> Self {
        let gateway = Gateway::new(PLUGINS);
        let session = gateway.plugin("session", config(more)).unwrap();
        Self { gateway, session }
    }

    fn send(&self, request: &str) -> Outcome {
        self.send_by(true, request)
    }

    /// Sends a request through an authentication plugin that asks each for a key.
    fn send_with_key(&self, request: &str) -> Outcome {
        self.send_by(false, request)
    }

    fn send_by(&self, has_anonymous: bool, request: &str) -> Outcome {
        let mut exchange = self.gateway.exchange(request);
        let answer = match self.session.access(&mut exchange) {
            Flow::Continue => {
                authenticate(&mut exchange, has_anonymous);
                None
            }
            Flow::Respond(response) => {
                let body = response.write(&mut exchange, &ErrorTemplates::default());
                Some(String::from_utf8(body.to_vec()).unwrap())
            }
            Flow::Wait(_) => panic!("nothing waits without a store"),
        };
        self.session.response(&mut exchange);
        Outcome { exchange, answer }
    }

    /// Logs in, and returns the cookies as a browser sends them.
    fn log_in(&self) -> String {
        cookies(&self.send("GET /\napikey: alice"))
    }

    fn user(&self, cookies: &str) -> String {
        let outcome = self.send(&format!("GET /\nCookie: {cookies}"));
        outcome.upstream_header("X-Consumer-Username").unwrap().to_owned()
    }
}

fn set_cookies(outcome: &Outcome) -> Vec<String> {
    let values = outcome.exchange.response.headers.get_all("Set-Cookie");
    values.map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
}

fn cookies(outcome: &Outcome) -> String {
    let pair = |cookie: &String| cookie.split(';').next().unwrap().to_owned();
    set_cookies(outcome).iter().map(pair).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_client_that_has_logged_in_needs_no_key() {
    let setup = Setup::new(
        &json!({ "response_headers": ["id", "subject", "timeout"], "request_headers": ["audience"] }),
    );
    let login = setup.send("GET /\napikey: alice\nSession-Audience: forged");
    assert_eq!(login.upstream_header("Session-Audience"), None);
    assert_eq!(
        (login.header("Session-Subject"), login.header("Session-Timeout")),
        (Some("alice"), Some("900"))
    );
    assert_eq!(login.header("Session-Id").map(str::len), Some(43));
    let set = set_cookies(&login);
    assert!(set.len() == 1 && set[0].ends_with("; Path=/; SameSite=Strict; HttpOnly"), "{set:?}");

    let next = setup.send(&format!("GET /\nCookie: x=y; {}\nX-Consumer-Username: root", cookies(&login)));
    for (header, value) in [
        ("X-Consumer-Username", Some("alice")),
        ("X-Credential-Identifier", Some(&*id(0xa).to_string())),
        ("X-Anonymous-Consumer", None),
        ("X-Authenticated-Groups", None),
        ("Session-Audience", Some("default")),
    ] {
        assert_eq!(next.upstream_header(header), value, "{header}");
    }
    assert_eq!(next.header("Session-Id"), login.header("Session-Id"));
    assert_eq!(set_cookies(&next), [""; 0]);
    assert_eq!(setup.user("session=1rubbish"), "guest");
    assert_eq!(set_cookies(&setup.send("GET /")), [""; 0]);
}

#[test]
fn another_login_takes_the_place_of_the_session() {
    let setup = Setup::new(&json!({}));
    let alice = setup.log_in();
    let of_bob = setup.send_with_key(&format!("GET /\nCookie: {alice}\napikey: bob"));
    assert_eq!((setup.user(&cookies(&of_bob)), setup.user(&alice)), ("bob".to_owned(), "alice".to_owned()));
}

#[test]
fn only_cookies_of_this_secret_and_name_are_accepted() {
    let setup = Setup::new(&json!({}));
    let cookie = setup.log_in();
    for more in [
        json!({ "secret": "another secret of the tests" }),
        json!({ "cookie_name": "session2" }),
        json!({ "storage": "cookie", "audience": "another" }),
    ] {
        let other = Setup::new(&more);
        assert_eq!(other.user(&cookie), "guest", "{more}");
        assert_eq!(other.user(&cookie.replace("session=", "session2=")), "guest", "{more}");
    }
    assert_eq!(Setup::new(&json!({ "idling_timeout": 1 })).user(&cookie), "alice");
    let (begin, end) = cookie.split_at(cookie.len() - 2);
    let changed = format!("{begin}{}", if end == "AA" { "BA" } else { "AA" });
    assert_eq!(setup.user(&changed), "guest");
}

#[test]
fn a_consumer_that_is_gone_is_logged_out() {
    let mut setup = Setup::new(&json!({}));
    let cookie = setup.log_in();
    setup.gateway.document.consumers.retain(|consumer| consumer.username.as_deref() != Some("alice"));
    let outcome = setup.send(&format!("GET /\nCookie: {cookie}"));
    assert_eq!(outcome.upstream_header("X-Consumer-Username"), Some("guest"));
    let set = set_cookies(&outcome);
    assert!(set.len() == 1 && set[0].ends_with("Max-Age=0"), "{set:?}");
}

#[test]
fn a_request_logs_out_by_its_query_or_body() {
    let setup =
        Setup::new(&json!({ "read_body_for_logout": true, "remember": true, "logout_post_arg": "bye" }));
    let login = setup.log_in();
    let form = "Content-Type: application/x-www-form-urlencoded\n\na=b&bye";
    let json = "Content-Type: application/json\n\n{\"bye\": 1}";
    for (head, rest, logs_out) in [
        ("POST /?a&session_logout", "", true),
        ("DELETE /?session_logout=false", "", true),
        ("GET /?session_logout=1", "", false),
        ("PUT /?session_logout=1", "", false),
        ("POST /?session_login", form, true),
        ("DELETE /", json, true),
        ("POST /", "Content-Type: application/json\n\n{\"bye\": false}", false),
        ("POST /", "Content-Type: text/plain\n\nbye=1", false),
        ("GET /", form, false),
    ] {
        let outcome = setup.send(&format!("{head}\nCookie: {login}\n{rest}"));
        assert_eq!(outcome.answer.as_deref(), logs_out.then_some(""), "{head} {rest}");
        let expired = set_cookies(&outcome).iter().filter(|cookie| cookie.ends_with("Max-Age=0")).count();
        assert_eq!(expired, if logs_out { 2 } else { 0 }, "{head} {rest}");
    }
    let unread = Setup::new(&json!({ "logout_post_arg": "bye" }));
    assert_eq!(unread.send(&format!("POST /\nCookie: {login}\n{form}")).answer, None);
    assert_eq!(setup.send("POST /?session_logout").answer, None);
}

#[test]
fn a_browser_is_remembered() {
    let setup = Setup::new(&json!({ "remember": true }));
    let login = setup.send("GET /\napikey: alice");
    let set = set_cookies(&login);
    assert!(set[1].starts_with("remember=1") && set[1].ends_with("; Max-Age=604800"), "{set:?}");
    let remember = cookies(&login).split("; ").nth(1).unwrap().to_owned();
    let recovered = setup.send(&format!("GET /\nCookie: {remember}"));
    assert_eq!(recovered.upstream_header("X-Consumer-Username"), Some("alice"));
    assert_eq!(set_cookies(&recovered).len(), 2);
    assert_eq!(setup.user(&cookies(&recovered)), "alice");
    // The one is not the other.
    assert_eq!(setup.user(&remember.replace("remember=", "session=")), "guest");
    let logout = setup.send(&format!("POST /?session_logout\nCookie: {remember}"));
    let set = set_cookies(&logout);
    assert!(set.len() == 1 && set[0].starts_with("remember=;") && logout.answer.is_some(), "{set:?}");
}

#[test]
fn audiences_share_a_cookie_and_log_out_alone() {
    let (one, other) =
        (Setup::new(&json!({ "audience": "one" })), Setup::new(&json!({ "audience": "other" })));
    let first = one.log_in();
    assert_eq!(other.user(&first), "guest");
    let both = cookies(&other.send(&format!("GET /\nCookie: {first}\napikey: alice")));
    assert_eq!((one.user(&both), other.user(&both)), ("alice".to_owned(), "alice".to_owned()));
    let rest = cookies(&other.send(&format!("DELETE /?session_logout\nCookie: {both}")));
    assert_eq!((one.user(&rest), other.user(&rest)), ("alice".to_owned(), "guest".to_owned()));
}

#[test]
fn groups_stay_however_many_cookies_that_takes() {
    let setup = Setup::new(&json!({}));
    let groups = |count| (0..count).map(|number| format!("group {number:05}")).collect::<Vec<_>>();
    let log_in = |count| {
        let mut exchange = setup.gateway.exchange("GET /\napikey: alice");
        authenticate(&mut exchange, true);
        exchange.set_authenticated_groups(groups(count));
        setup.session.response(&mut exchange);
        cookies(&Outcome { exchange, answer: None })
    };
    for count in [1, 300, 1500] {
        let cookies = log_in(count);
        assert_eq!(cookies.contains("session2="), count > 1);
        let mut exchange = setup.gateway.exchange(&format!("GET /\nCookie: {cookies}"));
        assert!(matches!(setup.session.access(&mut exchange), Flow::Continue));
        assert_eq!(exchange.authenticated_groups(), groups(count));
        let header = exchange.request.headers.get("X-Authenticated-Groups").unwrap();
        assert_eq!(header, groups(count).join(", ").as_bytes());
    }
    assert_eq!(log_in(5000), "");
    // Fewer cookies than before leave none behind.
    let many = log_in(300);
    let fewer = setup.send_with_key(&format!("GET /\nCookie: {many}\napikey: bob"));
    let set = set_cookies(&fewer);
    assert!(set[0].starts_with("session=1") && set[1].starts_with("session2=;"), "{set:?}");
}

fn instance(more: &Value) -> Arc<Instance> {
    let plugin = entity(json!({ "name": "session", "id": id(1) }));
    let config = Config::from_value(&config(more)).unwrap();
    Gateway::new(PLUGINS).build_with(&plugin, |build| SessionPlugin::new(config, build).unwrap()).0
}

/// The seconds after a login at which a cookie is still valid, which is used and saved as it is due.
fn valid_until(more: &Value, interval: u64) -> u64 {
    let instance = instance(more);
    let begin = 1_800_000_000;
    let entry = Entry {
        audience: "default".to_owned(),
        subject: "alice".to_owned(),
        consumer: id(0xb),
        credential: id(0xa).to_string(),
        groups: None,
    };
    let (mut kept, mut session) = (BTreeMap::new(), Session::new(begin, vec![entry]));
    for now in (begin..begin + 200_000).step_by(interval as usize) {
        let line = kept.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
        let lines = [line.as_bytes()];
        let incoming = Incoming { now, lines: lines.to_vec() };
        if now > begin {
            match instance.session.open(&incoming) {
                Some(opened) => session = opened,
                None => return now - begin - interval,
            }
        }
        let mut sessions = instance::Sessions { session: Some(session.clone()), ..Default::default() };
        let mut changes = Changes::default();
        instance.refresh(&mut sessions, &incoming, &mut changes).unwrap();
        let touched = instance.touch(&mut sessions, now).unwrap();
        session = sessions.session.unwrap();
        for set in changes.cookies.iter().chain(&touched) {
            let (name, value) = set.split(';').next().unwrap().split_once('=').unwrap();
            kept.insert(name.to_owned(), value.to_owned());
        }
    }
    200_000
}

#[test]
fn each_timeout_ends_a_session() {
    // Used each minute, it is renewed until the day is over.
    assert_eq!(valid_until(&json!({}), 60), 86_400);
    assert_eq!(valid_until(&json!({ "absolute_timeout": 0 }), 60), 200_000);
    assert_eq!(valid_until(&json!({}), 901), 0);
    assert_eq!(valid_until(&json!({ "idling_timeout": 0 }), 3601), 0);
    assert_eq!(valid_until(&json!({ "idling_timeout": 0, "rolling_timeout": 0 }), 3601), 23 * 3601);
    // Too seldom to be renewed in the last quarter.
    assert_eq!(valid_until(&json!({ "idling_timeout": 0 }), 2700), 2700);
    assert_eq!(valid_until(&json!({ "idling_timeout": 10 }), 4), 86_400);
    assert_eq!(valid_until(&json!({ "idling_timeout": 0.5 }), 2), 0);
}

#[test]
fn the_use_of_a_session_changes_no_cookie_but_its_own() {
    let more = json!({ "idling_timeout": 900 });
    let setup = Setup::new(&more);
    let instance = instance(&more);
    let login = setup.log_in();
    let lines = vec![login.as_bytes()];
    let now = weir_plugin::unix_time();
    for later in [100, 800, 3000] {
        // The last is in the last quarter of the rolling timeout.
        let mut session = instance.session.open(&Incoming { now, lines: lines.clone() }).unwrap();
        session.used = now + later - 100;
        let mut sessions = instance::Sessions { session: Some(session), ..Default::default() };
        let (incoming, mut changes) =
            (Incoming { now: now + later, lines: lines.clone() }, Changes::default());
        instance.refresh(&mut sessions, &incoming, &mut changes).unwrap();
        assert_eq!(changes.cookies, [""; 0]);
        let touched = instance.touch(&mut sessions, now + later).unwrap();
        assert!(touched.len() == 1 && touched[0].starts_with("session_used=1"), "{touched:?}");
        // It belongs to this login, and not to the next.
        let used = touched[0].split(';').next().unwrap();
        let next = setup.log_in();
        let opened = |login: &str| {
            let line = format!("{login}; {used}");
            instance.session.open(&Incoming { now: now + later, lines: vec![line.as_bytes()] })
        };
        assert_eq!(opened(&login).map(|session| session.used), Some(now + later));
        assert!(opened(&next).is_none_or(|session| session.used < now + later));
    }
}

#[test]
fn a_late_response_says_nothing_of_a_session_that_has_ended() {
    let instance = instance(&json!({}));
    let mut session = Session { saved: 1000, used: 1000, ..Session::new(1000, Vec::new()) };
    assert!(instance.session.touch(&mut session.clone(), 1900).unwrap().len() == 1);
    assert_eq!(instance.session.touch(&mut session, 1901), Ok(Vec::new()));
}

#[test]
fn fields_are_checked() {
    let setup = Setup::new(&json!({}));
    for (more, expected) in [
        (json!({ "cookie_name": "a b" }), "no name of a cookie"),
        (json!({ "cookie_name": "" }), "must not be empty"),
        (json!({ "cookie_domain": "a;b" }), "end an attribute"),
        (json!({ "idling_timeout": -1 }), "must not be negative"),
        (json!({ "remember": true, "remember_cookie_name": "session" }), "must not be that of `cookie_name`"),
        (json!({ "secret": "" }), "secret"),
        (json!({ "cookie_renew": 1 }), "leave it out"),
        (json!({ "logout_methods": ["PUT"] }), "PUT"),
    ] {
        let refused = setup.gateway.plugin("session", config(&more)).err();
        assert!(refused.as_ref().is_some_and(|error| error.contains(expected)), "{more}: {refused:?}");
    }
    let old = Config::from_value(&json!({ "cookie_lifetime": 7, "cookie_persistent": true })).unwrap();
    assert_eq!((old.rolling_timeout, old.remember, old.secret.expose().len()), (7.0, true, 44));
    assert!(!format!("{old:?}").contains(old.secret.expose()));
    let warned = |config| SessionPlugin::warnings(&config).into_iter().map(|it| it.path).collect::<Vec<_>>();
    assert_eq!(warned(json!({ "secret": "short" })), ["secret"]);
    assert_eq!(
        warned(json!({ "secret": "{vault://env/a}", "cookie_same_site": "None", "cookie_secure": false })),
        ["cookie_same_site"]
    );
}

fn session() -> impl Strategy<Value = Session> {
    let groups = prop::option::of(prop::collection::vec(".*", 0..4));
    let entry = (".*", ".*", any::<u128>(), ".*", groups).prop_map(
        |(audience, subject, consumer, credential, groups)| Entry {
            audience,
            subject,
            consumer: Uuid::from_u128(consumer),
            credential,
            groups,
        },
    );
    (any::<[u8; 32]>(), any::<[u64; 3]>(), prop::collection::vec(entry, 0..3)).prop_map(
        |(id, [created, saved, used], entries)| Session {
            id,
            created,
            saved,
            used,
            entries,
            history: content::History::default(),
        },
    )
}

proptest! {
    #[test]
    fn a_session_is_read_as_it_was_written(session in session()) {
        prop_assert_eq!(Session::decode(&session.encode()), Some(session));
    }

    #[test]
    fn what_is_no_session_is_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(Session::decode(&bytes), None);
    }

    #[test]
    fn no_time_is_left_once_one_timeout_is_over(session in session(), timeouts: [u64; 3], now: u64) {
        let [idling, rolling, absolute] = timeouts;
        let timeouts = Timeouts { idling, rolling, absolute };
        let elapsed = [session.used, session.saved, session.created].map(|since| now.saturating_sub(since));
        let limits = [idling, rolling, absolute];
        let is_over = (0..3).any(|at| limits[at] > 0 && elapsed[at] > limits[at]);
        prop_assert_eq!(timeouts.left(&session, now).is_none(), is_over);
        prop_assert!(!timeouts.is_rolling_due(&session, session.saved));
    }
}
