//! AWS as far as aws-lambda asks it: Lambda, STS, and what gives credentials on a machine. Every signature is verified.
use crate::harness::{Message, Upstream};
use aws_lc_rs::{digest, hmac};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use weir_plugin::form;

/// What a token file holds.
pub(super) const WEB_IDENTITY: &str = "eyJ.web+identity/token==";
pub(super) const CONTAINER_TOKEN: &str = "Basic container";
const IMDS_TOKEN: &str = "imds-token==";

/// A caller's credentials.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    secret: String,
    token: Option<String>,
    /// Whose they are.
    of: String,
}

/// An invocation of a function.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Invoked {
    /// Whose credentials have signed it.
    pub(super) by: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) payload: Json,
}

pub(super) struct State {
    known: BTreeMap<String, Known>,
    pub(super) invoked: Vec<Invoked>,
    /// How often credentials were given out.
    pub(super) issued: usize,
    /// What functions answer: a whole response, `close`, or `hang`.
    pub(super) answer: String,
    /// How many seconds credentials live.
    pub(super) lifetime: u64,
    /// Whether the metadata service demands a token.
    pub(super) imds_v2: bool,
    /// Whether nothing gives credentials.
    pub(super) broken: bool,
    /// What was wrong with requests.
    pub(super) refused: Vec<String>,
}

pub(super) struct Aws {
    upstream: Upstream,
    pub(super) state: Arc<Mutex<State>>,
}

/// The response of a function with this result.
pub(super) fn result(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Amz-Executed-Version: $LATEST\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl Aws {
    pub(super) fn start() -> Aws {
        let own = Known { secret: "s3cret/key".into(), token: None, of: "the key".into() };
        let state = State {
            known: BTreeMap::from([("AKIDOWN".to_owned(), own)]),
            invoked: Vec::new(),
            issued: 0,
            answer: result(r#"{"hello":"world"}"#),
            lifetime: 3600,
            imds_v2: false,
            broken: false,
            refused: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let upstream = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                let answer = shared.lock().unwrap().answer(&request);
                match &*answer {
                    "close" => return,
                    "hang" => {
                        peer.rest();
                    }
                    "half" => {
                        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal").finish_sending();
                    }
                    answer => {
                        peer.send(answer);
                    }
                }
            }
        });
        Aws { upstream, state }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.upstream.address
    }

    /// Fields of the plugin's configuration that lead here.
    pub(super) fn fields(&self) -> String {
        let port = self.address().port();
        format!(
            "function_name: hello, aws_region: eu-west-1, host: 127.0.0.1, port: {port}, disable_https: true, \
             aws_sts_endpoint_url: 'http://127.0.0.1:{port}'"
        )
    }

    /// Who has signed the invocations.
    pub(super) fn invoked_by(&self) -> Vec<String> {
        self.state.lock().unwrap().invoked.iter().map(|invoked| invoked.by.clone()).collect()
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }
}

impl State {
    fn answer(&mut self, request: &Message) -> String {
        let (method, target) = method_and_target(request);
        if target.starts_with("/2015-03-31/functions/") {
            return match self.signer(request, "lambda") {
                Ok(by) => {
                    let payload = serde_json::from_slice(&request.body).expect("payloads are JSON");
                    let (target, headers) = (target.to_owned(), request.head.fields.clone());
                    self.invoked.push(Invoked { by, target, headers, payload });
                    self.answer.clone()
                }
                Err(why) => self.refuse(why),
            };
        }
        if self.broken {
            return error(500, "out of order");
        }
        match (method, target) {
            ("POST", "/") => self.sts(request),
            ("GET", "/container") => match request.header("authorization") {
                Some(CONTAINER_TOKEN) => self.issue_json("the container"),
                _ => self.refuse("the container's token is missing".into()),
            },
            ("PUT", "/latest/api/token") => match request.header("x-aws-ec2-metadata-token-ttl-seconds") {
                Some(_) => text(IMDS_TOKEN),
                None => self.refuse("no time to live".into()),
            },
            ("GET", _) if self.imds_v2 && request.header("x-aws-ec2-metadata-token") != Some(IMDS_TOKEN) => {
                error(401, "")
            }
            ("GET", "/latest/meta-data/iam/security-credentials/") => text("the-role\n"),
            ("GET", "/latest/meta-data/iam/security-credentials/the-role") => self.issue_json("the instance"),
            _ => self.refuse(format!("unexpected request: {method} {target}")),
        }
    }

    fn sts(&mut self, request: &Message) -> String {
        let body = String::from_utf8(request.body.clone()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let fields: BTreeMap<_, _> =
            form::pairs(&body).map(|pair| (text(&pair.name), text(&pair.value.unwrap()))).collect();
        assert_eq!(fields["Version"], "2011-06-15");
        let role = format!("{} as {}", fields["RoleArn"], fields["RoleSessionName"]);
        let given = match &*fields["Action"] {
            "AssumeRole" => self.signer(request, "sts").map(|by| format!("{role} for {by}")),
            "AssumeRoleWithWebIdentity" if fields["WebIdentityToken"] == WEB_IDENTITY => {
                Ok(format!("{role} for a web identity"))
            }
            other => Err(format!("what is {other} of {fields:?}?")),
        };
        match given {
            Ok(of) => {
                let (id, known, expiration) = self.issue(&of);
                let result = format!("{}Result", fields["Action"]);
                xml(
                    200,
                    &format!(
                        "<R><{result}><Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey>\
                     <SessionToken>{}</SessionToken><Expiration>{expiration}</Expiration></Credentials></{result}></R>",
                        known.secret,
                        known.token.unwrap()
                    ),
                )
            }
            Err(why) => {
                self.refused.push(why);
                xml(
                    403,
                    "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>",
                )
            }
        }
    }

    /// New credentials, and when they expire.
    fn issue(&mut self, of: &str) -> (String, Known, String) {
        self.issued += 1;
        let number = self.issued;
        let of = format!("{of}, {number}");
        let known =
            Known { secret: format!("secret/+{number}"), token: Some(format!("token/+{number}==")), of };
        let id = format!("ASIA{number}");
        self.known.insert(id.clone(), known.clone());
        (id, known, date(SystemTime::now() + Duration::from_secs(self.lifetime)))
    }

    fn issue_json(&mut self, of: &str) -> String {
        let (id, known, expiration) = self.issue(of);
        text(&json!({ "Code": "Success", "AccessKeyId": id, "SecretAccessKey": known.secret, "Token": known.token,
            "Expiration": expiration }).to_string())
    }

    fn refuse(&mut self, why: String) -> String {
        self.refused.push(why.clone());
        error(403, &why)
    }

    /// Whose credentials have signed a request, or what is wrong with the signature. Written from AWS's description of
    /// the signature, for the bytes that arrive.
    fn signer(&self, request: &Message, service: &str) -> Result<String, String> {
        let header = |name: &str| request.header(name).ok_or(format!("{name} is missing"));
        let authorization = header("authorization")?;
        let part = |name: &str| {
            let (_, rest) = authorization.split_once(&format!("{name}="))?;
            rest.split(", ").next()
        };
        let (credential, names) = (part("Credential").unwrap(), part("SignedHeaders").unwrap());
        let (id, scope) = credential.split_once('/').unwrap();
        let known = self.known.get(id).ok_or(format!("unknown key {id}"))?;
        if known.token.as_deref() != request.header("x-amz-security-token") {
            return Err("the token is another".into());
        }
        let date = header("x-amz-date")?;
        assert_eq!(scope, format!("{}/eu-west-1/{service}/aws4_request", &date[..8]));
        let must =
            ["host", "x-amz-date"].into_iter().chain(known.token.as_ref().map(|_| "x-amz-security-token"));
        let signed: Vec<&str> = names.split(';').collect();
        assert!(must.into_iter().all(|name| signed.contains(&name)), "{names}");
        let headers: String =
            signed.iter().map(|name| format!("{name}:{}\n", request.header(name).unwrap())).collect();
        let (method, target) = method_and_target(request);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        // What is sent is escaped already, and escaped again but for the slashes.
        let path = path.replace('%', "%25");
        let canonical =
            format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{}", hex(sha256(&request.body).as_ref()));
        let to_sign =
            format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(sha256(canonical.as_bytes()).as_ref()));
        let mut key = format!("AWS4{}", known.secret).into_bytes();
        for part in scope.split('/').chain([&*to_sign]) {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        match part("Signature") == Some(&hex(&key)) {
            true => Ok(known.of.clone()),
            false => Err(format!("the signature is not that of {canonical:?}")),
        }
    }
}

fn method_and_target(request: &Message) -> (&str, &str) {
    let mut words = request.head.start.split(' ');
    (words.next().unwrap(), words.next().unwrap())
}

fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In the format of AWS, from that of HTTP.
fn date(at: SystemTime) -> String {
    let text = httpdate::fmt_http_date(at);
    let words: Vec<&str> = text.split(' ').collect();
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == words[2]).unwrap() + 1;
    format!("{}-{month:02}-{}T{}Z", words[3], words[1], words[4])
}

fn text(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn xml(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Type: text/xml\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

pub(super) fn error(status: u16, message: &str) -> String {
    let body = json!({ "Message": message }).to_string();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
