//! An OpenID provider that checks what it gets, and answers as a test says.
use crate::harness::{Message, Peer, Upstream};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const CLIENT: &str = "shop";
pub(super) const SECRET: &str = "hunter2+secret&of=client";

/// The provider.
pub(super) struct Provider {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
}

/// What it knows, and how it behaves.
pub(super) struct State {
    origin: String,
    key: EcdsaKeyPair,
    /// The id that it publishes the key under, and names in tokens.
    pub(super) published: String,
    pub(super) kid: String,
    /// What its documents and answers have beside the usual.
    pub(super) metadata: Value,
    pub(super) claims: Value,
    pub(super) tokens: Value,
    pub(super) user: Value,
    pub(super) introspection: Value,
    /// The header of ID tokens.
    pub(super) header: Value,
    /// Signs an ID token in another way.
    pub(super) forge: Option<fn(&str) -> Vec<u8>>,
    /// What an endpoint answers, or that it breaks off.
    pub(super) broken: HashMap<&'static str, Broken>,
    codes: HashMap<String, HashMap<String, String>>,
    /// The refresh tokens that are valid; each once.
    pub(super) refresh_tokens: Vec<String>,
    /// The endpoints that were asked, in order.
    pub(super) asked: Vec<(String, Message)>,
}

#[derive(Clone, Copy)]
pub(super) enum Broken {
    Silent,
    Reset,
    Answer(&'static str),
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A query string or a form, decoded.
pub(super) fn pairs(text: &str) -> HashMap<String, String> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode(&text)
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| std::str::from_utf8(&more[..2]).unwrap());
        bytes.push(escaped.map_or(*first, |digits| u8::from_str_radix(digits, 16).unwrap()));
        rest = if escaped.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(bytes).unwrap()
}

impl Provider {
    pub(super) fn start() -> Provider {
        let state = Arc::new(Mutex::new(State {
            origin: String::new(),
            key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            published: "first".to_owned(),
            kid: "first".to_owned(),
            metadata: json!({}),
            claims: json!({}),
            tokens: json!({}),
            user: json!({ "sub": "u-1", "email": "alice@example.test" }),
            introspection: json!({ "active": true, "sub": "u-1", "scope": "orders" }),
            header: json!({ "alg": "ES256" }),
            forge: None,
            broken: HashMap::new(),
            codes: HashMap::new(),
            refresh_tokens: Vec::new(),
            asked: Vec::new(),
        }));
        let serving = state.clone();
        let upstream = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                let target = request.head.start.split(' ').nth(1).unwrap().to_owned();
                let endpoint = target.split('?').next().unwrap().trim_start_matches('/').to_owned();
                let broken = serving.lock().unwrap().broken.get(&*endpoint).copied();
                let mut state = serving.lock().unwrap();
                state.asked.push((endpoint.clone(), request.clone()));
                let answer = if broken.is_none() { Some(state.answer(&endpoint, &request)) } else { None };
                drop(state);
                match broken {
                    None => send(&mut peer, answer.unwrap()),
                    Some(Broken::Silent) => drop(peer.rest()),
                    Some(Broken::Reset) => return peer.reset(),
                    Some(Broken::Answer(text)) => {
                        peer.send(text).finish_sending();
                        return;
                    }
                }
            }
        });
        state.lock().unwrap().origin = format!("http://{}", upstream.address);
        Provider { upstream, state }
    }

    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.upstream.address)
    }

    pub(super) fn discovery(&self) -> String {
        format!("{}/discovery", self.origin())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// How often an endpoint was asked.
    pub(super) fn asked(&self, endpoint: &str) -> usize {
        self.state().asked.iter().filter(|(asked, _)| asked == endpoint).count()
    }

    /// The user agrees: where the browser is sent to with a code. The location is that of a redirect to the provider.
    #[track_caller]
    pub(super) fn agree(&self, location: &str) -> String {
        let (endpoint, query) = location.split_once('?').expect("a query");
        assert_eq!(endpoint, format!("{}/authorize", self.origin()));
        let asked = pairs(query);
        assert_eq!((&*asked["response_type"], &*asked["client_id"]), ("code", CLIENT));
        assert!(asked["state"].len() >= 43 && asked["nonce"].len() >= 43);
        let mut state = self.state();
        let code = format!("code-{}", state.codes.len());
        let back = format!("{}?code={code}&state={}", asked["redirect_uri"], asked["state"]);
        state.codes.insert(code, asked);
        back
    }
}

fn send(peer: &mut Peer, (status, body): (u16, Value)) {
    let body = body.to_string();
    peer.send(format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
}

/// One object with the members of both.
fn merged(mut object: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        object[name] = value.clone();
    }
    object.as_object_mut().unwrap().retain(|_, value| value != "<absent>");
    object
}

fn refused(status: u16, error: &str) -> (u16, Value) {
    (status, json!({ "error": error, "error_description": "hunter2" }))
}

impl State {
    fn answer(&mut self, endpoint: &str, request: &Message) -> (u16, Value) {
        match endpoint {
            "discovery" => (200, self.discovery()),
            "keys" => (200, self.keys()),
            "token" => self.token(request),
            "userinfo" if request.header("authorization") == Some("Bearer access-token") => {
                (200, self.user.clone())
            }
            "introspect" if self.is_client(request) => (200, self.introspection.clone()),
            "revoke" if self.is_client(request) => (200, json!({})),
            "introspect" | "revoke" => refused(401, "invalid_client"),
            _ => refused(404, "not_found"),
        }
    }

    fn discovery(&self) -> Value {
        let at = |path: &str| format!("{}/{path}", self.origin);
        let usual = json!({
            "issuer": self.origin, "authorization_endpoint": at("authorize"), "token_endpoint": at("token"),
            "jwks_uri": at("keys"), "userinfo_endpoint": at("userinfo"), "introspection_endpoint": at("introspect"),
            "end_session_endpoint": at("logout?a=b"), "revocation_endpoint": at("revoke"),
        });
        merged(usual, &self.metadata)
    }

    fn keys(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..]));
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": self.published, "use": "sig", "x": x, "y": y }] })
    }

    /// Whether the request proves that it is the client's, in either way.
    fn is_client(&self, request: &Message) -> bool {
        let form = pairs(request.text());
        let basic = "Basic ".to_owned() + &STANDARD.encode("shop:hunter2%2Bsecret%26of%3Dclient");
        match request.header("authorization") {
            Some(given) => given == basic && !form.contains_key("client_secret"),
            None => {
                form.get("client_id").is_some_and(|id| id == CLIENT)
                    && form.get("client_secret").is_some_and(|secret| secret == SECRET)
            }
        }
    }

    fn token(&mut self, request: &Message) -> (u16, Value) {
        let form = pairs(request.text());
        let is_public =
            form.get("client_id").is_some_and(|id| id == CLIENT) && !form.contains_key("client_secret");
        if !self.is_client(request) && !is_public {
            return refused(401, "invalid_client");
        }
        let nonce = match &*form["grant_type"] {
            "authorization_code" => {
                let Some(asked) = self.codes.remove(&form["code"]) else {
                    return refused(400, "invalid_grant");
                };
                let challenge =
                    form.get("code_verifier").map(|verifier| BASE64.encode(Sha256::digest(verifier)));
                if asked.get("code_challenge") != challenge.as_ref()
                    || asked["redirect_uri"] != form["redirect_uri"]
                {
                    return refused(400, "invalid_grant");
                }
                if is_public && challenge.is_none() {
                    return refused(400, "invalid_grant");
                }
                asked["nonce"].clone().into()
            }
            "refresh_token" => {
                let given = &form["refresh_token"];
                let Some(at) = self.refresh_tokens.iter().position(|valid| valid == given) else {
                    return refused(400, "invalid_grant");
                };
                self.refresh_tokens.remove(at);
                Value::Null
            }
            other => panic!("grant {other}"),
        };
        let refresh_token = format!("refresh-{}", self.asked.len());
        self.refresh_tokens.push(refresh_token.clone());
        let id_token = self.id_token(&nonce);
        let usual = json!({
            "access_token": "access-token", "token_type": "Bearer", "expires_in": 3600,
            "refresh_token": refresh_token, "id_token": id_token,
        });
        (200, merged(usual, &self.tokens))
    }

    fn id_token(&self, nonce: &Value) -> String {
        let usual = json!({
            "iss": self.origin, "sub": "u-1", "aud": CLIENT, "exp": now() + 300, "iat": now(), "nonce": nonce,
        });
        let header = merged(json!({ "kid": self.kid }), &self.header);
        self.signed(&header, &merged(usual, &self.claims))
    }

    /// A token of these.
    pub(super) fn signed(&self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = match self.forge {
            Some(forge) => forge(&text),
            None => self.key.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{text}.{}", BASE64.encode(signature))
    }

    /// An access token that is a JWT, with more claims.
    pub(super) fn access_token(&self, more: &Value) -> String {
        let usual = json!({ "iss": self.origin, "sub": "u-1", "exp": now() + 300, "scope": "orders" });
        self.signed(&json!({ "alg": "ES256", "kid": self.kid }), &merged(usual, more))
    }

    /// Makes a new key, which is not published yet.
    pub(super) fn rotate(&mut self, kid: &str) {
        self.key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        self.kid = kid.to_owned();
    }
}
